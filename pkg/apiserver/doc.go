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

// Package apiserver assembles the API server of the group metacontroller.k8s.io.
//
// The command fills a Config from its options, completes it and calls New; the Server that comes back serves once it is
// prepared and run. Here are the scheme and the serializer, the choice of admission plugins and of API priority and
// fairness by what the cluster serves, the health checks, the metrics endpoint, and the hooks that tie other things to the
// server's life. The package knows nothing of what the stored controllers do.
package apiserver
