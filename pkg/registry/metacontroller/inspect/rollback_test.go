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
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

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
