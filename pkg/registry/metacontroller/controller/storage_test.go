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

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

func TestDefinitionsAreToldOnceWhenEverythingHasAdmittedThem(t *testing.T) {
	generation := func(n int64) *metacontroller.CompositeController {
		return &metacontroller.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: n}}
	}
	type write func(ctx context.Context, create func(context.Context, runtime.Object) error, update func(ctx context.Context, o, was runtime.Object) error) error
	created := func(times int) write {
		return func(ctx context.Context, create func(context.Context, runtime.Object) error, _ func(ctx context.Context, o, was runtime.Object) error) error {
			var errs []error
			for range times {
				errs = append(errs, create(ctx, generation(1)))
			}
			return errors.Join(errs...)
		}
	}
	updated := func(now, before int64, times int) write {
		return func(ctx context.Context, _ func(context.Context, runtime.Object) error, update func(ctx context.Context, o, was runtime.Object) error) error {
			var errs []error
			for range times {
				errs = append(errs, update(ctx, generation(now), generation(before)))
			}
			return errors.Join(errs...)
		}
	}
	for name, tc := range map[string]struct {
		write   write
		refused bool
		want    []string
	}{
		"a new object":                            {write: created(1), want: []string{"1 after <nil>"}},
		"a name that is generated again":          {write: created(2), want: []string{"1 after <nil>"}},
		"another definition":                      {write: updated(3, 2, 1), want: []string{"3 after 2"}},
		"a write that is tried again":             {write: updated(3, 2, 3), want: []string{"3 after 2"}},
		"metadata alone, or nothing":              {write: updated(2, 2, 1)},
		"a new object that admission refuses":     {write: created(1), refused: true},
		"a new definition that admission refuses": {write: updated(3, 2, 1), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			r := &REST{Admitted: func(_ context.Context, o, was runtime.Object, w Write) {
				before := "<nil>"
				if was != nil {
					before = fmt.Sprint(of[*metacontroller.CompositeController](was).Generation)
				}
				if !w.DryRun || w.Manager != "someone" {
					t.Errorf("the write is told as %+v", w)
				}
				told = append(told, fmt.Sprintf("%d after %s", of[*metacontroller.CompositeController](o).Generation, before))
			}}
			var admission error
			if tc.refused {
				admission = errors.New("refused")
			}
			create, update := r.telling(
				func(context.Context, runtime.Object) error { return admission },
				func(_ context.Context, _, _ runtime.Object) error { return admission },
				Write{DryRun: true, Manager: "someone"},
			)
			if err := tc.write(t.Context(), create, update); (err != nil) != tc.refused {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Errorf("what was told (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyToTellIsNoStepOfAdmission(t *testing.T) {
	create, update := (&REST{}).telling(nil, nil, Write{})
	if create != nil || update != nil {
		t.Error("there is a step of admission without anybody to tell")
	}
}
