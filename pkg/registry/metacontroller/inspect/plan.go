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
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// parallelParents is how many parents of one request are planned at the same time.
const parallelParents = 4

// PlanREST says what syncs would do.
type PlanREST struct{ *subresource }

var _ rest.NamedCreater = &PlanREST{}

// New returns an empty ControllerPlan.
func (*PlanREST) New() runtime.Object { return &v1alpha1.ControllerPlan{} }

// Destroy does nothing: nothing is stored.
func (*PlanREST) Destroy() {}

// Create returns what syncs of the selected parents would do. It writes nothing, so that a dry run is the same.
func (r *PlanREST) Create(
	ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions,
) (runtime.Object, error) {
	asked, err := admitted[*v1alpha1.ControllerPlan](ctx, object, validate)
	if err != nil {
		return nil, err
	}
	leave, err := r.plans.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	who, err := r.caller(ctx)
	if err != nil {
		return nil, err
	}
	c, shut, err := r.planned(ctx, name, asked.Spec.Candidate)
	if err != nil {
		return nil, err
	}
	defer shut()
	done := asked.DeepCopy()
	done.Status, err = r.plan(ctx, who, c, &asked.Spec)
	return done, err
}

// planned returns the controller that is asked: the one that runs, or a candidate in its place.
func (r *PlanREST) planned(ctx context.Context, name string, candidate *runtime.RawExtension) (inspection.Controller, func(), error) {
	if candidate == nil {
		c, err := r.controller(ctx, name)
		return c, func() {}, err
	}
	object, err := r.tryCandidate(ctx, name, candidate.Raw)
	if err != nil {
		return nil, nil, err
	}
	engine, err := r.engine()
	if err != nil {
		return nil, nil, err
	}
	c, shut, err := engine.Candidate(ctx, object)
	if err != nil {
		return nil, nil, candidateError(ctx, err)
	}
	return c, shut, nil
}

// plan plans the parents that are selected and not hidden from the caller, as far as limit and time go.
func (r *PlanREST) plan(
	ctx context.Context, who *caller, c inspection.Controller, spec *v1alpha1.ControllerPlanSpec,
) (status v1alpha1.ControllerPlanStatus, err error) {
	s, err := selectParents(ctx, who, c, spec.Parents, true)
	if err != nil {
		return status, err
	}
	left, err := from(s.parents, spec.Continue)
	if err != nil {
		return status, err
	}
	if spec.Continue != "" {
		s.hidden = 0 // The first part has told them.
	}
	responses := responsesOf(spec.Responses)
	limit := min(limited(spec.Limit), len(left))
	next := 0
	for next < limit && ctx.Err() == nil {
		chunk := left[next:min(next+parallelParents, limit)]
		plans, shown := planAll(ctx, c, chunk, responses, spec.DryRun)
		if ctx.Err() != nil {
			break // What the end of the time cut short says nothing; the next part has it.
		}
		err := who.learn(ctx, slices.Concat(shown...))
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return status, err
		}
		for i := range plans {
			if !who.sees(shown[i]...) {
				s.hidden++
				continue
			}
			count(&status.Summary, &plans[i])
			status.Parents = append(status.Parents, plans[i])
		}
		next += len(chunk)
	}
	if next == 0 && limit > 0 {
		return status, apierrors.NewTimeoutError(fmt.Sprintf("no parent was planned within %s; is the hook slow?", workLimit), 0)
	}
	status.Hidden = s.hidden
	if next < len(left) && next > 0 {
		status.Remaining = int64(len(left) - next)
		status.Continue, err = token(left[next-1])
	}
	return status, err
}

// responsesOf returns given responses by their parents.
func responsesOf(all []v1alpha1.GivenResponse) map[v1alpha1.ParentReference][]v1alpha1.GivenResponse {
	byParent := map[v1alpha1.ParentReference][]v1alpha1.GivenResponse{}
	for i := range all {
		p := all[i].ParentReference
		byParent[p] = append(byParent[p], all[i])
	}
	return byParent
}

// planAll plans some parents at the same time.
func planAll(
	ctx context.Context, c inspection.Controller, parents []v1alpha1.ParentReference,
	responses map[v1alpha1.ParentReference][]v1alpha1.GivenResponse, dryRun bool,
) ([]v1alpha1.ParentPlan, [][]inspection.Place) {
	plans, shown := make([]v1alpha1.ParentPlan, len(parents)), make([][]inspection.Place, len(parents))
	var running sync.WaitGroup
	for i, p := range parents {
		running.Go(func() {
			plans[i], shown[i] = c.Plan(ctx, p, inspection.PlanOptions{Responses: responses[p], DryRun: dryRun})
		})
	}
	running.Wait()
	return plans, shown
}

// count adds a plan to a summary.
func count(s *v1alpha1.PlanSummary, p *v1alpha1.ParentPlan) {
	counts := map[v1alpha1.ChildAction]*int64{
		v1alpha1.ChildCreate: &s.Create, v1alpha1.ChildUpdate: &s.Update, v1alpha1.ChildRecreate: &s.Recreate, v1alpha1.ChildDelete: &s.Delete,
		v1alpha1.ChildAdopt: &s.Adopt, v1alpha1.ChildRelease: &s.Release, v1alpha1.ChildLeave: &s.Leave, v1alpha1.ChildRefuse: &s.Refuse,
	}
	s.Parents++
	changes := p.Delete || len(p.Changes)+len(p.Revisions) > 0
	for i := range p.Children {
		action := p.Children[i].Action
		if n, ok := counts[action]; ok {
			*n++
		}
		changes = changes || action != v1alpha1.ChildLeave && action != v1alpha1.ChildRefuse
	}
	if changes {
		s.Changing++
	}
	if p.Error != "" {
		s.Failing++
	}
}
