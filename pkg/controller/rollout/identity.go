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

package rollout

import (
	"crypto/sha1" //nolint:gosec // The digest is part of a name; see Planner.name.
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// Labels and annotations of ControllerRevisions (docs/reference/contract.md#s14.1).
const (
	// LabelAPIGroup holds the API group of the parent; empty for core kinds.
	LabelAPIGroup = "metacontroller.k8s.io/apiGroup"
	// LabelResource holds the resource of the parent.
	LabelResource = "metacontroller.k8s.io/resource"
	// LabelControllerUID holds the parent's UID when the controller generates selectors: of revisions, and of children
	// (docs/reference/contract.md#s7).
	LabelControllerUID = "controller-uid"
	// AnnotationFieldPaths holds the field paths that the revision recorded, as a JSON list. With it, a field that the parent
	// did not have differs from one that was not recorded. Revisions written by Metacontroller lack it.
	AnnotationFieldPaths = "metacontroller.k8s.io/field-paths"
	// AnnotationNumber holds a number that is greater the later the revision was the latest one of its parent. Revisions lack it that came before
	// all others, or that Metacontroller wrote: they are older than those that have it.
	AnnotationNumber = "metacontroller.k8s.io/revision"
)

const (
	// maxPrefix leaves room for the digest in a name of 253 characters.
	maxPrefix = 212
	// maxLabelValue is the length of a label value.
	maxLabelValue = 63
)

// name returns the name of the revision of a parent with that patch (docs/reference/contract.md#s14.1). The digest only tells
// revisions apart. It is Metacontroller's, so that its revisions are found again.
func (p *Planner) name(uid types.UID, patch []byte) string {
	group := p.config.Resource.Group
	if group == "" {
		group = "core"
	}
	prefix := p.config.Resource.Resource + "." + group
	if len(prefix) > maxPrefix {
		prefix = strings.TrimRight(prefix[:maxPrefix], ".-")
	}
	return prefix + digestSuffix(uid, patch)
}

// digestSuffix is the end of the name of a revision.
func digestSuffix(uid types.UID, patch []byte) string {
	digest := sha1.Sum(append([]byte(uid), patch...)) //nolint:gosec // See Planner.name; it authenticates nobody.
	return "-" + hex.EncodeToString(digest[:])
}

// checkDigest returns an error if a revision has not the patch that it was created with: the name of an object does not change.
func checkDigest(parent types.UID, name string, patch map[string]any) error {
	encoded, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	if !strings.HasSuffix(name, digestSuffix(parent, encoded)) {
		return errors.New("the digest in the name is that of another patch, so it was changed or made up by somebody")
	}
	return nil
}

// namespace returns the namespace of the parent's revisions.
func (p *Planner) namespace(parent *unstructured.Unstructured) string {
	if ns := parent.GetNamespace(); ns != "" {
		return ns
	}
	return p.config.Namespace
}

// identityLabels are the labels that identify a revision as one of a parent of this resource.
func (p *Planner) identityLabels() map[string]string {
	return map[string]string{
		LabelAPIGroup: labelValue(p.config.Resource.Group),
		LabelResource: labelValue(p.config.Resource.Resource),
	}
}

// labelValue truncates s to the length of a label's value.
func labelValue(s string) string {
	if len(s) > maxLabelValue {
		s = strings.TrimRight(s[:maxLabelValue], ".-_")
	}
	return s
}

// labels returns the labels of a new revision: those that identify it, and those that Metacontroller gives it.
func (p *Planner) labels(parent *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	if p.config.GenerateSelector {
		out[LabelControllerUID] = string(parent.GetUID())
	} else {
		template, _, _ := unstructured.NestedFieldNoCopy(parent.Object, "spec", "template", "metadata", "labels")
		set, _ := template.(map[string]any)
		for k, v := range set {
			// An invalid label would be rejected together with the revision, and the rollout would not start.
			if s, ok := v.(string); ok && len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(s)) == 0 {
				out[k] = s
			}
		}
	}
	maps.Copy(out, p.identityLabels())
	return out
}

// create returns the revision of the parent with that patch as it is to be created, without children.
func (p *Planner) create(parent *unstructured.Unstructured, patch []byte) *v1alpha1.ControllerRevision {
	r := &v1alpha1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Name:        p.name(parent.GetUID(), patch),
		Namespace:   p.namespace(parent),
		Labels:      p.labels(parent),
		Annotations: map[string]string{AnnotationFieldPaths: p.recordedPaths()},
	}}
	r.ParentPatch.Raw = patch
	own(r, parent)
	return r
}

// own makes the parent the controller of the revision.
func own(r *v1alpha1.ControllerRevision, parent *unstructured.Unstructured) {
	r.OwnerReferences = slices.DeleteFunc(r.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == parent.GetUID() })
	r.OwnerReferences = append(r.OwnerReferences, *metav1.NewControllerRef(parent, parent.GroupVersionKind()))
}

// owns reports whether the revision is one of the parent's: the parent controls it, and it has the labels of the resource. The
// parent's selector does not matter. A revision without a controller is the parent's if it has the name that the parent
// gives it, because the name holds a digest of the parent's UID.
func (p *Planner) owns(parent *unstructured.Unstructured, r *v1alpha1.ControllerRevision) bool {
	if r.Namespace != p.namespace(parent) || !p.selector.Matches(labels.Set(r.Labels)) {
		return false
	}
	if c := metav1.GetControllerOfNoCopy(r); c != nil {
		return c.UID == parent.GetUID()
	}
	patch, err := decodePatch(r)
	if err != nil {
		return false
	}
	encoded, err := json.Marshal(patch)
	return err == nil && r.Name == p.name(parent.GetUID(), encoded)
}

func (p *Planner) recordedPaths() string {
	encoded, err := json.Marshal(p.config.FieldPaths)
	if err != nil {
		return "[]"
	}
	return string(encoded)
}

// fieldPaths returns the paths that the revision recorded; nil when the revision does not say.
func fieldPaths(r *v1alpha1.ControllerRevision) []string {
	var paths []string
	if err := json.Unmarshal([]byte(r.Annotations[AnnotationFieldPaths]), &paths); err != nil {
		return nil
	}
	return paths
}

// relativeName is the name of a child in a revision: its name alone when the parent is namespaced or the child is
// cluster-scoped, and namespace/name otherwise.
func relativeName(parentNamespace string, key children.Key) string {
	if parentNamespace != "" || key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

// absoluteKey is the inverse of relativeName.
func absoluteKey(parentNamespace, group, kind, name string) children.Key {
	key := children.Key{Group: group, Kind: kind, Namespace: parentNamespace, Name: name}
	if parentNamespace == "" {
		if namespace, bare, ok := strings.Cut(name, "/"); ok {
			key.Namespace, key.Name = namespace, bare
		}
	}
	return key
}

// UnreadableError means that a ControllerRevision of the parent cannot be decoded, or is not trusted. The rollout waits until it is
// deleted; when it is deleted, its children move to the latest revision at once.
type UnreadableError struct {
	// Namespace and Name of the ControllerRevision.
	Namespace, Name string
	// Err says what is wrong with it.
	Err error
}

// Error names the revision.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("reading parentPatch of ControllerRevision %s/%s: %v; delete the ControllerRevision to go on without it",
		e.Namespace, e.Name, e.Err)
}

// Unwrap returns Err.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Selector selects the revisions of parents of the planner's resource.
func (p *Planner) Selector() labels.Selector { return p.selector }
