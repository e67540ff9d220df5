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
	"cmp"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

// Config is what the subresources need. The zero value serves them with errors that say what is missing.
type Config struct {
	// Engine leads to the engine of this process.
	Engine *inspection.Link
	// Standby leads to it, too, while it waits to be elected. A move asks it what the controllers of another engine would do here.
	Standby *inspection.Link
	// Reviews asks the cluster what callers may see.
	Reviews authorizationclient.SubjectAccessReviewInterface
	// Loopback reaches the API of this process, with the right to impersonate callers. Dry runs of candidates are sent to it.
	Loopback *restclient.Config
	// PlanWarnings has those who write controllers warned of what syncs would do.
	PlanWarnings bool
}

// Inspector makes the subresources of both kinds, which share their limits.
type Inspector struct {
	config   Config
	reviewer *review.Reviewer
	// plans, forecasts and requests bound what calls hooks, and rollbacks what writes.
	plans, forecasts, requests, rollbacks gate
}

// New returns an inspector.
func New(c Config) *Inspector {
	i := &Inspector{
		config: c, plans: newGate("plans", maxPlans, false), forecasts: newGate("plans for warnings", maxPlans, true),
		requests: newGate("requests of hooks", maxRequests, false), rollbacks: newGate("rollbacks", maxRollbacks, false),
	}
	if c.Engine == nil {
		i.config.Engine = &inspection.Link{}
	}
	if c.Reviews != nil {
		i.reviewer = review.New(c.Reviews, parallelReviews)
	}
	return i
}

// Get returns a controller object by its name. The error is that of the store.
type Get func(ctx context.Context, name string) (metav1.Object, error)

// Subresources returns the endpoints of a kind, such as CompositeController, by their paths below its resource.
func (i *Inspector) Subresources(kind, resource string, get Get) map[string]rest.Storage {
	s := &subresource{Inspector: i, kind: kind, resource: resource, get: get}
	endpoints := map[string]rest.Storage{
		resource + "/parents": &ParentsREST{s},
		resource + "/plan":    &PlanREST{s},
		resource + "/request": &RequestREST{s},
		resource + "/resync":  &ResyncREST{s},
		resource + "/syncs":   &SyncsREST{s},
	}
	if kind == v1alpha1.KindComposite { // The parents of others have no revisions.
		endpoints[resource+"/rollback"] = &RollbackREST{s}
	}
	return endpoints
}

// Plans returns the endpoint plan of a kind alone.
func (i *Inspector) Plans(kind, resource string, get Get) *PlanREST {
	return &PlanREST{&subresource{Inspector: i, kind: kind, resource: resource, get: get}}
}

// subresource is what the subresources of one kind have in common.
type subresource struct {
	*Inspector

	kind, resource string
	get            Get
}

// Destroy does nothing: nothing is stored.
func (*subresource) Destroy() {}

// open returns who makes a request about a controller, and the controller, which runs.
func (s *subresource) open(ctx context.Context, name string) (*caller, inspection.Controller, error) {
	who, err := s.caller(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.controller(ctx, name)
	return who, c, err
}

// queried is open, with the parents that query parameters select; see selectParents.
func (s *subresource) queried(
	ctx context.Context, name string, selection *v1alpha1.ParentSelection, labelSelector string, children bool,
) (who *caller, c inspection.Controller, found selected, err error) {
	selector, err := parseSelector(labelSelector)
	if err != nil {
		return nil, nil, found, err
	}
	if who, c, err = s.open(ctx, name); err != nil {
		return nil, nil, found, err
	}
	found, err = selectLabeled(ctx, who, c, selection, selector, children)
	return who, c, found, err
}

// controller returns the running controller of an object.
func (s *subresource) controller(ctx context.Context, name string) (inspection.Controller, error) {
	o, err := s.get(ctx, name)
	if err != nil {
		return nil, err
	}
	engine, err := s.engine()
	if err != nil {
		return nil, err
	}
	c, err := engine.Controller(s.kind, name, o.GetUID())
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("%s %s: %v", s.kind, name, err))
	}
	return c, nil
}

func (s *subresource) engine() (inspection.Engine, error) {
	engine, ok := s.config.Engine.Engine()
	if ok {
		return engine, nil
	}
	why, _ := s.config.Engine.Absence()
	return nil, apierrors.NewServiceUnavailable("nothing is known here of the parents of controllers: " +
		cmp.Or(why, "this server does not run controllers at present. It may be starting or ending: try again"))
}

const (
	// maxPlans and maxRequests are how many plans, and how many requests of hooks, are worked out at the same time.
	maxPlans    = 2
	maxRequests = 4
	// maxRollbacks is the same of rollbacks.
	maxRollbacks = 4
	// retrySeconds is what a caller is told who is refused because of that.
	retrySeconds = 2
)

// gate bounds how many requests are answered at the same time.
type gate struct {
	what  string
	most  int64
	slots *semaphore.Weighted
	// waits says that a request waits for its turn as long as its context lasts.
	waits bool
}

func newGate(what string, n int64, waits bool) gate {
	return gate{what, n, semaphore.NewWeighted(n), waits}
}

// enter lets a request in until leave is called, and ends its context when it has taken too long. The error, TooManyRequests, says that there
// are enough.
func (g gate) enter(ctx context.Context) (limited context.Context, leave func(), err error) {
	if !g.slots.TryAcquire(1) && (!g.waits || g.slots.Acquire(ctx, 1) != nil) {
		return ctx, nil, apierrors.NewTooManyRequests(fmt.Sprintf(
			"%d %s are being worked out already, which is the most at the same time; try again", g.most, g.what), retrySeconds)
	}
	limited, cancel := context.WithTimeout(ctx, workLimit)
	return limited, func() { cancel(); g.slots.Release(1) }, nil
}

// admitted returns what was posted to a subresource, if admission allows it.
func admitted[T runtime.Object](ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc) (T, error) {
	asked, ok := object.(T)
	if !ok {
		return asked, apierrors.NewBadRequest(fmt.Sprintf("a %T is no %s", object, strings.TrimPrefix(fmt.Sprintf("%T", asked), "*v1alpha1.")))
	}
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return asked, err
		}
	}
	return asked, nil
}
