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
	"cmp"
	"crypto/sha1" //nolint:gosec // The digest is part of a name; see Planner.name.
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// Revision is one revision of a parent for which the hook is called.
type Revision struct {
	// Object is the ControllerRevision: as observed, or as it is to be created.
	Object *v1alpha1.ControllerRevision
	// Exists is false for the latest revision when it has no ControllerRevision yet.
	Exists bool
	// Retired is true when no children are on it: the hook is not called for it, and it is kept for [Planner.Former] only.
	Retired bool
	// Parent is the parent in the hook's request. It shares data with the parents of the other revisions. Nil if Retired.
	Parent map[string]any

	patch map[string]any
}

// ParentJSON returns Parent, encoded.
func (r *Revision) ParentJSON() ([]byte, error) {
	encoded, err := json.Marshal(r.Parent)
	if err != nil {
		return nil, fmt.Errorf("encoding the parent of ControllerRevision %s: %w", r.Object.Name, err)
	}
	return encoded, nil
}

// Revisions returns the revisions of the parent: first the latest, whose Parent is the parent itself, then the older ones
// from the newest to the oldest, and then the retired ones in that order. The parent is its decoded content with integers as int64 and other numbers as float64.
// Candidates may be any ControllerRevisions; those that are not the parent's are ignored. The error is an *UnreadableError
// when one of the parent's revisions that are not retired cannot be decoded, or holds another patch than the one of which its name has the digest. The
// latest revision is known by its name and repaired.
func (p *Planner) Revisions(parent map[string]any, candidates []*v1alpha1.ControllerRevision) ([]Revision, error) {
	object := &unstructured.Unstructured{Object: parent}
	patch := extract(parent, p.paths)
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the revision of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	latest := Revision{Object: p.create(object, encoded), Parent: parent, patch: patch}
	name, digest := latest.Object.Name, digestSuffix(object.GetUID(), encoded)
	var older []Revision
	for _, r := range candidates {
		if !p.owns(object, r) {
			continue
		}
		if len(r.Children) == 0 && !strings.HasSuffix(r.Name, digest) {
			older = append(older, Revision{Object: r, Exists: true, Retired: true})
			continue
		}
		recorded, err := decodePatch(r)
		if err == nil && r.Name != name {
			// Hooks are shown what is in it as the parent's.
			err = checkDigest(object.GetUID(), r.Name, recorded)
		}
		switch {
		case r.Name == name, err == nil && !latest.Exists && reflect.DeepEqual(recorded, patch):
			if latest.Exists {
				older = append(older, latest)
			}
			latest.Object, latest.Exists = r, true
		case err != nil:
			return nil, &UnreadableError{Namespace: r.Namespace, Name: r.Name, Err: err}
		default:
			older = append(older, Revision{
				Object: r, Exists: true, patch: recorded,
				Parent: restore(parent, recorded, p.paths, fieldPaths(r)),
			})
		}
	}
	slices.SortStableFunc(older, func(a, b Revision) int {
		switch {
		case a.Retired && !b.Retired:
			return 1
		case b.Retired && !a.Retired:
			return -1
		}
		return newestFirst(a.Object, b.Object)
	})
	return append([]Revision{latest}, older...), nil
}

// Live returns those of the revisions that [Planner.Revisions] returned for which the hook is called.
func Live(revisions []Revision) []Revision {
	if n := slices.IndexFunc(revisions, func(r Revision) bool { return r.Retired }); n >= 0 {
		return revisions[:n]
	}
	return revisions
}

// newestFirst compares two revisions. When they were created says little of when they were the latest: that has whole seconds, and a parent
// may go back to a former revision.
func newestFirst(a, b *v1alpha1.ControllerRevision) int {
	return cmp.Or(cmp.Compare(number(b), number(a)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// number returns the number of a revision, 0 if it has none.
func number(r *v1alpha1.ControllerRevision) int64 {
	n, err := strconv.ParseInt(r.Annotations[AnnotationNumber], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// numberLatest gives the latest revision a number, unless it would come before the others without one. It has to be written with the children
// that the revision gets, or before them.
func numberLatest(latest *v1alpha1.ControllerRevision, exists bool, others []Revision) {
	greatest, first := int64(0), exists
	for _, other := range others {
		greatest = max(greatest, number(other.Object))
		first = first && newestFirst(latest, other.Object) < 0
	}
	if !first && len(others) > 0 && greatest < math.MaxInt64 {
		metav1.SetMetaDataAnnotation(&latest.ObjectMeta, AnnotationNumber, strconv.FormatInt(greatest+1, 10))
	}
}

func decodePatch(r *v1alpha1.ControllerRevision) (map[string]any, error) {
	if len(r.ParentPatch.Raw) == 0 {
		return nil, errors.New("it is empty")
	}
	var patch map[string]any
	if err := utiljson.Unmarshal(r.ParentPatch.Raw, &patch); err != nil {
		return nil, err
	}
	if patch == nil {
		return nil, errors.New("it is null")
	}
	return patch, nil
}

// Operation is a kind of write of a ControllerRevision.
type Operation string

const (
	// Create the revision.
	Create Operation = "Create"
	// Update the revision. It carries the observed resourceVersion, so that a concurrent change is a conflict.
	Update Operation = "Update"
	// Delete the revision, with its UID and resourceVersion as preconditions.
	Delete Operation = "Delete"
)

// Write is one change of a ControllerRevision.
type Write struct {
	// Operation to do.
	Operation Operation
	// Revision to write, or the observed one to delete. The caller may modify it.
	Revision *v1alpha1.ControllerRevision
}

// writes returns the writes after which the revisions hold the claims. The latest revision comes first and deletions come last,
// so that a child stays claimed even if a write in between fails. Older revisions without children retire, and the oldest of those are deleted
// beyond the limit.
func (p *Planner) writes(parent *unstructured.Unstructured, revisions []Revision, c claims) []Write {
	var changes []Write
	var retired []Revision
	for index, r := range revisions {
		children := c.children(parent.GetNamespace(), index)
		switch {
		case !r.Exists && len(children) == 0 && parent.GetDeletionTimestamp() != nil:
			// It would be of use to nobody, and in a namespace that is being deleted it cannot be created.
		case !r.Exists:
			created := r.Object.DeepCopy()
			created.Children = children
			numberLatest(created, false, revisions[1:])
			changes = append(changes, Write{Create, created})
		case index != 0 && len(children) == 0:
			if r.Object.DeletionTimestamp == nil {
				retired = append(retired, r)
			}
		default:
			updated := p.update(parent, r, children, index == 0)
			if index == 0 {
				numberLatest(updated, true, revisions[1:])
			}
			if !reflect.DeepEqual(updated, r.Object) {
				changes = append(changes, Write{Update, updated})
			}
		}
	}
	return append(changes, p.retire(parent, retired)...)
}

// retire returns the writes after which revisions claim no children, and no more of them are left than the limit.
func (p *Planner) retire(parent *unstructured.Unstructured, revisions []Revision) (writes []Write) {
	slices.SortStableFunc(revisions, func(a, b Revision) int { return newestFirst(a.Object, b.Object) })
	for n, r := range revisions {
		if n >= p.config.HistoryLimit {
			writes = append(writes, Write{Delete, r.Object.DeepCopy()})
		} else if updated := p.update(parent, r, nil, false); !reflect.DeepEqual(updated, r.Object) {
			writes = append(writes, Write{Update, updated})
		}
	}
	return writes
}

// update returns the revision with the children, its owner, whether it is superseded, the field paths that it records, and, when it is the latest,
// with the right patch.
func (p *Planner) update(parent *unstructured.Unstructured, r Revision, children []v1alpha1.ControllerRevisionChildren, latest bool) *v1alpha1.ControllerRevision {
	updated := r.Object.DeepCopy()
	if !sameChildren(updated.Children, children) {
		updated.Children = children
	}
	if metav1.GetControllerOfNoCopy(updated) == nil {
		own(updated, parent)
	}
	if _, marked := updated.Annotations[v1alpha1.AnnotationSuperseded]; latest {
		delete(updated.Annotations, v1alpha1.AnnotationSuperseded)
	} else if !marked {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, v1alpha1.AnnotationSuperseded, "true")
	}
	if latest {
		if patch, ok := repaired(r); ok {
			updated.ParentPatch.Raw = patch
		}
	}
	p.recordPaths(parent, r, updated, latest && !reflect.DeepEqual(updated, r.Object))
	return updated
}

// recordPaths says on a revision that it records the present field paths. One that says nothing is left alone, unless always is set.
func (p *Planner) recordPaths(parent *unstructured.Unstructured, r Revision, updated *v1alpha1.ControllerRevision, always bool) {
	recorded, says := updated.Annotations[AnnotationFieldPaths]
	if recorded == p.recorded || !says && !always {
		return
	}
	// An older one may be without a field only because that was no part of revisions: its children have it.
	if reflect.DeepEqual(restore(parent.Object, r.patch, p.paths, p.config.FieldPaths), r.Parent) {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, AnnotationFieldPaths, p.recorded)
	}
}

// repaired returns the patch that the latest revision must have; false when it has it.
func repaired(r Revision) ([]byte, bool) {
	if recorded, err := decodePatch(r.Object); err == nil && reflect.DeepEqual(recorded, r.patch) {
		return nil, false
	}
	patch, err := json.Marshal(r.patch)
	return patch, err == nil
}

// claims is the index of the revision that each rolling child is on. Children that the latest revision does not desire have no
// entry, unless the cluster does not serve their kind at present.
type claims map[children.Key]int

// outdated returns how many children are not on the latest revision.
func (c claims) outdated() int {
	n := 0
	for _, index := range c {
		if index != 0 {
			n++
		}
	}
	return n
}

// claimsOf reads what the revisions claim (docs/reference/contract.md#s14.3). Kinds that no longer roll and children that are no longer
// desired are dropped. A child that two revisions claim, because a write was interrupted, is on the newer one.
//
// Of a kind that is not served, nothing is dropped: its children may all be there, and would move at once when it is served again.
func (p *Planner) claimsOf(parentNamespace string, revisions []Revision, desired map[children.Key]children.Desired) claims {
	out := claims{}
	for index, r := range revisions {
		for _, claimed := range r.Object.Children {
			unserved := p.unserved(schema.GroupKind{Group: claimed.APIGroup, Kind: claimed.Kind})
			for _, name := range claimed.Names {
				key := absoluteKey(parentNamespace, claimed.APIGroup, claimed.Kind, name)
				_, taken := out[key]
				_, wanted := desired[key]
				if (unserved || wanted && p.rolls(key)) && !taken {
					out[key] = index
				}
			}
		}
	}
	return out
}

// children returns the claims of one revision as a ControllerRevision holds them, in a fixed order.
func (c claims) children(parentNamespace string, index int) []v1alpha1.ControllerRevisionChildren {
	names := map[schema.GroupKind][]string{}
	for key, at := range c {
		if at == index {
			names[key.GroupKind()] = append(names[key.GroupKind()], relativeName(parentNamespace, key))
		}
	}
	out := make([]v1alpha1.ControllerRevisionChildren, 0, len(names))
	for _, gk := range slices.SortedFunc(maps.Keys(names), func(a, b schema.GroupKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	}) {
		slices.Sort(names[gk])
		out = append(out, v1alpha1.ControllerRevisionChildren{APIGroup: gk.Group, Kind: gk.Kind, Names: names[gk]})
	}
	return out
}

// sameChildren reports whether two lists claim the same children, in any order.
func sameChildren(a, b []v1alpha1.ControllerRevisionChildren) bool {
	flatten := func(list []v1alpha1.ControllerRevisionChildren) sets.Set[children.Key] {
		all := sets.New[children.Key]()
		for _, c := range list {
			for _, name := range append([]string{""}, c.Names...) { // The kind is listed, too, if it has no children.
				all.Insert(children.Key{Group: c.APIGroup, Kind: c.Kind, Name: name})
			}
		}
		return all
	}
	return flatten(a).Equal(flatten(b))
}

// extract returns an object that holds only the fields at the paths. Missing fields are left out.
func extract(parent map[string]any, paths [][]string) map[string]any {
	patch := map[string]any{}
	for _, path := range paths {
		if value, ok, _ := unstructured.NestedFieldNoCopy(parent, path...); ok {
			patch = set(patch, path, value)
		}
	}
	return patch
}

// restore returns the parent as it was in the revision that patch records. Every field at the paths is taken from the
// patch. A field that the patch lacks is removed if the revision recorded its path, because then the parent did not have it;
// otherwise the parent's present field stays. Where the revision recorded only parts of a field, only these are taken from it. The result
// shares what is not changed with the parent.
func restore(parent, patch map[string]any, paths [][]string, recorded []string) map[string]any {
	for _, path := range paths {
		known := covers(recorded, path)
		if parts := below(recorded, path); !known && len(parts) > 0 {
			parent = restore(parent, patch, parts, recorded)
			continue
		}
		if value, ok, _ := unstructured.NestedFieldNoCopy(patch, path...); ok {
			parent = set(parent, path, value)
		} else if known {
			parent = remove(parent, path)
		}
	}
	return parent
}

// below returns those of the recorded paths that lead to parts of the field at the path.
func below(recorded, path []string) (parts [][]string) {
	prefix := strings.Join(path, ".") + "."
	for _, r := range recorded {
		if strings.HasPrefix(r, prefix) {
			parts = append(parts, strings.Split(r, "."))
		}
	}
	return parts
}

// covers reports whether one of the recorded paths is the path or a prefix of it.
func covers(recorded, path []string) bool {
	dotted := strings.Join(path, ".") + "."
	return slices.ContainsFunc(recorded, func(r string) bool { return strings.HasPrefix(dotted, r+".") })
}

// set returns a copy of object with the value at the path. Missing objects above it are created.
func set(object map[string]any, path []string, value any) map[string]any {
	changed := make(map[string]any, len(object)+1)
	maps.Copy(changed, object)
	if len(path) > 1 {
		below, _ := object[path[0]].(map[string]any)
		value = set(below, path[1:], value)
	}
	changed[path[0]] = value
	return changed
}

// remove returns a copy of object without the field at the path.
func remove(object map[string]any, path []string) map[string]any {
	changed := maps.Clone(object)
	if len(path) == 1 {
		delete(changed, path[0])
	} else if below, ok := object[path[0]].(map[string]any); ok {
		changed[path[0]] = remove(below, path[1:])
	}
	return changed
}

// errNoFormer says that the parent has no revision but its present one.
var errNoFormer = fmt.Errorf("%w: it has no former revision: spec.parentResource.revisionHistory.limit says how many are kept", inspection.ErrNoRevision)

// Former returns one of the revisions that Planner.Revisions returned for the parent, by its name. [v1alpha1.RevisionPrevious] and an empty name
// stand for the newest one that is not the latest. The latest is a revision like others. The error is [inspection.ErrNoRevision] if there is none, and
// an *UnreadableError if it cannot be decoded.
func (p *Planner) Former(revisions []Revision, name string) (*Revision, error) {
	found := Revision{}
	for _, r := range revisions[1:] {
		newer := !found.Exists || newestFirst(r.Object, found.Object) < 0
		if previous := name == "" || name == v1alpha1.RevisionPrevious; previous && newer || r.Object.Name == name {
			found = r
		}
	}
	switch {
	case found.Exists:
	case name == "" || name == v1alpha1.RevisionPrevious:
		return nil, errNoFormer
	case revisions[0].Exists && revisions[0].Object.Name == name:
		found = revisions[0]
	default:
		return nil, fmt.Errorf("%w: it has no such revision as %s", inspection.ErrNoRevision, name)
	}
	if !found.Retired {
		return &found, nil
	}
	parent := revisions[0].Parent
	var err error
	if found.patch, err = decodePatch(found.Object); err == nil {
		err = checkDigest((&unstructured.Unstructured{Object: parent}).GetUID(), found.Object.Name, found.patch)
	}
	if err != nil {
		return nil, &UnreadableError{Namespace: found.Object.Namespace, Name: found.Object.Name, Err: err}
	}
	found.Parent = restore(parent, found.patch, p.paths, fieldPaths(found.Object))
	return &found, nil
}

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
	prefix := p.config.Resource.Resource + "." + cmp.Or(p.config.Resource.Group, "core")
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
	return cmp.Or(parent.GetNamespace(), p.config.Namespace)
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
		Annotations: map[string]string{AnnotationFieldPaths: p.recorded},
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
