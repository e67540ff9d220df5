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

package hook

// Name names one of the hooks of a controller. It is the field under spec.hooks that declares the hook.
type Name string

const (
	// Sync returns the desired state of a parent's children, or of a target's attachments.
	Sync Name = "sync"
	// Finalize is called in place of Sync while a parent is being deleted or is no longer selected.
	Finalize Name = "finalize"
	// Customize selects the other objects that a parent's sync is shown.
	Customize Name = "customize"
)
