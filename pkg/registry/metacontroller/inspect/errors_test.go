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

package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// slow is an engine whose requests take as long as they may, or fail.
type slow struct {
	engine

	fails error
}

func (s *slow) Controller(string, string, types.UID) (inspection.Controller, error) { return s, nil }

func (s *slow) Requests(ctx context.Context, _ v1alpha1.ParentReference, _ inspection.RequestOptions) ([]v1alpha1.HookRequest, []inspection.Place, error) {
	if s.fails != nil {
		return nil, nil, s.fails
	}
	<-ctx.Done()
	return nil, nil, errors.New("customize hook failed: " + ctx.Err().Error())
}

func TestWhoseFaultARequestIs(t *testing.T) {
	for name, test := range map[string]struct {
		hook  string
		fails error
		code  int32
		took  time.Duration
		// says is the end of the message, empty for any.
		says string
	}{
		"a slow hook":       {code: http.StatusGatewayTimeout, took: workLimit},
		"a hook that fails": {fails: errors.New("customize hook failed"), code: http.StatusConflict},
		"bodies that are too large": {
			fails: fmt.Errorf("%w: they have more than 32 MiB", inspection.ErrTooLarge),
			code:  http.StatusRequestEntityTooLarge, says: `the requests about things.example.com "a" cannot be shown: the requests are too large: they have ` +
				`more than 32 MiB; ask for those of one hook: hook= one of ["sync" "finalize" "customize"]`,
		},
		"bodies of one hook that are too large": {
			hook: "sync", fails: fmt.Errorf("%w: they have more than 32 MiB", inspection.ErrTooLarge),
			code: http.StatusRequestEntityTooLarge, says: "they have more than 32 MiB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &slow{engine: engine{parents: []inspection.Parent{thing("one", "a")}}, fails: test.fails}
				s, ctx := scene(t, e, &reviews{allowed: []string{"get things", "get secrets"}})
				begun := time.Now()
				_, err := (&RequestREST{s}).Get(ctx, "c", &v1alpha1.HookRequestOptions{Namespace: "one", Name: "a", Hook: test.hook})
				expectStatus(t, err, test.code)
				if !strings.HasSuffix(err.Error(), test.says) {
					t.Errorf("the error is %v, want one that ends with %q", err, test.says)
				}
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
			})
		})
	}
}

func TestAParentThatIsNotThere(t *testing.T) {
	for name, test := range map[string]struct {
		options v1alpha1.HookRequestOptions
		code    int32
		says    string
	}{
		"no such name":                      {v1alpha1.HookRequestOptions{Namespace: "one", Name: "nobody"}, http.StatusNotFound, `the controller has no parent "one/nobody" among things.example.com`},
		"no such name of a resource":        {v1alpha1.HookRequestOptions{Namespace: "one", Name: "nobody", Resource: "things.example.com"}, http.StatusNotFound, `the controller has no parent "one/nobody" among things.example.com`},
		"no namespace":                      {v1alpha1.HookRequestOptions{Name: "a"}, http.StatusNotFound, `the controller has no parent "a" among things.example.com`},
		"a resource that it has no parents": {v1alpha1.HookRequestOptions{Namespace: "one", Name: "a", Resource: "thing"}, http.StatusBadRequest, `no parents of the resource "thing"; it has those of ["things.example.com"]`},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := scene(t, &engine{parents: []inspection.Parent{thing("one", "a")}}, &reviews{allowed: []string{"get things", "get secrets"}})
			_, err := (&RequestREST{s}).Get(ctx, "c", &test.options)
			expectStatus(t, err, test.code)
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want %q", err, test.says)
			}
		})
	}
}

// expectStatus checks the code of an error, and that no client repeats the request because of it.
func expectStatus(t *testing.T, err error, code int32) {
	t.Helper()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.Status().Code != code {
		t.Fatalf("got %v, want the status %d", err, code)
	}
	if details := status.Status().Details; details != nil && details.RetryAfterSeconds != 0 {
		t.Errorf("clients repeat it after %d seconds", details.RetryAfterSeconds)
	}
}

func TestWhoseFaultItIsThatACandidateCannotRun(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, end := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer end()
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		code int32
	}{
		"a definition that must be changed": {t.Context(), errors.New("no hooks defined; set spec.hooks.sync"), http.StatusBadRequest},
		"a kind that is not served":         {t.Context(), errors.New("parent resource: discovery: can't find resource foos"), http.StatusBadRequest},
		"a cluster that refuses": {
			t.Context(), fmt.Errorf("parent resource: %w", apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("not you"))), http.StatusServiceUnavailable,
		},
		"a cluster that fails": {t.Context(), fmt.Errorf("parent resource: %w", apierrors.NewInternalError(errors.New("etcd"))), http.StatusServiceUnavailable},
		"a cluster that is not there": {
			t.Context(), fmt.Errorf("parent resource: %w", &url.Error{Op: "Get", URL: "https://cluster/api/v1", Err: syscall.ECONNREFUSED}), http.StatusServiceUnavailable,
		},
		"caches that do not fill in time": {late, fmt.Errorf("filling the caches of the candidate: %w", context.DeadlineExceeded), http.StatusGatewayTimeout},
		"a caller who has gone":           {ended, fmt.Errorf("filling the caches of the candidate: %w", context.Canceled), http.StatusInternalServerError},
		"a panic":                         {t.Context(), &recovery.PanicError{What: "asking for kinds", Value: "boom"}, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			err := candidateError(test.ctx, test.err)
			expectStatus(t, err, test.code)
			if !strings.Contains(err.Error(), test.err.Error()) {
				t.Errorf("%q does not say %q", err, test.err)
			}
		})
	}
}
