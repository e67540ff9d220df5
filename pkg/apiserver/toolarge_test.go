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
	"net/http"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/storage"

	internal "github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// TestWhatIsTooLargeForEtcdIsToldAsSuch has objects around the limit of a request's body, which is that of etcd's values.
func TestWhatIsTooLargeForEtcdIsToldAsSuch(t *testing.T) {
	const limit = 3 << 19
	s := newOutageStorage(stored(t), Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	for name, tc := range map[string]struct {
		bytes int
		large bool
	}{
		"as large as a body may be":          {limit - 100, false},
		"a larger one, with what is added":   {limit + 100<<10, false},
		"more than the client of etcd takes": {2<<20 + 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("mine", strings.Repeat("x", tc.bytes))
			o.Name = "large"
			err := s.Create(t.Context(), at+strings.ReplaceAll(name, " ", ""), o, &internal.CompositeController{}, 0)
			if !tc.large {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if got := responsewriters.ErrorToAPIStatus(err); got.Code != http.StatusRequestEntityTooLarge || !strings.Contains(got.Message, "--max-request-bytes") {
				t.Errorf("got %d %q, want 413", got.Code, got.Message)
			}
		})
	}
}

// TestWhatIsTooLargeIsRecognizedByTheGenericServer is about isTooLargeError of its handlers, after which it patches without managed fields.
func TestWhatIsTooLargeIsRecognizedByTheGenericServer(t *testing.T) {
	for name, err := range map[string]error{
		"etcd":       rpctypes.ErrRequestTooLarge,
		"its client": status.Error(codes.ResourceExhausted, "trying to send message larger than max (2097252 vs. 2097152)"),
	} {
		got := broken(t, err).Create(t.Context(), "", &internal.CompositeController{}, nil, 0)
		//nolint:errorlint // It looks at the error itself.
		seen, ok := got.(interface {
			error
			Code() codes.Code
		})
		if !ok || seen.Code() != codes.InvalidArgument || seen.Error() != "etcdserver: request is too large" {
			t.Errorf("%s: got %v", name, got)
		}
		if !apierrors.IsRequestEntityTooLargeError(got) {
			t.Errorf("%s: %v is not told as too large", name, got)
		}
	}
	if got := broken(t, storage.NewKeyNotFoundError("key", 1)).Create(t.Context(), "", &internal.CompositeController{}, nil, 0); apierrors.IsRequestEntityTooLargeError(got) {
		t.Errorf("%v is told as too large", got)
	}
}
