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

package try

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/plan"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// parallel is how many parents are tried at the same time: as many plans as a server works out.
const parallel = 2

// server is what a trial needs of a controller's subresources.
type server interface {
	Parents(ctx context.Context, o v1alpha1.ControllerParentOptions) (*v1alpha1.ControllerParentList, error)
	Requests(ctx context.Context, p v1alpha1.ParentReference, o subresource.RequestOptions) (*v1alpha1.HookRequestList, error)
	EachPlan(ctx context.Context, spec v1alpha1.ControllerPlanSpec, f func(*v1alpha1.ControllerPlanStatus) error) error
}

// caller calls a hook.
type caller interface {
	Call(ctx context.Context, name string, body []byte) ([]byte, error)
}

// trial tries a hook on parents.
type trial struct {
	client server
	// check has children checked by dry runs.
	check bool
}

// all tries the hook on all selected parents, and reports in their order.
func (t trial) all(ctx context.Context, hook caller, selected subresource.Selected, report *plan.Report) error {
	list, err := t.client.Parents(ctx, selected.ParentOptions())
	if err != nil {
		return err
	}
	if err := report.Part(&v1alpha1.ControllerPlanStatus{Hidden: list.Hidden}); err != nil {
		return err
	}
	done := make([]chan *v1alpha1.ControllerPlanStatus, len(list.Items))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel + 1) // One starts the others, and reports.
	for i := range done {
		done[i] = make(chan *v1alpha1.ControllerPlanStatus, 1)
	}
	group.Go(func() error {
		for i := range done {
			select {
			case part := <-done[i]:
				if err := report.Part(part); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil // The error is that of another one.
			}
		}
		return nil
	})
	for i := range list.Items {
		p := list.Items[i].ParentReference
		group.Go(func() error {
			part, err := t.one(ctx, hook, p)
			if selected.Name == "" && subresource.IsHidden(err, p) {
				part, err = &v1alpha1.ControllerPlanStatus{Hidden: 1}, nil // The error about a parent that was named says why.
			}
			if err == nil {
				done[i] <- part
			}
			return err
		})
	}
	return group.Wait()
}

// one tries the hook on one parent. What is wrong with this parent only is a part of its plan; the error ends everything.
func (t trial) one(ctx context.Context, hook caller, p v1alpha1.ParentReference) (*v1alpha1.ControllerPlanStatus, error) {
	requests, err := t.client.Requests(ctx, p, subresource.RequestOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return &v1alpha1.ControllerPlanStatus{}, nil // It is gone since the parents were listed.
	case apierrors.IsConflict(err), apierrors.IsRequestEntityTooLargeError(err):
		return failing(p, err), nil
	case err != nil:
		return nil, err
	}
	spec := v1alpha1.ControllerPlanSpec{
		Parents: &v1alpha1.ParentSelection{Resource: p.GroupResource().String(), Namespace: p.Namespace, Name: p.Name}, DryRun: t.check,
	}
	for i := range requests.Items {
		r := &requests.Items[i]
		if r.Hook == localhook.Customize {
			continue
		}
		response, err := hook.Call(ctx, r.Hook, r.Body.Raw)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("trying the hook on %s: %w", subresource.NameOf(p), ctx.Err()) // Whether it responded or not.
		case localhook.IsUnreachable(err):
			return nil, err
		case err != nil:
			return failing(p, err), nil
		}
		spec.Responses = append(spec.Responses, v1alpha1.GivenResponse{
			ParentReference: p, Hook: r.Hook, Revision: r.Revision, Body: runtime.RawExtension{Raw: response},
		})
	}
	all := &v1alpha1.ControllerPlanStatus{}
	err = t.client.EachPlan(ctx, spec, func(part *v1alpha1.ControllerPlanStatus) error {
		*all = *part
		return nil
	})
	if apierrors.IsRequestEntityTooLargeError(err) {
		return failing(p, fmt.Errorf("a plan cannot be given the responses of the hook, whether or not a sync takes them: %w", err)), nil
	}
	if subresource.IsHidden(err, p) {
		return failing(p, fmt.Errorf("a plan with the responses of the hook is refused, whether or not a sync takes them: %w", err)), nil
	}
	if err != nil {
		return nil, fmt.Errorf("planning for %s: %w", subresource.NameOf(p), err)
	}
	return all, nil
}

// failing is the plan of a parent for which the hook has no response that can be planned with.
func failing(p v1alpha1.ParentReference, err error) *v1alpha1.ControllerPlanStatus {
	return &v1alpha1.ControllerPlanStatus{
		Summary: v1alpha1.PlanSummary{Parents: 1, Failing: 1},
		Parents: []v1alpha1.ParentPlan{{ParentReference: p, Error: err.Error()}},
	}
}
