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

// Package artifacts holds the manifests of an installation, so that the program and `kubectl apply -k` use the same ones.
//
// The folders base, components and overlays are kustomizations; this package embeds the base alone, for the registration of
// a server that runs outside of the cluster (package registration), and the modules for authors of hooks, which the plugin of kubectl
// copies beside a new hook. It contains no logic.
package artifacts
