/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package webhook makes one call to one webhook (docs/reference/contract.md#s2).
//
// A [Client] belongs to one hook of one controller. It knows the address, TLS, credentials, connections, entity tags, limits,
// errors and metrics of that hook: [Client.Call] sends a body and returns the body of the response. It knows nothing of what the
// bodies mean, see package wire; it never retries a call that the hook may have received, since the workqueue does that; and
// it reads Secrets and ConfigMaps only through the [Credentials] that it is given.
//
// Errors are [RetryLaterError], [StatusError], [CredentialsError], [CallError], [FunctionError] and, for a response over the size limit,
// hook.RejectedError. Their messages go into events: short, without credentials, and with the same text for the same cause.
package webhook
