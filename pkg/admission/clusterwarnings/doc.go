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

// Package clusterwarnings is an admission plugin that warns authors of controllers about the cluster: kinds that it does not serve,
// parents whose status cannot be written, children that their parents cannot own (kinds.go); Services, Secrets and ConfigMaps of hooks
// that are missing (hooks.go); and other controllers that have to do with the same objects (neighbors.go).
//
// It never rejects anything. All lookups are made at the same time, and what is not known after two seconds is not warned of; a
// lookup that fails is logged and does not keep the others from being told. Rules that need no cluster are in package validation.
package clusterwarnings
