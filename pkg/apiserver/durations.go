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
	"bytes"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
)

// A duration such as 1d, which the schema of Metacontroller's CRDs admitted (docs/reference/contract.md#s1.5), does not decode, and neither
// the decoder of JSON nor the conversion of an applied object knows in which field it was. The two wrappers here do.

// durationNaming decodes objects with errors that name the field.
type durationNaming struct {
	runtime.Decoder
}

// Decode decodes data.
func (d durationNaming) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		if bad := validation.MalformedDurations(data); len(bad) > 0 {
			err = bad.ToAggregate()
		}
	}
	return object, gvk, err
}

// nameDurations answers server-side apply of a controller with bad durations, and passes on everything else: ControllerRevisions have fields of
// other kinds. A body of more than limit bytes is not looked at: it is refused further on.
func nameDurations(next http.Handler, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(r.Context())
		if !ok || info.APIGroup != v1alpha1.GroupName || info.Resource == "controllerrevisions" || !isApply(r) {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
		if bad := validation.MalformedDurations(body); err == nil && len(bad) > 0 {
			invalid := apierrors.NewInvalid(schema.GroupKind{Group: info.APIGroup, Kind: info.Resource}, info.Name, bad)
			gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			responsewriters.ErrorNegotiated(invalid, Codecs, gv, w, r)
			return
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

func isApply(r *http.Request) bool {
	if r.Method != http.MethodPatch {
		return false
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && types.PatchType(media) == types.ApplyYAMLPatchType
}
