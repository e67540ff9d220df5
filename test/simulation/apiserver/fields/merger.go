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

package fields

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// maxUpdaters is the number of entries that are no apply's. Older ones are joined.
const maxUpdaters = 10

// never are fields that nobody owns.
var never = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"), fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// Converter turns objects into what can be merged, and into other versions of their kind.
type Converter struct {
	// Types knows the types of all versions.
	Types managedfields.TypeConverter
	// Convert returns an object in another version. Missing reports of its error that there is no such version.
	Convert func(o value.Object, apiVersion string) (value.Object, error)
	Missing func(error) bool
}

func (c Converter) typed(o value.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return c.Types.ObjectToTyped(&unstructured.Unstructured{Object: o}, options...)
}

func (c Converter) untyped(t *typed.TypedValue) (value.Object, error) {
	o, ok := t.AsValue().Unstructured().(value.Object)
	if !ok {
		return nil, fmt.Errorf("the object has become a %T", t.AsValue().Unstructured())
	}
	return o, nil
}

// versions is a Converter as the merging library wants it.
type versions struct{ Converter }

func (v versions) Convert(t *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	o, err := v.untyped(t)
	if err != nil {
		return t, err
	}
	if value.String(o, "apiVersion") == string(version) {
		return t, nil
	}
	converted, err := v.Converter.Convert(o, string(version))
	if err != nil {
		return t, err
	}
	return v.typed(converted)
}

func (v versions) IsMissingVersionError(err error) bool { return v.Missing(err) }

// Manager keeps managedFields for one endpoint of one version of a kind.
type Manager struct {
	converter   Converter
	updater     merge.Updater
	apiVersion  string
	subresource string
	// blank has the type of the kind, nil if it is not known.
	blank *typed.TypedValue
	empty value.Object
}

// NewManager returns a manager for the kind and version of an object that has no more than every object of it. Reset are the fields that the endpoint does not write, by version.
func NewManager(c Converter, empty value.Object, subresource string, reset map[fieldpath.APIVersion]*fieldpath.Set) *Manager {
	apiVersion := value.String(empty, "apiVersion")
	blank, err := c.typed(empty)
	if err != nil {
		blank = nil // Nothing is compared quickly then.
	}
	return &Manager{
		blank: blank, empty: empty,
		converter: c, apiVersion: apiVersion, subresource: subresource,
		updater: merge.Updater{Converter: versions{c}, IgnoreFilter: fieldpath.NewExcludeFilterSetMap(reset)}, //nolint:staticcheck // As apimachinery does.
	}
}

// bare returns an object without managedFields. It shares everything else.
func bare(o value.Object) value.Object {
	meta := value.Map(o, "metadata")
	if _, found := meta["managedFields"]; !found {
		return o
	}
	o, meta = value.Shallow(o), value.Shallow(meta)
	delete(meta, "managedFields")
	o["metadata"] = meta
	return o
}

// set replaces the managedFields of an object.
func set(o value.Object, list []any) {
	meta := value.Map(o, "metadata")
	switch {
	case len(list) > 0 && meta == nil:
		o["metadata"] = value.Object{"managedFields": list}
	case len(list) > 0:
		meta["managedFields"] = list
	default:
		delete(meta, "managedFields")
	}
}

// Update sets the managedFields of an object that a field manager has written at a time. The live object is empty but for its kind
// if there was none.
func (m *Manager) Update(live, o value.Object, manager, now string) {
	list := value.List(live, "metadata", "managedFields")
	given, found := value.At(o, "metadata", "managedFields").([]any)
	if m.subresource == "" && found {
		first, _ := append(given, nil)[0].(value.Object)
		if len(given) == 0 || len(given) == 1 && first != nil && len(first) == 0 {
			set(o, nil) // This is how clients take all entries away.
			return
		}
		if decode(given) != nil {
			list = given
		}
	}
	entries := decode(list)
	if entries == nil {
		entries = decode(nil)
	}
	if len(entries.sets) == 0 && value.String(live, "metadata", "uid") != "" {
		set(o, nil)
		return
	}
	if err := m.update(live, o, entries, manager, now); err != nil {
		set(o, value.List(live, "metadata", "managedFields")) // As when a field of one version is unknown to another.
		return
	}
	set(o, entries.encode(m.converter.Types))
}

// self is a name that no entry has. It shows whether a write changed something.
const self = "current-operation"

func (m *Manager) update(live, o value.Object, entries *managed, manager, now string) error {
	sets := entries.sets
	if !m.quickly(live, o, entries) {
		was, err := m.converter.typed(bare(live), typed.AllowDuplicates)
		if err != nil {
			return err
		}
		is, err := m.converter.typed(bare(o), typed.AllowDuplicates)
		if err != nil {
			return err
		}
		if _, sets, err = m.updater.Update(was, is, fieldpath.APIVersion(m.apiVersion), entries.sets, self); err != nil {
			return err
		}
	}
	entries.sets = sets
	strip(sets, self)
	if changed, ok := sets[self]; ok {
		delete(sets, self)
		e := entry{identity: identity{orUnknown(manager), string(metav1.ManagedFieldsOperationUpdate), m.apiVersion, m.subresource}, time: now}
		if before, ok := sets[e.name()]; ok {
			changed = fieldpath.NewVersionedSet(changed.Set().Union(before.Set()), changed.APIVersion(), changed.Applied())
		}
		sets[e.name()] = changed
		e.set = entries.known[e.name()].set
		entries.known[e.name()] = e
	}
	entries.limit()
	return nil
}

func orUnknown(manager string) string {
	if manager == "" {
		return "unknown"
	}
	return manager
}

func strip(sets fieldpath.ManagedFields, name string) {
	versioned, ok := sets[name]
	if !ok {
		return
	}
	kept := versioned.Set().Difference(never)
	if kept.Empty() {
		delete(sets, name)
	} else {
		sets[name] = fieldpath.NewVersionedSet(kept, versioned.APIVersion(), versioned.Applied())
	}
}

// limit joins the oldest entries of one version until there are no more than maxUpdaters.
func (m *managed) limit() {
	var updaters []string
	for name, versioned := range m.sets {
		if !versioned.Applied() {
			updaters = append(updaters, name)
		}
	}
	slices.SortFunc(updaters, func(a, b string) int {
		return strings.Compare(m.known[a].time+" "+a, m.known[b].time+" "+b)
	})
	first := map[string]string{}
	for i, left := 0, len(updaters); i < len(updaters) && left > maxUpdaters; i++ {
		name, versioned := updaters[i], m.sets[updaters[i]]
		version := string(versioned.APIVersion())
		other, seen := first[version]
		if !seen {
			first[version] = name
			continue
		}
		joined := entry{identity: identity{"ancient-changes", string(metav1.ManagedFieldsOperationUpdate), version, ""}, time: m.known[name].time}
		if _, ok := m.sets[joined.name()]; !ok {
			m.sets[joined.name()] = m.sets[other]
			delete(m.sets, other)
		}
		m.sets[joined.name()] = fieldpath.NewVersionedSet(versioned.Set().Union(m.sets[joined.name()].Set()), versioned.APIVersion(), false)
		delete(m.sets, name)
		m.known[joined.name()] = joined
		left--
	}
}

// Apply returns what applying an object under a field manager makes of the live one. It is the caller's.
func (m *Manager) Apply(live, patch value.Object, manager string, force bool, now string) (value.Object, error) {
	gvk := schema.FromAPIVersionAndKind(value.String(patch, "apiVersion"), value.String(patch, "kind"))
	if gvk.GroupVersion().String() != m.apiVersion || gvk.Kind != value.String(live, "kind") {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	if value.At(patch, "metadata", "managedFields") != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	entries := decode(value.List(live, "metadata", "managedFields"))
	if entries == nil {
		return nil, errors.New("failed to decode managed fields")
	}
	if len(entries.sets) == 0 {
		if err := m.update(m.empty, live, entries, "before-first-apply", now); err != nil {
			return nil, fmt.Errorf("failed to create manager for existing fields: %w", err)
		}
	}
	config, err := m.converter.typed(patch)
	if err != nil {
		return nil, fmt.Errorf("failed to create typed patch object (%s): %w", describe(patch), err)
	}
	e := entry{identity: identity{orUnknown(manager), string(metav1.ManagedFieldsOperationApply), "", m.subresource}}
	concerned, others := m.split(bare(live), patch, entries, e.name())
	was, err := m.converter.typed(concerned, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to create typed live object (%s): %w", describe(live), err)
	}
	before := entries.known[e.name()]
	m.forgetLast(entries, e.name(), config)
	merged, sets, err := m.updater.Apply(was, config, fieldpath.APIVersion(m.apiVersion), entries.sets, e.name(), force)
	if conflicts, ok := errors.AsType[merge.Conflicts](err); ok {
		return nil, entries.conflict(conflicts)
	}
	if err != nil {
		return nil, err
	}
	entries.sets = sets
	strip(sets, e.name())
	if e.set, e.time = before.set, before.time; merged != nil {
		e.time = now
	}
	entries.known[e.name()] = e
	result := bare(live)
	if merged != nil {
		if result, err = m.converter.untyped(merged); err != nil {
			return nil, err
		}
		result = value.Shallow(result)
		maps.Copy(result, others)
	}
	o := value.Copy(result)
	set(o, entries.encode(m.converter.Types))
	return o, nil
}

// forgetLast forgets what a manager applied before if it applies all of that again: nothing is to be removed then, which merge.Updater
// would find out slowly.
func (m *Manager) forgetLast(entries *managed, name string, config *typed.TypedValue) {
	last, ok := entries.sets[name]
	if !ok || string(last.APIVersion()) != m.apiVersion {
		return
	}
	wanted, err := config.ToFieldSet()
	if err != nil {
		return
	}
	if last.Set().Difference(wanted).Empty() {
		delete(entries.sets, name)
	}
}

func describe(o value.Object) string {
	meta := value.Map(o, "metadata")
	group, version, _ := strings.Cut(value.String(o, "apiVersion"), "/")
	if version == "" {
		group, version = "", group
	}
	return fmt.Sprintf("%s/%s; %s/%s, Kind=%s", value.String(meta, "namespace"), value.String(meta, "name"), group, version, value.String(o, "kind"))
}

// conflict is the error of an apply that would change fields of other managers.
func (m *managed) conflict(conflicts merge.Conflicts) error {
	conflicts = slices.Clone(conflicts)
	slices.SortFunc(conflicts, func(a, b merge.Conflict) int {
		return cmp.Or(cmp.Compare(m.describe(a.Manager), m.describe(b.Manager)), a.Path.Compare(b.Path))
	})
	causes := make([]metav1.StatusCause, len(conflicts))
	for i, c := range conflicts {
		causes[i] = metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + m.describe(c.Manager), Field: c.Path.String(),
		}
	}
	if len(conflicts) == 1 {
		return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with 1 conflict: %s: %v", causes[0].Message, conflicts[0].Path))
	}
	var lines []string
	for i, c := range conflicts {
		if i == 0 || conflicts[i-1].Manager != c.Manager {
			lines = append(lines, fmt.Sprintf("conflicts with %s:", m.describe(c.Manager)))
		}
		lines = append(lines, fmt.Sprintf("- %v", c.Path))
	}
	return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n")))
}

// describe names an entry for people.
func (m *managed) describe(name string) string {
	i := m.identity(name)
	text := fmt.Sprintf("%q", i.manager)
	if i.subresource != "" {
		text += fmt.Sprintf(" with subresource %q", i.subresource)
	}
	if i.operation == string(metav1.ManagedFieldsOperationUpdate) {
		text += " using " + i.apiVersion
	}
	return text
}
