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

package escalation

import (
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// revisions are the resource of ControllerRevisions.
const revisions = "controllerrevisions"

// Labels of ControllerRevisions by which the engine finds those of a kind of parents (docs/reference/contract.md#s14.1).
const (
	labelGroup    = "metacontroller.k8s.io/apiGroup"
	labelResource = "metacontroller.k8s.io/resource"
)

// ofRevision returns what writing a ControllerRevision amounts to: hooks are shown parents with what is in it. Without its labels
// the engine does not look at it. Revisions of cluster-scoped parents have a namespace nevertheless, so that a right in it says
// nothing about the parent.
func ofRevision(o *metacontroller.ControllerRevision) []rights.Right {
	group, marked := o.Labels[labelGroup]
	resource := o.Labels[labelResource]
	if !marked || resource == "" {
		return nil
	}
	return []rights.Right{{Verb: rights.Update, Group: group, Resource: resource}}
}
