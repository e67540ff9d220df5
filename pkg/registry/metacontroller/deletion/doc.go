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

// Package deletion lets no object go that was given a finalizer while it was being deleted.
//
// The generic store decides by one read of an object whether it has finalizers, and removes it by another one if it had none. The engine puts a
// finalizer on the object of a controller before that controller puts its own on any parent. Written between the two reads it would be of no
// effect: the object would be gone, and with it who takes the controller's finalizer off the parents again.
package deletion
