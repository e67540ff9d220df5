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

package metacontroller

// ResourceRule names a kind of objects by API version and resource.
type ResourceRule struct {
	// apiVersion is the group and version in which objects are read and sent to hooks, for example apps/v1, or v1 for the
	// core group. Required.
	APIVersion string
	// resource is the plural name of the resource in lower case, for example deployments, without a subresource. Required.
	Resource string
}

// ChildUpdateMethod says how an existing child is brought to a changed desired state.
type ChildUpdateMethod string

const (
	// ChildUpdateOnDelete leaves an existing child alone; the new desired state is used when the child is deleted.
	ChildUpdateOnDelete ChildUpdateMethod = "OnDelete"
	// ChildUpdateRecreate deletes the child and creates it anew.
	ChildUpdateRecreate ChildUpdateMethod = "Recreate"
	// ChildUpdateInPlace updates the child.
	ChildUpdateInPlace ChildUpdateMethod = "InPlace"
	// ChildUpdateRollingRecreate deletes and creates anew, a few children at a time.
	ChildUpdateRollingRecreate ChildUpdateMethod = "RollingRecreate"
	// ChildUpdateRollingInPlace updates, a few children at a time.
	ChildUpdateRollingInPlace ChildUpdateMethod = "RollingInPlace"
)

// ChildApplyStrategy says who works out what an existing child becomes.
type ChildApplyStrategy string

// The apply strategies.
const (
	// ChildApplyMerge merges what the hook returned into the child, with what it returned before, as kubectl apply did.
	ChildApplyMerge ChildApplyStrategy = "Merge"
	// ChildApplyServerSide leaves the merge to the API server (server-side apply): the controller owns the fields that the hook
	// returned, and no others.
	ChildApplyServerSide ChildApplyStrategy = "ServerSide"
)

// ServiceAccountReference names a service account.
type ServiceAccountReference struct {
	// namespace of the service account. Required.
	Namespace string
	// name of the service account. Required.
	Name string
}
