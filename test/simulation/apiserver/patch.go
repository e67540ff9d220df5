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
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// decodeBody decodes the object that a request has, which is JSON.
func decodeBody(r Request, v *kinds.Version) (value.Object, error) {
	media, _, _ := mime.ParseMediaType(r.ContentType)
	if media != "" && media != jsonType {
		return nil, unsupported([]string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}, v)
	}
	o, err := value.Decode(r.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("couldn't get version/kind; json parse error: %v", err))
	}
	return o, nil
}

func unsupported(types []string, v *kinds.Version) error {
	if v.Kind.Custom {
		types = slices.DeleteFunc(types, func(t string) bool { return strings.Contains(t, "protobuf") || strings.Contains(t, "strategic") })
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s", strings.Join(types, ", ")),
	}}
}

// put replaces an object.
func (w *write) put() Response {
	o, err := w.body()
	if err != nil {
		return w.respond(nil, 0, err)
	}
	if err := w.checkName(o); err != nil {
		return failure(err)
	}
	existing := w.existing()
	if uid := value.String(o, "metadata", "uid"); uid != "" && (existing != nil && existing.UID != uid) {
		return failure(apierrors.NewConflict(w.target.kind().GroupResource(), w.target.name,
			fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v",
				w.key(), uid, existing.UID)))
	}
	if existing == nil {
		return failure(w.server.notFound(w.target))
	}
	v := w.target.version
	live := w.server.view(existing, v)
	o = v.Owned(w.target.subresource, live, o, w.manager, w.server.options.Now())
	return w.respond(w.replace(existing, live, o))
}

// key returns the key under which kube-apiserver stores the object in etcd.
func (w *write) key() string {
	k := w.target.kind()
	path := store.Key{Namespace: w.target.namespace, Name: w.target.name}.Path()
	if k.Custom || k.GroupResource() == definitions {
		return "/registry/" + k.Group + "/" + k.Plural + "/" + path
	}
	return "/registry/" + k.Plural + "/" + path
}

func (w *write) existing() *store.Object {
	return w.server.table(w.target.kind()).Get(store.Key{Namespace: w.target.namespace, Name: w.target.name})
}

func (w *write) checkName(o value.Object) error {
	if name := value.String(o, "metadata", "name"); name != w.target.name {
		if name == "" {
			return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", w.target.name))
		}
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, w.target.name))
	}
	return nil
}

// replace writes what an object is to become.
func (w *write) replace(existing *store.Object, live, o value.Object) (value.Object, int, error) {
	v := w.target.version
	o, err := w.admit(o, live)
	if err != nil {
		return nil, 0, err
	}
	if err := w.checkRevision(existing, o); err != nil {
		return nil, 0, err
	}
	meta := metadataOf(o)
	setOrDelete(meta, "generation", value.At(live, "metadata", "generation"))
	was := value.Map(live, "metadata")
	for _, name := range []string{"creationTimestamp", "deletionTimestamp"} {
		if was[name] != nil {
			meta[name] = was[name]
		}
	}
	if meta["deletionGracePeriodSeconds"] == nil {
		setOrDelete(meta, "deletionGracePeriodSeconds", was["deletionGracePeriodSeconds"])
	}
	if meta["uid"] == nil {
		meta["uid"] = was["uid"]
	}
	meta["resourceVersion"] = was["resourceVersion"]
	warnings, errs := v.Update(w.target.subresource, o, live)
	if len(errs) > 0 {
		return nil, 0, w.invalid(o, errs)
	}
	w.warnings = append(w.warnings, warnings...)
	kinds.KeepTimes(o, live)
	return w.finish(existing, o)
}

// finish stores an object that was changed, or deletes it if it was waiting for its last finalizer.
func (w *write) finish(existing *store.Object, o value.Object) (value.Object, int, error) {
	v := w.target.version
	if w.dry {
		return o, http.StatusOK, nil
	}
	meta := value.Map(existing.Content, "metadata")
	emptied := meta["deletionTimestamp"] != nil && len(value.List(o, "metadata", "finalizers")) == 0 && value.Int(meta, "deletionGracePeriodSeconds") == 0
	if emptied {
		w.server.commit(w.change(v, existing, nil))
		return o, http.StatusOK, nil
	}
	return w.commit(existing, o), http.StatusOK, nil
}

func setOrDelete(o value.Object, name string, v any) {
	if v == nil {
		delete(o, name)
	} else {
		o[name] = v
	}
}

// checkRevision refuses a write on an older state than the present one.
func (w *write) checkRevision(existing *store.Object, o value.Object) error {
	resource := w.target.kind().GroupResource()
	switch given := value.String(o, "metadata", "resourceVersion"); {
	case given == text(existing.Revision):
		return nil
	case given == "" || given == "0":
		if w.target.kind().Unconditional {
			return nil
		}
		return apierrors.NewInvalid(schema.GroupKind{Group: resource.Group, Kind: resource.Resource}, w.target.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
		})
	}
	return apierrors.NewConflict(resource, w.target.name,
		errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// patch changes an object by a patch of one of the four types.
func (w *write) patch() Response {
	media, _, _ := mime.ParseMediaType(w.request.ContentType)
	kind, existing := types.PatchType(media), w.existing()
	v := w.target.version
	switch kind {
	case types.ApplyYAMLPatchType:
		w.verb = "apply"
		return w.apply(existing)
	case types.JSONPatchType, types.MergePatchType:
	case types.StrategicMergePatchType:
		if v.Kind.Custom {
			return failure(unsupportedPatch(v))
		}
	default:
		return failure(unsupportedPatch(v))
	}
	if existing == nil {
		return failure(w.server.notFound(w.target))
	}
	live := w.server.view(existing, v)
	o, err := w.patched(kind, existing, live)
	if err != nil {
		return failure(err)
	}
	if err := w.checkPatched(o); err != nil {
		return failure(err)
	}
	o = v.Owned(w.target.subresource, live, o, w.manager, w.server.options.Now())
	return w.respond(w.replace(existing, live, o))
}

func unsupportedPatch(v *kinds.Version) error {
	if !v.Kind.Custom {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "415: Unsupported Media Type", Details: &metav1.StatusDetails{},
		}}
	}
	return unsupported([]string{
		string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType),
	}, v)
}

func (w *write) checkPatched(o value.Object) error {
	if err := w.checkNamespace(o); err != nil {
		return err
	}
	return w.checkName(o)
}

// patched returns what a patch makes of an object.
func (w *write) patched(kind types.PatchType, existing *store.Object, live value.Object) (value.Object, error) {
	if kind != types.JSONPatchType {
		// A strategic merge patch is that of an event, whose fields are texts and numbers: for these it is the same.
		return w.merged(live)
	}
	after, err := applyJSONPatch(w.server.encoded(existing, w.target.version), w.request.Body)
	if err != nil {
		return nil, err
	}
	o, err := value.Decode(after)
	if err != nil {
		return nil, err
	}
	return w.normalizePatched(o)
}

func (w *write) normalizePatched(o value.Object) (value.Object, error) {
	text := string(value.Encode(o))
	normal, err := w.normalize(o)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), text, err.Error())})
	}
	return normal, nil
}

// merged returns what a merge patch makes of an object.
func (w *write) merged(live value.Object) (value.Object, error) {
	var patch map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(w.request.Body, &patch); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	o := value.Copy(live)
	merge(o, patch)
	return w.normalizePatched(o)
}

// merge applies a merge patch (RFC 7386).
func merge(o, patch value.Object) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(o, k)
		case value.Object:
			into, ok := o[k].(value.Object)
			if !ok {
				into = value.Object{}
				o[k] = into
			}
			merge(into, v)
		default:
			o[k] = v
		}
	}
}

func applyJSONPatch(before, patch []byte) ([]byte, error) {
	var operations []json.RawMessage
	if err := json.Unmarshal(patch, &operations); err != nil {
		message := strings.ReplaceAll(err.Error(), "[]json.RawMessage", "[]handlers.jsonPatchOp")
		return nil, apierrors.NewBadRequest("error decoding patch: " + message)
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return after, nil
}

// apply applies an object under a field manager.
func (w *write) apply(existing *store.Object) Response {
	if w.request.Query.Get("fieldManager") == "" {
		return failure(apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", field.ErrorList{
			field.Required(field.NewPath("fieldManager"), "is required for apply patch"),
		}))
	}
	patch, err := value.Decode(w.request.Body)
	if err != nil {
		return failure(apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err)))
	}
	v := w.target.version
	live := v.Empty()
	if existing != nil {
		live = w.server.view(existing, v)
	}
	o, err := v.Applied(w.target.subresource, live, patch, w.manager, w.request.Query.Get("force") == isTrue, w.server.options.Now())
	if err != nil {
		return failure(err)
	}
	if existing == nil && value.String(o, "metadata", "uid") != "" {
		return failure(apierrors.NewConflict(v.Kind.GroupResource(), w.target.name, fmt.Errorf(
			"uid mismatch: the provided object specified uid %s, and no existing object was found", value.String(o, "metadata", "uid"))))
	}
	if err := w.checkPatched(o); err != nil {
		return failure(err)
	}
	if existing == nil {
		if w.target.subresource != "" {
			return failure(w.server.notFound(w.target))
		}
		return w.respond(w.insert(o, o))
	}
	return w.respond(w.replace(existing, live, o))
}
