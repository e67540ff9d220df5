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

// Package trigger says why parents are synced: a Trigger is one cause, such as a change of a child with the fields that changed, and a Set
// has those of one sync. The event handlers of the reconciler make triggers, the workqueue keeps them until the sync begins, and
// pkg/controller/synchistory records them.
//
// A trigger has the places of fields, never what is in them, and holds no object. The package has no client and no clock.
package trigger
