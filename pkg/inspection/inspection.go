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

package inspection

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Engine finds running controllers. It is safe for concurrent use.
type Engine interface {
	// Controller returns the controller that runs for an object of a kind, CompositeController or DecoratorController. The error says why
	// none runs here.
	Controller(kind, name string, uid types.UID) (Controller, error)
	// Candidate builds a controller of a *v1alpha1.CompositeController or *v1alpha1.DecoratorController, which does not run: it answers
	// as that controller would after its start. It waits for the caches until ctx ends. Shut ends it, after the last use.
	Candidate(ctx context.Context, object runtime.Object) (candidate Controller, shut func(), err error)
}

// Controller answers questions about one controller. It is safe for concurrent use.
type Controller interface {
	// Parents returns the parents that the controller handles, in no particular order.
	Parents() []Parent
	// Resources returns the resources of the parents, whether there are parents or not.
	Resources() []schema.GroupResource
	// State says how the controller is doing with a parent. ok is false if it does not handle the parent, or if only is not empty and another
	// state than that of the parent, of which nothing is counted then.
	State(p v1alpha1.ParentReference, only v1alpha1.ParentState) (state v1alpha1.ControllerParent, ok bool)
	// Children returns the declared kinds of children.
	Children() []Kind
	// Resync has parents synced now, and returns how many were put into the queue.
	Resync(parents []v1alpha1.ParentReference) int
	// Syncs returns the latest syncs of parents, the latest first, up to a limit, and how many more are remembered. recorded is false if
	// this process does not record syncs.
	Syncs(parents []v1alpha1.ParentReference, limit int) (syncs []v1alpha1.ControllerSync, more int, recorded bool)
	// Rollback gives a parent the fields of a former revision back, if it was not changed meanwhile. It is [ErrNoRevision] if the parent has
	// no such revision, and [ErrOutcomeUnknown] if the parent was written and it is not known whether the API server did it. With other
	// errors it was not rolled back: they are those of the API server, that of a context that ended before, or say what is in the way. What
	// was begun is ended though the context ends. A controller that is paused rolls back as well.
	Rollback(ctx context.Context, p v1alpha1.ParentReference, o RollbackOptions) (v1alpha1.ControllerRollbackStatus, error)
	// Requests returns what the hooks would be sent about a parent now. It calls the hooks on whose responses that depends: the customize
	// hook, whose rules are not known yet. Shown are objects that the requests show beside the parent. The error may be ErrTooLarge.
	Requests(ctx context.Context, p v1alpha1.ParentReference, o RequestOptions) (requests []v1alpha1.HookRequest, shown []Place, err error)
	// Plan works out what a sync of a parent would do now. Shown are objects that the plan shows beside the parent.
	Plan(ctx context.Context, p v1alpha1.ParentReference, o PlanOptions) (plan v1alpha1.ParentPlan, shown []Place)
}

// RequestOptions say which requests are wanted.
type RequestOptions struct {
	// Hook is the only one whose requests are wanted. Empty: all that a sync would call.
	Hook string
	// Call has the hooks called for their responses, with the values of Secrets that the requests are shown without. Nil: they are not called.
	// It is asked before each call, with the places of what the requests show beside the parent; an error keeps the hook from being called
	// and is that of Requests, as text.
	Call func(shown []Place) error
}

// PlanOptions say how a plan is made.
type PlanOptions struct {
	// Responses are those that the hooks shall give about the parent.
	Responses []v1alpha1.GivenResponse
	// Relate is asked before objects are looked for that a given response of the customize hook selects, with their places: that of all
	// namespaces has none. Its error is that of the plan, whether there are such objects or not. Nil: all may be looked for. Plans of several
	// parents may ask at the same time.
	Relate func(ctx context.Context, selected []Place) error
	// DryRun has the API server check children that would be written.
	DryRun bool
	// Deletions says that only deletions are wanted, those of recreations too: no hook is called about a parent that has nothing to delete.
	Deletions bool
}

// RollbackOptions say how a parent is rolled back.
type RollbackOptions struct {
	// Revision is that of which the parent gets the fields. Empty: the previous one.
	Revision string
	// ResourceVersion is the one that the parent must have. Empty: any.
	ResourceVersion string
	// DryRun has the API server check the write, and changes nothing.
	DryRun bool
	// User is who asks for it, for those who wonder.
	User string
}

// ErrNoRevision says that a parent has no such revision. It is told by errors.Is.
var ErrNoRevision = errors.New("there is no such revision")

// ErrTooLarge says that the requests about a parent are more than are shown. It is told by errors.Is.
var ErrTooLarge = errors.New("the requests are too large")

// ErrOutcomeUnknown says that it is not known whether an API server did what it was asked for. It is told by errors.Is.
var ErrOutcomeUnknown = errors.New("the API server did not say what it did")

// Parent is a parent as it is selected.
type Parent struct {
	v1alpha1.ParentReference

	// Labels are those of the object. They are not modified.
	Labels labels.Labels
}

// Kind is a declared kind of children.
type Kind struct {
	schema.GroupResource

	// Namespaced says that its objects are in namespaces.
	Namespaced bool
}

// Place is where objects are: a resource in a namespace, empty for objects that are cluster-scoped.
type Place struct {
	schema.GroupResource

	// Namespace is that of the objects.
	Namespace string
}

// Link leads to the engine of this process while it runs. It is safe for concurrent use; the zero value leads to none.
type Link struct {
	engine  atomic.Pointer[Engine]
	absence atomic.Pointer[func() (why string, anywhere bool)]
}

// Explain has why asked for why no engine runs here, and whether one runs anywhere, as far as is known.
func (l *Link) Explain(why func() (why string, anywhere bool)) { l.absence.Store(&why) }

// Absence says why no engine runs here, and which process runs one, if that is known; empty if it is not. Anywhere is false if what the status
// of controllers says is from before, because no process runs any.
func (l *Link) Absence() (why string, anywhere bool) {
	absence := l.absence.Load()
	if _, here := l.Engine(); here || absence == nil {
		return "", true
	}
	return (*absence)()
}

// Connect lets the link lead to an engine until cut is called.
func (l *Link) Connect(e Engine) (cut func()) {
	connected := &e
	l.engine.Store(connected)
	return func() { l.engine.CompareAndSwap(connected, nil) }
}

// Engine returns the engine, and whether one runs.
func (l *Link) Engine() (Engine, bool) {
	if e := l.engine.Load(); e != nil {
		return *e, true
	}
	return nil, false
}
