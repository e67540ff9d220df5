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

package reconciler

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// StatusIgnored is what is said of a status that is not written.
func StatusIgnored(resource schema.GroupResource, origin discovery.Origin) string {
	return statusIgnored(resource, origin)
}

// SyncedNotKept is what is said of parents that cannot have the condition Synced.
func SyncedNotKept(resource schema.GroupResource, origin discovery.Origin) string {
	return syncedNotKept("a cause", "Change it", resource, origin)
}

// StatusIncomplete is what is said of fields that are not stored.
func StatusIncomplete(lost []string, o *object.Object, resource schema.GroupResource, origin discovery.Origin) string {
	return statusIncomplete(lost, o, resource, origin)
}

// StatusRefused is what is said of a status that the API server refuses.
func StatusRefused(unknown []string, o *object.Object, resource schema.GroupResource) string {
	return statusRefused(unknown, o, resource)
}

// Remembered returns what the controller remembers between syncs.
func (c *Controller) Remembered() metrics.Remembered { return c.remembered() }

// Permitted is what the controller does when its service account may do what it could not do before.
func (c *Controller) Permitted(released bool) { c.permitted(released) }

// CountChildren returns how many children the parents have.
func (c *Controller) CountChildren() int { return c.countChildren() }
