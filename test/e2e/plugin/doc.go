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

// Package plugin runs the commands of docs/kubectl-plugin.md as they stand, in a shell, with the real kubectl and the plugin's binary on
// PATH, a real control plane and the server; and compares what is printed with the page, which the flag -update writes. It also goes from an
// empty folder to a changed Deployment with each language of init. It holds tests only.
package plugin
