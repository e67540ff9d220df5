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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	restclient "k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
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
			return apierrors.NewForbidden(p.GroupResource(), p.Name, fmt.Errorf(
				"the API server would be asked to try the children that you give, as it is by a sync: user %q may not %s %s %s", who.subject.User,
				lacking.Verb, resource, where(inspection.Place{Namespace: lacking.Namespace})))
		}
	}
	return nil
}

// nameOf returns the name of a parent as people write it.
func nameOf(p v1alpha1.ParentReference) string {
	return p.GroupResource().String() + " " + p.FullName()
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
	counts := s.Actions()
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

// tryCandidate returns the object that a write of the candidate by the caller would store. It is sent to the API of this process as a dry
// run in the caller's name, so that it passes the very authorization, admission and validation of a write. Whoever may not write the
// controller must not have its hooks called with other addresses and credentials. The stored object may change meanwhile, as by a status that
// is published; the caller has not named a version.
func (s *subresource) tryCandidate(ctx context.Context, name string, candidate []byte) (object runtime.Object, err error) {
	for range candidateTries {
		if object, err = s.dryRun(ctx, name, candidate); !apierrors.IsConflict(err) {
			return object, err
		}
	}
	return nil, err
}

const (
	candidateTries = 5
	// candidateManager is the field manager of dry runs of candidates, whose plan the caller gets: it is no news in a warning.
	candidateManager = "metacontroller-plan"
)

func (s *subresource) dryRun(ctx context.Context, name string, candidate []byte) (runtime.Object, error) {
	client, err := s.clientOf(ctx)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(candidate, &content); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("candidate: %v", err))
	}
	metadata, _ := content["metadata"].(map[string]any)
	if given, ok := metadata["name"]; ok && given != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("candidate: its name is %v, and the plan is for %s", given, name))
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"] = name
	request := client.Post().Resource(s.resource)
	stored, err := s.get(ctx, name)
	switch {
	case err == nil:
		request = client.Put().Resource(s.resource).Name(name)
		metadata["resourceVersion"] = stored.GetResourceVersion()
		metadata["uid"] = stored.GetUID()
	case !apierrors.IsNotFound(err):
		return nil, err
	default:
		delete(metadata, "resourceVersion")
		delete(metadata, "uid")
	}
	content["apiVersion"], content["kind"], content["metadata"] = v1alpha1.SchemeGroupVersion.String(), s.kind, metadata
	body, err := json.Marshal(content)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("candidate: %v", err))
	}
	result, err := request.Param("dryRun", metav1.DryRunAll).Param("fieldManager", candidateManager).Param("fieldValidation", metav1.FieldValidationStrict).Body(body).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	return result, nil
}

// candidateError is the error of a candidate that could not be built, as callers get it: a bad request only if the definition is the cause.
func candidateError(ctx context.Context, err error) error {
	text := fmt.Sprintf("the candidate could not run: %v", err)
	_, refused := errors.AsType[*apierrors.StatusError](err)
	_, unreached := errors.AsType[net.Error](err)
	_, panicked := errors.AsType[*recovery.PanicError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return apierrors.NewTimeoutError(fmt.Sprintf("the candidate was not ready within %s: %v", workLimit, err), 0)
	case ctx.Err() != nil, panicked:
		return apierrors.NewInternalError(errors.New(text))
	case refused, unreached:
		return apierrors.NewServiceUnavailable("the cluster did not say what it serves of the candidate's kinds: " + text)
	default:
		return apierrors.NewBadRequest(text)
	}
}

// clientOf returns a client of the API of this process that acts as the caller.
func (s *subresource) clientOf(ctx context.Context) (restclient.Interface, error) {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok || s.config.Loopback == nil {
		return nil, apierrors.NewServiceUnavailable("this server cannot try candidates")
	}
	config := restclient.CopyConfig(s.config.Loopback)
	config.Impersonate = restclient.ImpersonationConfig{UserName: u.GetName(), UID: u.GetUID(), Groups: slices.Clone(u.GetGroups()), Extra: u.GetExtra()}
	config.WarningHandlerWithContext = warned{}
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client that acts as the caller: %w", err)
	}
	return clients.MetacontrollerV1alpha1().RESTClient(), nil
}

// warned passes the warnings about a candidate on to the caller, as a write of it would.
type warned struct{}

// HandleWarningHeaderWithContext implements restclient.WarningHandlerWithContext. 299 is the code of warnings that last (RFC 7234, 5.5.7).
func (warned) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if code == 299 && text != "" {
		warning.AddWarning(ctx, agent, text)
	}
}
