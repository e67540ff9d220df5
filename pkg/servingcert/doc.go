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

// Package servingcert keeps the certificates of a server that was given none.
//
// A Manager makes a certificate authority and a serving certificate for the names that the aggregation layer, the machine and the
// caller use, and renews them before they expire: Manager.Ensure once before serving, Manager.Run for as long as the server lives.
// What is there and still good is used again, so that the registration of the server at a cluster, which holds the authority, stays
// valid over restarts. Where they are kept is a Store.
//
// Files are one directory, for one server. The authority is renewed with its key.
//
//	ca.crt    certificate of the authority, for clients: the APIService's caBundle
//	ca.key    its key, mode 0600
//	tls.crt   serving certificate
//	tls.key   its key, mode 0600, kept when the certificate is renewed, so that a renewal is the replacement of one file
//	LOCK      held while the files are looked at and written
//
// A Secret has the authority that several servers share; each signs its serving certificate with it, and keeps that in memory. The
// authority is replaced by another one ahead of its end, so that no client meets a certificate that it does not trust:
//
//  1. A next authority is made, and added to the certificates that clients shall trust.
//  2. Some replica sees that the registration at the cluster trusts it, and notes when.
//  3. After [Lifetimes].Propagation it signs in place of the former one, and every replica makes itself another certificate.
//  4. When no certificate of the former authority can be served any more, it is no longer trusted.
//
// Every step is a conditional write of the Secret, which any replica may take.
//
// The caller is the command of the API server, which reloads what changed by itself. What this package knows of the registration
// is the interface Registration. It imports nothing of ours.
package servingcert
