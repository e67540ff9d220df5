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
	"bytes"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

func TestGivenResponsesAreCheckedBeforeAnyHookIsCalled(t *testing.T) {
	of := func(p inspection.Parent, hook string) v1alpha1.GivenResponse {
		return v1alpha1.GivenResponse{ParentReference: p.ParentReference, Hook: hook, Body: runtime.RawExtension{Raw: []byte("{}")}}
	}
	known := thing("one", "a")
	elsewhere := thing("one", "a")
	elsewhere.Group = ""
	former := of(known, "sync")
	former.Revision = "former"
	writing := []string{"create secrets one", "update secrets one", "patch secrets one"}
	given := func(responses ...v1alpha1.GivenResponse) v1alpha1.ControllerPlanSpec {
		return v1alpha1.ControllerPlanSpec{Responses: responses}
	}
	for name, tc := range map[string]struct {
		spec    v1alpha1.ControllerPlanSpec
		allowed []string
		refused string
	}{
		"a response":                      {given(of(known, "sync")), writing, ""},
		"responses to several requests":   {given(of(known, "sync"), former, of(known, "finalize"), of(known, "customize")), writing, ""},
		"a second response":               {given(of(known, "sync"), former, of(known, "sync")), writing, `responses[2]: responses[0] is one of the sync hook about things.example.com one/a with the revision ""`},
		"by who may write everywhere":     {given(of(known, "sync")), []string{"create secrets", "update secrets", "patch secrets"}, ""},
		"by who may write somewhere":      {given(of(known, "sync")), []string{"create secrets", "update secrets one", "patch secrets"}, ""},
		"by who may write elsewhere":      {given(of(known, "sync")), []string{"create secrets two", "update secrets two", "patch secrets two"}, `user "jane" may not create secrets in namespace one`},
		"by who may not write":            {given(of(known, "finalize")), nil, `things.example.com "a" is forbidden`},
		"rules by who may not write":      {given(of(known, "customize")), nil, ""},
		"a hook that is none":             {given(of(known, "Sync")), nil, `responses[0].hook: "Sync" is none of`},
		"a parent that is none":           {given(of(known, "sync"), of(thing("one", "b"), "sync")), nil, "responses[1]: things.example.com one/b is none of"},
		"a parent of another group":       {given(of(elsewhere, "sync")), nil, "responses[0]: things one/a is none of"},
		"a parent that is not selected":   {v1alpha1.ControllerPlanSpec{Parents: &v1alpha1.ParentSelection{Namespace: "one", Name: "c"}, Responses: []v1alpha1.GivenResponse{of(known, "sync")}}, nil, "is none of the parents that are selected"},
		"a parent that is hidden":         {given(of(thing("two", "a"), "sync")), nil, "is none of the parents that are selected"},
		"a dry run without writes":        {v1alpha1.ControllerPlanSpec{DryRun: true}, nil, ""},
		"a dry run of given children":     {v1alpha1.ControllerPlanSpec{DryRun: true, Responses: []v1alpha1.GivenResponse{of(known, "sync")}}, writing, ""},
		"a dry run by who may not update": {v1alpha1.ControllerPlanSpec{DryRun: true, Responses: []v1alpha1.GivenResponse{of(known, "sync")}}, writing[:1], `user "jane" may not update secrets in namespace one`},
		"a resource that no parent has":   {v1alpha1.ControllerPlanSpec{Parents: &v1alpha1.ParentSelection{Resource: "things"}}, nil, `no parents of the resource "things"; it has those of ["things.example.com"]`},
	} {
		t.Run(name, func(t *testing.T) {
			e := &engine{parents: []inspection.Parent{known, thing("two", "a")}}
			s, ctx := scene(t, e, &reviews{allowed: append([]string{"get things one", "get secrets one"}, tc.allowed...)})
			_, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: tc.spec}, nil, nil)
			switch refusal := apierrors.IsBadRequest(err) || apierrors.IsForbidden(err); {
			case tc.refused == "" && err != nil:
				t.Error(err)
			case tc.refused != "" && (!refusal || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("the error is %v, want %q", err, tc.refused)
			}
		})
	}
}

// Nobody checks what the published schema says, and each response may name the same parent.
func TestResponsesAreBounded(t *testing.T) {
	r := &reviews{allowed: []string{"get things", "get secrets"}}
	var all []inspection.Parent
	var given []v1alpha1.GivenResponse
	for _, namespace := range []string{"one", "two"} {
		for _, verb := range writes {
			r.allowed = append(r.allowed, verb+" secrets "+namespace)
		}
		for i := range maxResponses / 2 {
			p := thing(namespace, fmt.Sprint("p", i))
			all = append(all, p)
			given = append(given, v1alpha1.GivenResponse{ParentReference: p.ParentReference, Hook: "sync"})
		}
	}
	s, ctx := scene(t, &engine{parents: all}, r)
	create := func() error {
		_, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Limit: 1, Responses: given}}, nil, nil)
		return err
	}
	if err := create(); err != nil {
		t.Error(err)
	}
	// The parents and the children, and each verb in all namespaces and in both.
	if want := 2 + 3*len(writes); r.asked != want {
		t.Errorf("%d reviews were made, want %d", r.asked, want)
	}
	given = append(given, given[0])
	if err := create(); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "responses: 2001 are given, and at most 2000 may be") {
		t.Errorf("one more than there may be: %v", err)
	}
}

func TestAPartOfAPlanEndsWhereItIsLarge(t *testing.T) {
	var all []inspection.Parent
	for i := range 10 {
		all = append(all, thing("ns", fmt.Sprint("p", i)))
	}
	for name, tc := range map[string]struct {
		object int
		parts  string
		failed bool
	}{
		"small":                       {1 << 10, "10", false},
		"as large as a part together": {partSize / 5, "8 2", false},
		"each as large as a part":     {partSize, "4 4 2", false},
		"each too large":              {planSize + 1, "10", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := &engine{parents: all, object: bytes.Repeat([]byte(" "), tc.object)}
			s, ctx := scene(t, e, &reviews{allowed: []string{"get things", "get secrets"}})
			var parts []string
			for next := ""; ; {
				o, err := (&PlanREST{s}).Create(ctx, "c", &v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Continue: next}}, nil, nil)
				part, ok := o.(*v1alpha1.ControllerPlan)
				if err != nil || !ok {
					t.Fatal(err)
				}
				parts = append(parts, fmt.Sprint(len(part.Status.Parents)))
				for i := range part.Status.Parents {
					if p := &part.Status.Parents[i]; tc.failed != (p.Children == nil && strings.Contains(p.Error, "32 MiB, and at most 32")) {
						t.Errorf("%s: %d children, error %q", p.Name, len(p.Children), p.Error)
					}
				}
				if next = part.Status.Continue; next == "" {
					break
				}
			}
			if got := strings.Join(parts, " "); got != tc.parts {
				t.Errorf("the parts have %s parents, want %s", got, tc.parts)
			}
		})
	}
}

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

func (e *engine) Rollback(_ context.Context, _ v1alpha1.ParentReference, o inspection.RollbackOptions) (v1alpha1.ControllerRollbackStatus, error) {
	e.rolledBack = append(e.rolledBack, o)
	return v1alpha1.ControllerRollbackStatus{Revision: "former", ResourceVersion: "8"}, e.refuses
}

func TestWhoMayUpdateAParentRollsItBack(t *testing.T) {
	role := inspection.Parent{ParentReference: v1alpha1.ParentReference{Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: "one", Name: "r"}}
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	for name, tc := range map[string]struct {
		reason  string
		parent  string
		allowed []string
		refuses error
		is      func(error) bool
		says    string
	}{
		"both rights":     {"It is shown and written.", "a", []string{"get things one", "update things one"}, nil, func(err error) bool { return err == nil }, ""},
		"no right to see": {"What changes is shown.", "a", []string{"update things one"}, nil, apierrors.IsForbidden, "get things.example.com"},
		"no right to update": {
			"The server must not write for who may not.", "a",
			[]string{"get things", "update things two"},
			nil, apierrors.IsForbidden,
			`user "jane" may not update things.example.com in namespace "one"`,
		},
		"a parent that gives rights": {
			"An API server asks for more of who writes it.", "r", []string{"get roles", "update roles one"}, nil, apierrors.IsForbidden, "may not escalate roles",
		},
		"a parent that gives rights that the caller may give": {
			"He could write it himself.", "r", []string{"get roles", "update roles one", "escalate roles one"}, nil, func(err error) bool { return err == nil }, "",
		},
		"no such parent": {"", "nobody", []string{"get things", "get roles", "update things"}, nil, apierrors.IsNotFound, `no parent "one/nobody" among things.example.com`},
		"no name":        {"", "", nil, nil, apierrors.IsBadRequest, "spec.name"},
		"no such revision": {
			"It is told from a parent that is missing.", "a",
			[]string{"get things", "update things one"},
			fmt.Errorf("%w: none is kept", inspection.ErrNoRevision),
			apierrors.IsNotFound, `things.example.com "a" cannot be rolled back: there is no such revision: none is kept`,
		},
		"changed meanwhile": {
			"The API server's reason is kept.", "a",
			[]string{"get things", "update things one"},
			fmt.Errorf("writing: %w", apierrors.NewConflict(things, "a", errors.New("the object has been modified"))), apierrors.IsConflict, "was not rolled back",
		},
		"something in the way": {
			"", "a", []string{"get things", "update things one"}, errors.New("it is being deleted"), apierrors.IsConflict, "it is being deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &engine{parents: []inspection.Parent{thing("one", "a"), role}, refuses: tc.refuses}
			s, ctx := scene(t, e, &reviews{allowed: tc.allowed})
			asked := &v1alpha1.ControllerRollback{Spec: v1alpha1.ControllerRollbackSpec{Namespace: "one", Name: tc.parent, Revision: "former", ResourceVersion: "7"}}
			o, err := (&RollbackREST{s}).Create(ctx, "c", asked, nil, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !tc.is(err) || tc.says != "" && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("%s\nthe error is %v, want one that says %q", tc.reason, err, tc.says)
			}
			if permitted := err == nil || tc.refuses != nil; permitted != (len(e.rolledBack) == 1) {
				t.Errorf("the engine was asked %d times", len(e.rolledBack))
			}
			if err != nil {
				return
			}
			want := inspection.RollbackOptions{Revision: "former", ResourceVersion: "7", DryRun: true, User: "jane"}
			if e.rolledBack[0] != want {
				t.Errorf("the engine was asked for %+v, want %+v", e.rolledBack[0], want)
			}
			if done, ok := o.(*v1alpha1.ControllerRollback); !ok || done.Status.Revision != "former" || asked.Status.Revision != "" {
				t.Errorf("the response is %+v", o)
			}
		})
	}
}

func TestErrorsOfRollbacksSayWhetherTheParentWasWritten(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	unknown := func(err error) error { return fmt.Errorf("%w: %w", inspection.ErrOutcomeUnknown, err) }
	const open = `it is not known whether things.example.com "a" was rolled back; look at the parent before you repeat it: `
	for name, tc := range map[string]struct {
		err    error
		dryRun bool
		is     func(error) bool
		says   string
	}{
		"no response":               {unknown(errors.New("EOF")), false, apierrors.IsInternalError, open},
		"no response in time":       {unknown(fmt.Errorf("patch: %w", context.DeadlineExceeded)), false, apierrors.IsTimeout, open},
		"a timeout that is told":    {unknown(apierrors.NewTimeoutError("slow", 1)), false, apierrors.IsTimeout, open},
		"a failure that is told":    {unknown(apierrors.NewInternalError(errors.New("boom"))), false, apierrors.IsInternalError, open},
		"no response to a dry run":  {unknown(errors.New("EOF")), true, apierrors.IsInternalError, "can be rolled back"},
		"the end before the write":  {fmt.Errorf("before: %w", context.DeadlineExceeded), false, apierrors.IsTimeout, `"a" was not rolled back: before`},
		"a refusal":                 {errors.New("it is being deleted"), false, apierrors.IsConflict, "it was not rolled back"},
		"a refusal that is told":    {apierrors.NewForbidden(things, "a", errors.New("no")), false, apierrors.IsForbidden, "was not rolled back"},
		"a conflict that is told":   {apierrors.NewConflict(things, "a", errors.New("changed")), false, apierrors.IsConflict, "was not rolled back"},
		"a caller who went earlier": {context.Canceled, false, apierrors.IsInternalError, "was not rolled back"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := v1alpha1.ParentReference{Group: "example.com", Resource: "things", Namespace: "one", Name: "a"}
			err := rollbackError(tc.err, parent, &v1alpha1.ControllerRollbackSpec{}, tc.dryRun)
			if !tc.is(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error is %v, want one that says %q", err, tc.says)
			}
			if _, again := apierrors.SuggestsClientDelay(err); again {
				t.Errorf("clients repeat it by themselves: %v", err)
			}
		})
	}
}

func TestOnlyParentsOfCompositesAreRolledBack(t *testing.T) {
	i := New(Config{})
	if _, ok := i.Subresources("CompositeController", "compositecontrollers", nil)["compositecontrollers/rollback"]; !ok {
		t.Error("CompositeControllers have no rollback")
	}
	if _, ok := i.Subresources("DecoratorController", "decoratorcontrollers", nil)["decoratorcontrollers/rollback"]; ok {
		t.Error("DecoratorControllers have a rollback, and no revisions")
	}
}

func TestRollbacksAreBounded(t *testing.T) {
	s, ctx := scene(t, &engine{parents: []inspection.Parent{thing("one", "a")}}, &reviews{allowed: []string{"get things", "update things"}})
	for range maxRollbacks {
		_, leave, err := s.rollbacks.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
	}
	asked := &v1alpha1.ControllerRollback{Spec: v1alpha1.ControllerRollbackSpec{Namespace: "one", Name: "a"}}
	if _, err := (&RollbackREST{s}).Create(ctx, "c", asked, nil, nil); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more than there may be: %v", err)
	}
}
