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

// Package history remembers what the recent syncs of all controllers did and why, for the subresource syncs: a Ring bounds the bytes for the
// process, a History has the syncs of one controller, and a Recording is one sync that is under way. Beyond the ring, the last sync of each parent
// is kept in short. A Trigger is one cause of a sync, such as a change of a child with the fields that changed.
//
// Event handlers of the reconciler make triggers, and the workqueue keeps them until the sync begins. The reconciler records, and forgets parents
// that are gone; pkg/controller/manager ends the history of a controller that is gone. A history that is nil records nothing. Places of fields are
// recorded and never what is in them, and no object is kept.
package history
