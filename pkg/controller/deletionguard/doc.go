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

// Package deletionguard decides whether the deletions that the hooks of one controller want may be carried out.
//
// A Guard counts deletions of children over a minute. What passes spec.deletionGuard is held, and all further deletions with it, until
// somebody confirms them or nobody wants them any more. It is asked once for each sync that has planned its writes; it writes nothing and
// knows nothing of children but their UIDs. The reconciler owns it. It has no client and no clock: the time is given to it. A new one
// knows of nothing that was deleted before.
package deletionguard
