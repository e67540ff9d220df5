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

package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// A ConflictError says that a child cannot be created because an object of its name exists that the parent does not
// control.
type ConflictError struct {
	// Key is the child.
	Key children.Key
	// Parent is the parent, for people.
	Parent string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s exists and is not controlled by %s; delete or rename one of them, or let the parent adopt it by its labels",
		e.Key, e.Parent)
}

// Applier carries out plans. It is safe for concurrent use.
type Applier struct {
	client *client.Client
	slots  *slots
	try    func(context.Context, client.Target, []byte) (*object.Object, error)
	// each bounds the writes of one parent.
	each int
}

// Options configure an Applier.
type Options struct {
	// Client writes.
	Client *client.Client
	// Writes is the number of concurrent writes of all parents. Default 64.
	Writes int
	// Behind reports whether the caches are so far behind that fewer writes should be made at once: a quarter of Writes. An API
	// server that is kept busy with writes delivers their events late, and parents wait for those. Nil: never.
	Behind func() bool
	// WritesPerParent is the number of concurrent writes of one parent's children. Default 8.
	WritesPerParent int
	// Try returns what an update would make of an object that is merged here, without making it (a dry run). It is asked before a child is
	// deleted to be made anew when it may be the API server, or an admission webhook, that changed what was applied, which
	// is so after a restart. Nil: such a child is deleted.
	Try func(ctx context.Context, target client.Target, body []byte) (*object.Object, error)
}

// New returns an applier.
func New(o Options) *Applier {
	if o.Writes <= 0 {
		o.Writes = 64
	}
	if o.WritesPerParent <= 0 {
		o.WritesPerParent = 8
	}
	return &Applier{client: o.Client, slots: newSlots(o.Writes, o.Behind), each: o.WritesPerParent, try: o.Try}
}

// Outcome is what happened to one child.
type Outcome struct {
	plan.Step
	// Written is the child as the API server returned it, after Create and Update that succeeded.
	Written *object.Object
	// Done says that the step changed the cluster. Recreate does not if the child turns out to be as desired.
	Done bool
	// Stale says that the step was made from a state that is past: the child changed, went or came meanwhile. That is no
	// error (docs/reference/contract.md#s11); the change that was overlooked wakes the parent.
	Stale bool
}

// Apply carries out a plan and returns what happened to each child that was to be changed. The error joins those of all
// children; one that fails does not stop the others. parent is the parent, for people.
func (a *Applier) Apply(ctx context.Context, parent string, in plan.Input, p plan.Plan) ([]Outcome, error) {
	var deletes, writes []plan.Step
	for i := range p.Steps {
		switch step := p.Steps[i]; step.Action {
		case plan.Delete, plan.Recreate:
			deletes = append(deletes, step)
		case plan.Create, plan.Update:
			writes = append(writes, step)
		case plan.Leave:
		}
	}
	in.Memory.Prune(in.Parent, p)
	outcomes, errDeletes := a.all(ctx, parent, in, deletes)
	more, errWrites := a.all(ctx, parent, in, writes)
	return append(outcomes, more...), errors.Join(errDeletes, errWrites)
}

func (a *Applier) all(ctx context.Context, parent string, in plan.Input, steps []plan.Step) ([]Outcome, error) {
	outcomes, errs := make([]Outcome, len(steps)), make([]error, len(steps))
	var running sync.WaitGroup
	mine := make(chan struct{}, a.each)
	for i := range steps {
		mine <- struct{}{}
		carryOut := func() {
			defer func() { <-mine }()
			outcomes[i], errs[i] = a.one(ctx, parent, in, steps[i])
		}
		if i < len(steps)-1 {
			running.Go(carryOut)
		} else {
			// This goroutine would only wait, and its stack is large already.
			carryOut()
		}
	}
	running.Wait()
	return outcomes, errors.Join(errs...)
}

func (a *Applier) one(ctx context.Context, parent string, in plan.Input, step plan.Step) (Outcome, error) {
	outcome := Outcome{Step: step}
	release, err := a.slots.take(ctx)
	if err != nil {
		return outcome, err
	}
	defer release()
	switch step.Action {
	case plan.Create, plan.Update:
		err = a.write(ctx, parent, in, &outcome)
	case plan.Delete, plan.Recreate:
		err = a.delete(ctx, in, &outcome)
	case plan.Leave:
	}
	if err != nil {
		return outcome, fmt.Errorf("%s %s: %w", verbs[step.Action], step.Key, err)
	}
	return outcome, nil
}

func (a *Applier) write(ctx context.Context, parent string, in plan.Input, outcome *Outcome) (err error) {
	target := client.Target{Resource: outcome.Resource, Namespace: outcome.Namespace, Name: outcome.Name}
	switch {
	case outcome.Manager != "":
		err = a.serverSide(ctx, parent, in, target, outcome)
	case outcome.Action == plan.Create:
		err = a.create(ctx, parent, in, target, outcome)
	default:
		outcome.Written, err = a.client.Update(ctx, target, outcome.Body)
	}
	if conflict := ownership(err); conflict != nil {
		return conflict
	}
	if outcome.Action != plan.Create && (apierrors.IsConflict(err) || isGone(err)) {
		outcome.Stale = true
		return nil
	}
	if err != nil || outcome.Stale {
		return err
	}
	if outcome.Manager != "" && outcome.Action == plan.Update && outcome.Written.ResourceVersion() == outcome.Observed.ResourceVersion() {
		// The API server found nothing to change.
		in.Memory.Accepted(in, outcome.Step)
		return nil
	}
	outcome.Done = true
	in.Memory.Wrote(in, outcome.Step, outcome.Written)
	return nil
}

// create creates a child. An object that is in the way and goes in the very moment wakes nobody, for it has nothing to do with
// the parent; so the child is created again then.
func (a *Applier) create(ctx context.Context, parent string, in plan.Input, target client.Target, outcome *Outcome) (err error) {
	where := client.Target{Resource: target.Resource, Namespace: target.Namespace}
	outcome.Written, err = a.client.Create(ctx, where, outcome.Body)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := a.judgeObstacle(ctx, parent, in, target, outcome); err != nil || outcome.Stale {
		return err
	}
	outcome.Written, err = a.client.Create(ctx, where, outcome.Body)
	return err
}

// judgeObstacle looks at the object that is in the way of a child to be created. It returns a ConflictError if it is not the
// parent's, notes that the step is stale if it is, and does neither if it is gone.
func (a *Applier) judgeObstacle(ctx context.Context, parent string, in plan.Input, target client.Target, outcome *Outcome) error {
	existing, err := a.client.Get(ctx, target)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the object of that name: %w", err)
	}
	if owner := existing.Controller(); owner == nil || owner.UID != in.Parent {
		return &ConflictError{Key: outcome.Key, Parent: parent}
	}
	outcome.Stale = true
	return nil
}

func (a *Applier) delete(ctx context.Context, in plan.Input, outcome *Outcome) error {
	target := client.Target{Resource: outcome.Resource, Namespace: outcome.Namespace, Name: outcome.Name}
	same, err := a.isAsDesired(ctx, target, outcome)
	if same {
		in.Memory.Accepted(in, outcome.Step)
		return nil
	}
	if err == nil {
		err = a.client.Delete(ctx, target, outcome.Observed.UID())
	}
	if conflict := ownership(err); conflict != nil {
		return conflict
	}
	if apierrors.IsConflict(err) || isGone(err) {
		outcome.Stale = true
		return nil
	}
	if err != nil {
		return err
	}
	outcome.Done = true
	if outcome.Action == plan.Recreate {
		in.Memory.Replaced(in, outcome.Step)
	}
	return nil
}

// isAsDesired reports whether a child that is to be made anew is as desired after all: an update would change nothing, or is
// invalid. Then it has other values than were applied last in fields that nobody can have changed since; a new child would
// get the same values, or be refused.
func (a *Applier) isAsDesired(ctx context.Context, target client.Target, outcome *Outcome) (bool, error) {
	if a.try == nil && outcome.Manager == "" || outcome.Action != plan.Recreate || outcome.Body == nil {
		return false, nil
	}
	updated, err := a.tryStep(ctx, target, outcome)
	switch {
	case apierrors.IsInvalid(err):
		return outcome.Doubt, nil
	case apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		// It cannot be tried: the user may not update, or a webhook knows no dry run.
		return false, nil
	case err != nil:
		return false, fmt.Errorf("trying whether an update would change it: %w", err)
	}
	before, err := bare(outcome.Observed)
	if err != nil {
		return false, err
	}
	after, err := bare(updated)
	return err == nil && merge.Equal(before, after), err
}

// bare returns an object without what differs though it was not changed, which is its version and our own record.
func bare(o *object.Object) (map[string]any, error) {
	content, err := o.Decode()
	if err != nil {
		return nil, err
	}
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
		delete(metadata, "managedFields")
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, merge.Annotation)
		}
	}
	return content, nil
}

// Reader returns a function that reads single objects, for plan.Input.
func (a *Applier) Reader(ctx context.Context) func(schema.GroupVersionResource, string, string) (*object.Object, error) {
	return func(resource schema.GroupVersionResource, namespace, name string) (*object.Object, error) {
		o, err := a.client.Get(ctx, client.Target{Resource: resource, Namespace: namespace, Name: name})
		if isGone(err) {
			return nil, nil
		}
		return o, err
	}
}

// isGone reports whether an error says that the object is not there, and not that its kind is not served: then the API
// server's response names no object, or is not even a Status.
func isGone(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return true
	}
	details := status.ErrStatus.Details
	return details == nil || details.Name != ""
}

var verbs = map[plan.Action]string{
	plan.Create: "creating", plan.Update: "updating", plan.Recreate: "replacing", plan.Delete: "deleting",
}
