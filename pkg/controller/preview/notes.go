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

package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// Notes are what a sync would do. The zero value is empty; one goroutine uses it.
type Notes struct {
	// Plan is what would be written.
	Plan v1alpha1.ParentPlan
	// Requests are those that hooks would be sent.
	Requests []v1alpha1.HookRequest

	shown map[inspection.Place]struct{}
	// size is that of the bodies of Requests.
	size int
}

// maxSize is the most that the requests about one parent, with their responses, may have in bytes. Each of those during a rolling update
// repeats the children and the related objects.
const maxSize = 32 << 20

// Show takes note that an object of a resource is shown.
func (n *Notes) Show(resource schema.GroupResource, o *object.Object) {
	if n.shown == nil {
		n.shown = map[inspection.Place]struct{}{}
	}
	n.shown[inspection.Place{GroupResource: resource, Namespace: o.Namespace()}] = struct{}{}
}

// Places returns where the objects are that are shown.
func (n *Notes) Places() []inspection.Place { return slices.Collect(maps.Keys(n.shown)) }

// Request takes note of the body of a request and of that of the response, nil if it was not asked for, as people may see them. The error,
// inspection.ErrTooLarge, says that they are more than are shown of one parent.
func (n *Notes) Request(name hook.Name, revision string, body, response []byte) error {
	if n.size += len(body) + len(response); n.size > maxSize {
		return fmt.Errorf("%w: they have more than %d MiB", inspection.ErrTooLarge, maxSize>>20)
	}
	noted := v1alpha1.HookRequest{Hook: string(name), Revision: revision, Body: runtime.RawExtension{Raw: body}}
	if response != nil {
		noted.Response = &runtime.RawExtension{Raw: response}
	}
	n.Requests = append(n.Requests, noted)
	return nil
}

// Revision takes note of a write of a ControllerRevision.
func (n *Notes) Revision(operation, name string) {
	n.Plan.Revisions = append(n.Plan.Revisions, v1alpha1.RevisionPlan{Action: operation, Name: name})
}

// Finalizers takes note that the parent gets other finalizers, and returns it as it is then.
func (n *Notes) Finalizers(o *object.Object, wanted []string) (*object.Object, error) {
	n.Plan.Changes = append(n.Plan.Changes, fieldChange("metadata.finalizers", plainOf(o.Finalizers()), plainOf(wanted)))
	return edited(o, "finalizers", plainOf(wanted))
}

// ChangeParent takes note of changes of the parent, as people may see them: of a Secret, the copies of its values in annotations are hidden.
func (n *Notes) ChangeParent(o *object.Object, changes parent.Changes) error {
	fields, err := changes.Fields(o)
	if err != nil {
		return err
	}
	for _, f := range fields {
		before := decoded(o, f.Path)
		list := differences(strings.Join(f.Path, "."), before, plainOf(f.Value))
		for i := range list {
			if isSecret(o) && isCopy(list[i].Path) {
				hideValues(&list[i])
			}
		}
		n.Plan.Changes = append(n.Plan.Changes, list...)
	}
	return nil
}

// isCopy reports whether a change is one of an annotation with a second copy of the object.
func isCopy(path string) bool {
	return slices.ContainsFunc(lastApplied, func(name string) bool { return path == "metadata.annotations["+name+"]" })
}

// Claim takes note of an adoption or release, and returns the object as it is then.
func (n *Notes) Claim(action v1alpha1.ChildAction, o *object.Object, patch []byte) (*object.Object, error) {
	n.Plan.Children = append(n.Plan.Children, of(o, action))
	var patched struct {
		Metadata struct {
			OwnerReferences any `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(patch, &patched); err != nil {
		return nil, fmt.Errorf("reading who owns %s: %w", o, err)
	}
	return edited(o, "ownerReferences", patched.Metadata.OwnerReferences)
}

// of returns the plan of an observed child.
func of(o *object.Object, action v1alpha1.ChildAction) v1alpha1.ChildPlan {
	return v1alpha1.ChildPlan{APIVersion: o.APIVersion(), Kind: o.Kind(), Namespace: o.Namespace(), Name: o.Name(), Action: action}
}

// LeaveAll takes note that nothing is done with the children: the response is one that was carried out before.
func (n *Notes) LeaveAll(observed []*object.Object) {
	for _, o := range observed {
		left := of(o, v1alpha1.ChildLeave)
		left.Reason = string(plan.Same)
		n.Plan.Children = append(n.Plan.Children, left)
	}
}

// edited returns an object with another value of a field of its metadata.
func edited(o *object.Object, field string, value any) (*object.Object, error) {
	content, err := o.Decode()
	if err != nil {
		return nil, err
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s has no metadata", o)
	}
	metadata[field] = value
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o, err)
	}
	return object.Parse(encoded, object.ParseOptions{KeepManagedFields: true})
}
