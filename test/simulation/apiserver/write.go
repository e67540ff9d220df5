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

package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// write is a request that writes.
type write struct {
	server  *Server
	request Request
	target  target
	// verb is that of the journal.
	verb string
	dry  bool
	// validation says what happens to unknown fields: Strict, Warn or Ignore.
	validation string
	manager    string
	warnings   []string
	// deleting has the options of a deletion.
	deleting metav1.DeleteOptions
	// committed is what the write has stored, nil if it has stored nothing.
	committed *store.Object
}

func (s *Server) newWrite(r Request, t target) (*write, error) {
	w := &write{server: s, request: r, target: t, verb: t.verb, validation: metav1.FieldValidationWarn}
	for _, dry := range r.Query["dryRun"] {
		if dry != metav1.DryRunAll {
			kind := map[string]string{verbCreate: "CreateOptions", verbUpdate: "UpdateOptions", verbPatch: "PatchOptions"}[t.verb]
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", field.ErrorList{
				field.NotSupported(field.NewPath("dryRun"), r.Query["dryRun"], []string{metav1.DryRunAll}),
			})
		}
		w.dry = true
	}
	if r.Query.Has("force") && t.verb == verbPatch && !strings.HasPrefix(r.ContentType, string(types.ApplyYAMLPatchType)) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("force"), "may not be specified for non-apply patch"),
		})
	}
	if given := r.Query.Get("fieldValidation"); given != "" {
		w.validation = given
	}
	if w.manager = r.Query.Get("fieldManager"); w.manager == "" {
		w.manager, _, _ = strings.Cut(r.UserAgent, "/")
	}
	return w, nil
}

// normalize drops unknown fields, or refuses them, and sets defaults.
func (w *write) normalize(o value.Object) (value.Object, error) {
	o, unknown, err := w.target.version.Normalize(o, w.validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, err
	}
	return o, w.complain(unknown)
}

// complain warns of unknown fields, or returns an error about them.
func (w *write) complain(unknown []string) error {
	for i, path := range unknown {
		if !strings.Contains(path, "field ") {
			unknown[i] = fmt.Sprintf("unknown field %q", path)
		}
	}
	if w.validation == metav1.FieldValidationStrict && len(unknown) > 0 {
		return fmt.Errorf("strict decoding error: %s", strings.Join(unknown, ", "))
	}
	w.warnings = append(w.warnings, unknown...)
	return nil
}

// body decodes the object that a request has.
func (w *write) body() (value.Object, error) {
	v := w.target.version
	o, err := decodeBody(w.request, v)
	if err != nil {
		return nil, err
	}
	if value.String(o, "apiVersion") != v.APIVersion() && (v.Kind.Custom || o["apiVersion"] != nil) || v.Kind.Custom && value.String(o, "kind") == "" {
		return nil, apierrors.NewBadRequest("the object does not say what it is, or is in another version than the path")
	}
	o["apiVersion"] = v.APIVersion()
	if o["kind"] == nil {
		o["kind"] = v.Kind.Kind
	}
	if o, err = w.normalize(o); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", v.Kind.Kind, v.Name, v.Kind.Kind, err))
	}
	if value.Map(o, "metadata") == nil {
		o["metadata"] = value.Object{}
	}
	return o, w.checkNamespace(o)
}

// invalid is the error of an object that its kind does not accept.
func (w *write) invalid(o value.Object, errs field.ErrorList) error {
	gk := schema.GroupKind{Group: w.target.kind().Group, Kind: value.String(o, "kind")}
	return apierrors.NewInvalid(gk, value.String(o, "metadata", "name"), errs)
}

// metadataOf returns the metadata of an object, which every normal object has.
func metadataOf(o value.Object) value.Object {
	meta := value.Map(o, "metadata")
	if meta == nil {
		meta = value.Object{}
		o["metadata"] = meta
	}
	return meta
}

// checkNamespace sets the namespace of an object, or says that it is another one than that of the request.
func (w *write) checkNamespace(o value.Object) error {
	meta := metadataOf(o)
	switch namespace := value.String(meta, "namespace"); {
	case namespace == w.target.namespace:
		return nil
	case namespace == "":
		meta["namespace"] = w.target.namespace
		return nil
	case w.target.namespace == "":
		delete(meta, "namespace")
		return nil
	}
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

func (w *write) create() Response {
	o, err := w.body()
	if err != nil {
		return w.respond(nil, 0, err)
	}
	return w.respond(w.insert(o, nil))
}

// insert creates an object. Admission is asked about it unless it was already. It returns the object in the version of the request.
func (w *write) insert(o, managed value.Object) (value.Object, int, error) {
	v, meta := w.target.version, metadataOf(o)
	if managed == nil {
		for _, name := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
			delete(meta, name)
		}
		o = v.Owned(w.target.subresource, v.Empty(), o, w.manager, w.server.options.Now())
	}
	o, err := w.admit(o, nil)
	if err != nil {
		return nil, 0, err
	}
	meta = metadataOf(o)
	if given := value.String(meta, "resourceVersion"); managed == nil && given != "" && given != "0" {
		return nil, 0, errors.New("resourceVersion should not be set on objects to be created")
	}
	delete(meta, "resourceVersion")
	meta["uid"], meta["creationTimestamp"] = w.server.nextUID(), w.server.now()
	warnings, errs := v.Create(o)
	if len(errs) > 0 {
		return nil, 0, w.invalid(o, errs)
	}
	w.warnings = append(w.warnings, warnings...)
	key := store.Key{Namespace: w.target.namespace, Name: value.String(o, "metadata", "name")}
	if present := w.server.table(v.Kind).Get(key); present != nil {
		return nil, 0, w.alreadyExists(o, present)
	}
	if w.dry {
		return o, http.StatusCreated, nil
	}
	return w.commit(nil, o), http.StatusCreated, nil
}

func (w *write) alreadyExists(o value.Object, present *store.Object) error {
	name := value.String(o, "metadata", "name")
	exists := apierrors.NewAlreadyExists(w.target.kind().GroupResource(), name)
	if present.Deleting {
		exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
	}
	return exists
}

// admit asks about a write; old is nil for a creation, o for a deletion.
func (w *write) admit(o, old value.Object) (value.Object, error) {
	a := Admission{Attributes: w.target.attributes(w.request.User), Operation: "UPDATE"}
	switch {
	case o == nil:
		a.Operation = "DELETE"
	case old == nil:
		a.Operation = "CREATE"
		if err := w.checkLifecycle(o); err != nil {
			return nil, err
		}
	}
	if w.server.options.Admit == nil {
		return o, nil
	}
	a.Object, a.Old = o, old
	if o != nil {
		a.Name = value.String(o, "metadata", "name")
	}
	result := w.server.options.Admit(a)
	if result.Denied != "" {
		denied := apierrors.NewForbidden(w.target.kind().GroupResource(), a.Name, errors.New(result.Denied))
		denied.ErrStatus.Details.Causes = append(denied.ErrStatus.Details.Causes, metav1.StatusCause{Message: result.Denied})
		return nil, denied
	}
	if result.Name != "" && a.Operation == "CREATE" {
		metadataOf(o)["name"] = result.Name
	}
	if result.Object == nil || o == nil {
		return o, nil
	}
	changed, err := value.Decode(result.Object)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("decoding what admission returned: %w", err))
	}
	changed, _, err = w.target.version.Normalize(changed, false)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("decoding what admission returned: %w", err))
	}
	return changed, nil
}

// checkLifecycle refuses objects in namespaces that do not exist, and objects of definitions that are deleted.
func (w *write) checkLifecycle(o value.Object) error {
	k, name := w.target.kind(), value.String(o, "metadata", "name")
	if k.Custom && w.server.definitionEnding(k) {
		return apierrors.NewForbidden(k.GroupResource(), name, errors.New("create not allowed while custom resource definition is terminating"))
	}
	if w.target.namespace == "" {
		return nil
	}
	namespace := w.server.store.Table(namespaces).Get(store.Key{Name: w.target.namespace})
	if namespace == nil {
		return apierrors.NewNotFound(namespaces, w.target.namespace)
	}
	return nil
}

var namespaces = schema.GroupResource{Resource: "namespaces"}

// respond is the response to a write.
func (w *write) respond(o value.Object, code int, err error) Response {
	r := Response{Code: code, ContentType: jsonType}
	if err != nil {
		r = failure(err)
	} else if f := formOf(w.request, w.target.version); w.committed != nil {
		r.Body = w.server.bytes(w.committed, f)
	} else {
		r.Body = f.encode(o)
	}
	r.Warnings = w.warnings
	return r
}

// commit stores an object, and returns it in the version of the request. Old is nil for a creation.
func (w *write) commit(old *store.Object, o value.Object) value.Object {
	w.committed = w.server.commit(w.change(w.target.version, old, o))
	return w.server.view(w.committed, w.target.version)
}

// change describes a write that is to be done.
func (w *write) change(v *kinds.Version, old *store.Object, o value.Object) change {
	return change{
		version: v, old: old, object: o,
		entry: Write{User: w.request.User, Manager: w.manager, Verb: w.verb, Subresource: w.target.subresource},
	}
}

// change is a write that is to be done.
type change struct {
	// version is that of object.
	version *kinds.Version
	// old is nil for a creation.
	old *store.Object
	// object is what is to be stored, nil for a deletion.
	object value.Object
	// entry has who wrote and why.
	entry Write
}

// commit does a write, and returns the object as it is stored, for a deletion as it was. A write that would change nothing is not done.
func (s *Server) commit(c change) *store.Object {
	k := c.version.Kind
	if c.object == nil {
		return s.remove(c)
	}
	stored := c.version.Convert(c.object, k.Storage)
	if k.Custom {
		value.Settle(stored)
	}
	if c.old != nil && unchanged(stored, c.old.Content) {
		return c.old
	}
	revision := s.store.Next()
	stored = withRevision(stored, revision)
	o := newObject(stored, revision)
	if c.version == k.Storage {
		// What was written in another version gets the defaults of this one when it is read.
		o.Memo(k.Storage, func() any { return stored })
	}
	s.record(c, k, o)
	s.table(k).Put(o)
	s.followUp(k, c.old, o)
	return o
}

func (s *Server) remove(c change) *store.Object {
	k := c.version.Kind
	revision := s.store.Next()
	last := newObject(withRevision(s.view(c.old, k.Storage), revision), revision)
	last.Memo(k.Storage, func() any { return last.Content })
	s.record(c, k, nil)
	s.journal[len(s.journal)-1].Revision = revision
	s.table(k).Delete(last)
	s.followUp(k, c.old, nil)
	return last
}

// unchanged reports whether a write would change nothing.
func unchanged(o, stored value.Object) bool {
	if len(o) != len(stored) {
		return false
	}
	for key, inner := range o {
		if key != metadataField && !value.Equal(inner, stored[key]) {
			return false
		}
	}
	meta, was := value.Shallow(value.Map(o, "metadata")), value.Map(stored, "metadata")
	meta["resourceVersion"] = was["resourceVersion"]
	return value.Equal(meta, was)
}

// withRevision returns an object that has a revision as its resourceVersion. It shares everything else.
func withRevision(o value.Object, revision int64) value.Object {
	o = value.Shallow(o)
	meta := value.Shallow(value.Map(o, "metadata"))
	meta["resourceVersion"] = text(revision)
	o["metadata"] = meta
	return o
}

func newObject(content value.Object, revision int64) *store.Object {
	meta := value.Map(content, "metadata")
	o := &store.Object{
		Key:      store.Key{Namespace: value.String(meta, "namespace"), Name: value.String(meta, "name")},
		UID:      value.String(meta, "uid"),
		Deleting: meta["deletionTimestamp"] != nil, Owned: meta["ownerReferences"] != nil,
		Revision: revision, Content: content,
	}
	if labels := value.Map(meta, "labels"); len(labels) > 0 {
		o.Labels = make(map[string]string, len(labels))
		for k, v := range labels {
			o.Labels[k], _ = v.(string)
		}
	}
	return o
}

// record adds a write to the journal.
func (s *Server) record(c change, k *kinds.Kind, after *store.Object) {
	e, named := c.entry, after
	if named == nil {
		named = c.old
	}
	e.Revision, e.At = named.Revision, s.options.Now()
	e.Group, e.Resource, e.Namespace, e.Name, e.UID = k.Group, k.Plural, named.Namespace, named.Name, named.UID
	if c.old != nil {
		e.Before = s.view(c.old, k.Storage)
	}
	if after != nil {
		e.After = s.view(after, k.Storage)
	}
	s.journal = append(s.journal, e)
}
