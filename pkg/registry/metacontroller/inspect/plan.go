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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

const (
	// parallelParents is how many parents of one request are planned at the same time.
	parallelParents = 4
	// partSize is the size in bytes at which a part of a plan ends, and planSize the most that the plan of one parent may have. What a hook
	// returns about many parents would not fit into the memory of the server.
	partSize, planSize = 8 << 20, 32 << 20
	// maxResponses is how many responses may be given, as the published schema says.
	maxResponses = 2000
)

// PlanREST says what syncs would do.
type PlanREST struct{ *subresource }

var _ rest.NamedCreater = &PlanREST{}

// New returns an empty ControllerPlan.
func (*PlanREST) New() runtime.Object { return &v1alpha1.ControllerPlan{} }

// Create returns what syncs of the selected parents would do. It writes nothing, so that a dry run is the same.
func (r *PlanREST) Create(
	ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions,
) (runtime.Object, error) {
	asked, err := admitted[*v1alpha1.ControllerPlan](ctx, object, validate)
	if err != nil {
		return nil, err
	}
	if n := len(asked.Spec.Responses); n > maxResponses {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("responses: %d are given, and at most %d may be; plan for fewer parents at once", n, maxResponses))
	}
	ctx, leave, err := r.plans.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
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
	if err := checkResponses(s.parents, spec.Responses); err != nil {
		return status, err
	}
	if err := mayTry(ctx, who, c, spec.Responses); err != nil {
		return status, err
	}
	limit := min(limited(spec.Limit), len(left))
	next, size := 0, 0
	for next < limit && size < partSize && ctx.Err() == nil {
		chunk := left[next:min(next+parallelParents, limit)]
		plans, shown := planAll(ctx, who, c, chunk, spec)
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
			size += bound(&plans[i])
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

// checkResponses returns an error if a given response is one of no selected parent, in whose place the hook would be called, or if another
// one is given to the same request.
func checkResponses(selected []v1alpha1.ParentReference, given []v1alpha1.GivenResponse) error {
	type request struct {
		v1alpha1.ParentReference

		hook, revision string
	}
	first := make(map[request]int, len(given))
	for i := range given {
		r := &given[i]
		if !slices.Contains(hooks, r.Hook) {
			return apierrors.NewBadRequest(fmt.Sprintf("responses[%d].hook: %q is none of %q", i, r.Hook, hooks))
		}
		if _, found := slices.BinarySearchFunc(selected, r.ParentReference, compare); !found {
			return apierrors.NewBadRequest(fmt.Sprintf("responses[%d]: %s is none of the parents that are selected and that you may get", i, nameOf(r.ParentReference)))
		}
		to := request{r.ParentReference, r.Hook, r.Revision}
		if former, twice := first[to]; twice {
			return apierrors.NewBadRequest(fmt.Sprintf("responses[%d]: responses[%d] is one of the %s hook about %s with the revision %q already",
				i, former, r.Hook, nameOf(r.ParentReference), r.Revision))
		}
		first[to] = i
	}
	return nil
}

// writes are the verbs that trials of children take: an API server asks for them of who sends dry runs.
var writes = []string{rights.Create, rights.Update, rights.Patch}

// mayTry returns an error if given responses would have the API server try children for a caller who may not write them. A plan sends the dry
// runs that a sync would send, to find out what is the API server's doing, whether or not it has all children checked.
func mayTry(ctx context.Context, who *caller, c inspection.Controller, given []v1alpha1.GivenResponse) error {
	asked := map[string]bool{}
	for i := range given {
		p := given[i].ParentReference
		if given[i].Hook == hookCustomize || asked[p.Namespace] {
			continue
		}
		asked[p.Namespace] = true
		var wanted []rights.Right
		for _, at := range around(p, c.Children())[1:] {
			for _, verb := range writes {
				wanted = append(wanted, rights.Right{Verb: verb, Group: at.Group, Resource: at.Resource, Namespace: at.Namespace})
			}
		}
		lacking, err := who.lackingSomewhere(ctx, wanted)
		if err != nil {
			return err
		}
		if lacking != nil {
			resource := schema.GroupResource{Group: lacking.Group, Resource: lacking.Resource}
			return apierrors.NewForbidden(schema.GroupResource{Group: p.Group, Resource: p.Resource}, p.Name, fmt.Errorf(
				"the API server would be asked to try the children that you give, as it is by a sync: user %q may not %s %s %s", who.subject.User,
				lacking.Verb, resource, where(inspection.Place{Namespace: lacking.Namespace})))
		}
	}
	return nil
}

// nameOf returns the name of a parent as people write it.
func nameOf(p v1alpha1.ParentReference) string {
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + name
	}
	return schema.GroupResource{Group: p.Group, Resource: p.Resource}.String() + " " + name
}

// bound returns the size of a plan in bytes, nearly. What is larger than a plan may be is left out, with an error.
func bound(p *v1alpha1.ParentPlan) int {
	size := sizeOf(p.Changes)
	for i := range p.Children {
		child := &p.Children[i]
		size += len(child.Message) + sizeOf(child.Changes)
		if child.Object != nil {
			size += len(child.Object.Raw)
		}
	}
	if size > planSize {
		p.Children, p.Changes = nil, nil
		p.Error = fmt.Sprintf("the plan has %d MiB, and at most %d are shown of one parent", size>>20, planSize>>20)
		return 0
	}
	return size
}

func sizeOf(changes []v1alpha1.FieldChange) (size int) {
	for i := range changes {
		c := &changes[i]
		size += len(c.Path)
		for _, value := range []*string{c.Observed, c.Desired} {
			if value != nil {
				size += len(*value)
			}
		}
	}
	return size
}

// planAll plans some parents at the same time.
func planAll(
	ctx context.Context, who *caller, c inspection.Controller, parents []v1alpha1.ParentReference, spec *v1alpha1.ControllerPlanSpec,
) ([]v1alpha1.ParentPlan, [][]inspection.Place) {
	plans, shown := make([]v1alpha1.ParentPlan, len(parents)), make([][]inspection.Place, len(parents))
	responses := responsesOf(spec.Responses)
	var asking sync.Mutex // A caller is for one goroutine.
	var running sync.WaitGroup
	for i, p := range parents {
		options := inspection.PlanOptions{Responses: responses[p], DryRun: spec.DryRun, Relate: func(ctx context.Context, selected []inspection.Place) error {
			asking.Lock()
			defer asking.Unlock()
			return maySee(ctx, who, selected, p)
		}}
		running.Go(func() { plans[i], shown[i] = c.Plan(ctx, p, options) })
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
