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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// A ConflictError says that a child cannot be created because an object of its name exists that is no child of the parent and
// this controller.
type ConflictError struct {
	// Key is the child.
	Key children.Key
	// Parent is the parent, for people.
	Parent string
	// Controlled says that the parent controls the object, which is not this controller's all the same: another controller of
	// the parent created it, or its labels or annotations were changed.
	Controlled bool
	// Owner is what controls the object, as in "Thing name"; empty if nothing does. If the parent does, it is the controller whose child the
	// object may be, as in "CompositeController name".
	Owner string
	// Itself says that the object is the parent.
	Itself bool
	// Attaches says that the controller is a DecoratorController, which adopts nothing.
	Attaches bool
}

// Error implements error.
func (e *ConflictError) Error() string {
	switch {
	case e.Itself && e.Attaches:
		return fmt.Sprintf("%s is the target itself, which cannot be an attachment; to change it, return labels, annotations or status of the response "+
			"in place of it", e.Key)
	case e.Itself:
		return fmt.Sprintf("%s is the parent itself, which cannot be its own child; leave it out of children, and return its status as that of the response",
			e.Key)
	}
	if e.Controlled {
		whose := ""
		if e.Owner != "" {
			whose = ", perhaps to " + e.Owner
		}
		return fmt.Sprintf("%s exists and belongs to %s, but not to this controller, by its labels and annotations%s; delete or rename one of them",
			e.Key, e.Parent, whose)
	}
	switch e.Owner {
	case "":
	case e.Parent:
		return fmt.Sprintf("%s exists and is controlled by another %s, perhaps a former one; the garbage collector deletes it then, and it is created again",
			e.Key, e.Parent)
	default:
		return fmt.Sprintf("%s exists and is not controlled by %s, but by %s; delete or rename one of them", e.Key, e.Parent, e.Owner)
	}
	text := fmt.Sprintf("%s exists and is not controlled by %s; delete or rename one of them", e.Key, e.Parent)
	if !e.Attaches {
		text += ", or let the parent adopt it by its labels"
	}
	return text
}

// Applier carries out plans. It is safe for concurrent use.
type Applier struct {
	client *client.Client
	slots  *fairqueue.Budget
	// pace spreads trials for which nobody waits over time: each goes through the webhooks of the cluster.
	pace flowcontrol.RateLimiter
	// each bounds the writes of one parent.
	each int
	// controller is whose children are written, and attaches says that it is a DecoratorController.
	controller string
	attaches   bool
}

// Options configure an Applier.
type Options struct {
	// Client writes.
	Client *client.Client
	// Writes is the number of concurrent writes of all parents. Default 64. Controllers that wait for them have turns, and one of them has three
	// quarters at most.
	Writes int
	// Behind reports whether the caches are so far behind that fewer writes should be made at once: a quarter of Writes. An API
	// server that is kept busy with writes delivers their events late, and parents wait for those. Nil: never.
	Behind func() bool
	// WritesPerParent is the number of concurrent writes of one parent's children. Default 8.
	WritesPerParent int
}

// paceRate is how many trials for which nobody waits are made in a second, of all controllers together.
const paceRate = 1000.0 / 60

// New returns an applier.
func New(o Options) *Applier {
	return &Applier{
		client: o.Client, slots: newSlots(int64(cmp.Or(o.Writes, 64)), o.Behind), each: cmp.Or(o.WritesPerParent, 8),
		pace: flowcontrol.NewTokenBucketRateLimiter(paceRate, 1),
	}
}

// newSlots returns slots for the writes of all controllers together, a quarter of them while the caches are behind. One controller has three
// quarters of these at most: an API server that hangs holds them for as long as requests may take, and what is left is for the writes of others.
func newSlots(writes int64, behind func() bool) *fairqueue.Budget {
	return fairqueue.Slots(func() (all, each int64) {
		all = writes
		if behind != nil && behind() {
			all = max(1, writes/4)
		}
		return all, max(1, all-all/4)
	})
}

// With returns an applier that writes with another client, within the limits of a.
func (a *Applier) With(c *client.Client) *Applier {
	own := *a
	own.client = c
	return &own
}

// For returns an applier that writes the children of a controller, which are attachments if it is a DecoratorController, within the limits of
// a: it has turns with those of other controllers where writes have to wait.
func (a *Applier) For(controller string, attaches bool) *Applier {
	own := *a
	own.controller, own.attaches = controller, attaches
	return &own
}

// AwaitTurn waits until a child may be tried once more for which nobody waits. The error says that ctx has ended.
func (a *Applier) AwaitTurn(ctx context.Context) error { return a.pace.Wait(ctx) }

// Apply carries out a plan and returns what happened to each child that was to be changed: it deletes, then writes Namespaces, and then the
// children that may be in them. The error joins those of all children; one that fails, or panics, does not stop the others.
func (a *Applier) Apply(ctx context.Context, p plan.Plan) ([]plan.Outcome, error) {
	var deletes, namespaces, writes []plan.Step
	for i := range p.Steps {
		switch step := p.Steps[i]; {
		case step.Action == plan.Delete, step.Action == plan.Recreate:
			deletes = append(deletes, step)
		case step.Action == plan.Leave:
		case isNamespace(step.Key):
			namespaces = append(namespaces, step)
		default:
			writes = append(writes, step)
		}
	}
	var outcomes []plan.Outcome
	var errs []error
	for _, steps := range [][]plan.Step{deletes, namespaces, writes} {
		ended := make([]plan.Outcome, len(steps))
		for i := range steps {
			ended[i].Step = steps[i] // One that panics has it, too.
		}
		_, failed := side(ctx, a, len(steps), "writing a child of "+p.ParentName, func(i int) (any, error) { return nil, a.one(ctx, p, &ended[i]) })
		outcomes, errs = append(outcomes, ended...), append(errs, failed...)
	}
	return outcomes, errors.Join(errs...)
}

func isNamespace(key children.Key) bool { return key.Group == "" && key.Kind == "Namespace" }

// side calls f for each number below count, some at a time and each within a slot, and returns what it returns.
func side[T any](ctx context.Context, a *Applier, count int, what string, f func(i int) (T, error)) (results []T, errs []error) {
	results, errs = make([]T, count), make([]error, count)
	var running sync.WaitGroup
	mine := make(chan struct{}, a.each)
	for i := range count {
		mine <- struct{}{}
		carryOut := func() {
			defer func() { <-mine }()
			errs[i] = recovery.Call(ctx, what, func() (err error) {
				if err = a.slots.Acquire(ctx, a.controller, 1); err != nil {
					return err
				}
				defer a.slots.Release(a.controller, 1)
				results[i], err = f(i)
				return err
			})
		}
		if i < count-1 {
			running.Go(carryOut)
		} else {
			// This goroutine would only wait, and its stack is large already.
			carryOut()
		}
	}
	running.Wait()
	return results, errs
}

// errPanicked is what the span of a step that did not end ends with.
var errPanicked = errors.New("the step ended in a panic")

func (a *Applier) one(ctx context.Context, p plan.Plan, outcome *plan.Outcome) (err error) {
	ctx, span := tracing.Write(ctx, string(outcome.Action), outcome.GroupKind(), outcome.Key.Namespace, outcome.Key.Name)
	err = errPanicked // Unless the step ends.
	defer func() { span.End(err) }()
	if outcome.Deletes() {
		err = a.delete(ctx, p, outcome)
	} else {
		err = a.write(ctx, p, outcome)
	}
	if err != nil {
		outcome.Unknown = lost(err)
		return fmt.Errorf("%s %s: %w", verbs[outcome.Action], outcome.Key, err)
	}
	outcome.Unknown = outcome.Stale && lost(outcome.Cause) // It may be stale by an attempt of this step's that seemed to fail.
	return nil
}

// lost reports whether an error leaves open what the API server did: there was no response, one that could not be read, or one that says
// that it failed, if only to an attempt before the last one.
func lost(err error) bool {
	_, sent := errors.AsType[*url.Error](err)
	_, repeated := errors.AsType[*client.RepeatedError](err)
	if sent || repeated || errors.Is(err, client.ErrUnread) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

func (a *Applier) write(ctx context.Context, p plan.Plan, outcome *plan.Outcome) (err error) {
	target := targetOf(outcome.Resource, outcome.Key)
	var warnings client.Warnings
	ctx = warnings.Collect(ctx)
	defer func() { outcome.Warnings = warnings.All() }()
	if outcome.Action == plan.Create {
		err = a.create(ctx, p, target, outcome)
	} else {
		err = a.update(ctx, p, target, outcome)
	}
	if conflict := ownership(err); conflict != nil {
		return conflict
	}
	err = a.invalid(err, &outcome.Step)
	if outcome.Action != plan.Create && (apierrors.IsConflict(err) || client.IsGone(err)) {
		outcome.Stale, outcome.Cause, outcome.Written = true, err, nil
		return nil
	}
	if err != nil || outcome.Stale {
		outcome.Written = nil
		return err
	}
	outcome.Done, outcome.Moved = changed(outcome.Observed, outcome.Written), nil
	return nil
}

// changed reports whether a write changed an object. The API server may have found nothing to change.
func changed(observed, written *object.Object) bool {
	return observed == nil || written.ResourceVersion() != observed.ResourceVersion()
}

// update sends what the step has.
func (a *Applier) update(ctx context.Context, p plan.Plan, target client.Target, outcome *plan.Outcome) (err error) {
	before := outcome.Observed
	if outcome.Migration != nil {
		// What it moves is in the managedFields.
		err = a.With(a.client.Whole()).insist(ctx, p, outcome, before, func(over *object.Object) error {
			before, err = a.migrate(ctx, p, target, outcome, over)
			return err
		})
		if err != nil {
			return err
		}
	}
	switch {
	case outcome.Body == nil:
	case outcome.Manager != "":
		err = a.insist(ctx, p, outcome, before, func(over *object.Object) error {
			// It has the owner reference, too, and would take back a child that was orphaned or released meanwhile.
			outcome.Written, err = request{metrics.Apply, over}.count(a.apply(ctx, &outcome.Step, over.ResourceVersion(), false))
			return err
		})
	default:
		err = a.insist(ctx, p, outcome, before, func(over *object.Object) error {
			if err := planOver(p, outcome, over); err != nil || outcome.Body == nil {
				outcome.Written = over
				return err
			}
			outcome.Written, err = request{metrics.Update, over}.count(a.client.Update(ctx, target, outcome.Body))
			return err
		})
	}
	return err
}

// migrate moves the fields of a child to the manager of the step, and returns the child as it is then.
func (a *Applier) migrate(ctx context.Context, p plan.Plan, target client.Target, outcome *plan.Outcome, over *object.Object) (*object.Object, error) {
	if err := planOver(p, outcome, over); err != nil {
		return nil, err
	}
	if outcome.Written = over; outcome.Migration == nil {
		return over, nil
	}
	moved, err := request{metrics.Update, over}.count(a.client.Patch(ctx, target, types.JSONPatchType, outcome.Migration))
	if err != nil {
		return nil, fmt.Errorf("moving its fields to %s: %w", outcome.Manager, err)
	}
	if outcome.Written = moved; changed(over, moved) {
		outcome.Moved = moved
	}
	return moved, nil
}

// planOver plans a step anew over the child as it was read since, if it was. It fails with a conflict if the child is not to be updated any more.
func planOver(p plan.Plan, outcome *plan.Outcome, latest *object.Object) error {
	if latest == outcome.Observed {
		return nil
	}
	step, err := p.Over(&outcome.Step, latest)
	switch {
	case err != nil:
		return fmt.Errorf("planning it over what another client wrote: %w", err)
	case step.Manager != outcome.Manager || step.Action != plan.Update && step.Reason != plan.Same:
		return apierrors.NewConflict(step.Resource.GroupResource(), step.Name,
			errors.New("another client changed it so that it needs another write than was planned"))
	}
	outcome.Step = step
	return nil
}

// create creates a child. If the object that had its name is deleted in the very moment, no event of it concerns the parent; so
// the child is created again then.
func (a *Applier) create(ctx context.Context, p plan.Plan, target client.Target, outcome *plan.Outcome) error {
	send := func() (err error) {
		outcome.Written, err = request{verb: metrics.Create}.count(a.send(ctx, &outcome.Step))
		return err
	}
	err := send()
	if exists := apierrors.IsAlreadyExists(err) || outcome.Manager != "" && apierrors.IsConflict(err); !exists {
		return err
	}
	outcome.Cause = err
	if err := a.readExisting(ctx, p, target, outcome); err != nil || outcome.Stale {
		return err
	}
	return send()
}

// readExisting reads the object that has the name of a child to be created. It returns a ConflictError if it is not the parent's,
// notes that the step is stale if it is, and does neither if it is gone.
func (a *Applier) readExisting(ctx context.Context, p plan.Plan, target client.Target, outcome *plan.Outcome) error {
	existing, err := a.client.Get(ctx, target)
	if client.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the object of that name: %w", err)
	}
	if !existing.ControlledBy(p.Parent) {
		return a.Conflict(outcome.Key, p.Parent, p.ParentName, existing)
	}
	outcome.Stale, outcome.Existing = true, existing
	return nil
}

// Conflict returns the error of a child whose name an object has that the parent does not control.
func (a *Applier) Conflict(key children.Key, parent types.UID, parentName string, existing *object.Object) *ConflictError {
	conflict := &ConflictError{Key: key, Parent: parentName, Itself: existing.UID() == parent, Attaches: a.attaches}
	if owner := existing.Controller(); owner != nil {
		conflict.Owner = children.Key{Kind: owner.Kind, Namespace: existing.Namespace(), Name: owner.Name}.String()
		if unscoped := (children.Key{Kind: owner.Kind, Name: owner.Name}).String(); unscoped == parentName {
			conflict.Owner = parentName // A former one, of a kind that has no namespaces.
		}
	}
	return conflict
}

func (a *Applier) delete(ctx context.Context, p plan.Plan, outcome *plan.Outcome) error {
	target := targetOf(outcome.Resource, outcome.Key)
	err := a.insist(ctx, p, outcome, outcome.Observed, func(o *object.Object) error {
		deletion, err := a.client.Delete(ctx, target, o.UID(), o.ResourceVersion())
		if outcome.Left = deletion.Left; deletion.Gone {
			outcome.Gone = o
		}
		_, err = request{verb: metrics.Delete}.count(nil, err)
		return err
	})
	if apierrors.IsConflict(err) || client.IsGone(err) {
		outcome.Stale, outcome.Cause = true, err
		return nil
	}
	outcome.Done = err == nil
	return err
}

// maxInsisting is how often a child that changes all the time is read again to be written as it is.
const maxInsisting = 3

// insist makes a write over the child as it was observed and, if the plan insists, over the child as it is, as long as it is the parent's still and
// has the labels that it had.
func (a *Applier) insist(ctx context.Context, p plan.Plan, outcome *plan.Outcome, over *object.Object, write func(over *object.Object) error) error {
	err := write(over)
	for range maxInsisting {
		if !p.Insists || !apierrors.IsConflict(err) || ownership(err) != nil {
			break
		}
		latest, errLatest := a.client.Get(ctx, targetOf(outcome.Resource, outcome.Key))
		if errLatest != nil || !children.Stays(over, latest, p.Parent) {
			break
		}
		err = write(latest)
	}
	return err
}

func targetOf(resource schema.GroupVersionResource, key children.Key) client.Target {
	return client.Target{Resource: resource, Namespace: key.Namespace, Name: key.Name}
}

var verbs = map[plan.Action]string{
	plan.Create: "creating", plan.Update: "updating", plan.Recreate: "replacing", plan.Delete: "deleting",
}

// request is a request that writes a child.
type request struct {
	verb metrics.Verb
	// before is the child as it is known before the request. Nil: it is not.
	before *object.Object
}

// count counts the request in the metrics and returns what it is given, which is the response.
func (r request) count(after *object.Object, err error) (*object.Object, error) {
	metrics.ChildWrite(r.verb, r.outcome(after, err))
	return after, err
}

func (r request) outcome(after *object.Object, err error) metrics.Outcome {
	_, responded := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil && (r.verb == metrics.Trial || r.before != nil && after != nil && r.before.ResourceVersion() == after.ResourceVersion()):
		return metrics.Unchanged
	case err == nil:
		return metrics.Written
	case !responded:
		return metrics.Unanswered
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), r.verb != metrics.Create && client.IsGone(err):
		return metrics.Conflicted
	}
	return metrics.Rejected
}

// Patch sends a merge patch of the metadata of a child, outside of plans: adopting and releasing do. The error is that of the client.
func (a *Applier) Patch(ctx context.Context, target client.Target, patch []byte) (*object.Object, error) {
	return request{verb: metrics.Update}.count(a.client.Patch(ctx, target, types.MergePatchType, patch))
}

// send sends a child to be created. Server-side apply takes over an object that is there already, which must not
// happen by its name (docs/reference/compatibility.md#d13). A version in the body prevents it: the API server compares it with
// that of an existing object, where it never fits, and does not look at it when there is none.
func (a *Applier) send(ctx context.Context, step *plan.Step) (*object.Object, error) {
	if step.Manager != "" {
		return a.apply(ctx, step, impossibleVersion, false)
	}
	return a.client.Create(ctx, client.Target{Resource: step.Resource, Namespace: step.Namespace}, step.Body)
}

// apply applies a child, or tries that, in a version: the API server refuses it for an object in any other one.
func (a *Applier) apply(ctx context.Context, step *plan.Step, version string, try bool) (*object.Object, error) {
	body, err := withVersion(step.Body, version)
	if err != nil {
		return nil, err
	}
	return a.client.Apply(ctx, targetOf(step.Resource, step.Key), client.Application{Manager: step.Manager, Force: step.Force, Body: body, Try: try})
}

// impossibleVersion is the version of no object: etcd's first write has number 2.
const impossibleVersion = "1"

// withVersion returns what is applied with a version.
func withVersion(body []byte, version string) ([]byte, error) {
	var content map[string]any
	// It keeps integers that are too large for a float.
	if err := utiljson.Unmarshal(body, &content); err != nil {
		return nil, fmt.Errorf("decoding what is applied: %w", err)
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("the object has no metadata")
	}
	metadata["resourceVersion"] = version
	return json.Marshal(content)
}

// An OwnershipError says that a child was not applied because other field managers own fields of it, and force is false. It does
// not wrap the API server's error: that is a conflict, and this one does not go away when the child is read again.
type OwnershipError struct {
	// Fields say which manager owns which field.
	Fields []string
}

// Error implements error.
func (e *OwnershipError) Error() string {
	return fmt.Sprintf("other field managers own what is to be applied, and updateStrategy.force is false: %s", children.Enumerate(e.Fields))
}

// ownership returns an OwnershipError if that is what an error of the API server is about, nil otherwise.
func ownership(err error) *OwnershipError {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, cause.Field+" ("+cause.Message+")")
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return &OwnershipError{Fields: fields}
}

const (
	// maxCauses is how many fields are named, and maxValue how long a value may be that is repeated, in bytes.
	maxCauses = 3
	maxValue  = 40
)

// An InvalidError says that the API server refuses a child as invalid. Its text has the fields and reasons, and not the values, of which
// the API server's own text may have pages.
type InvalidError struct {
	// Causes are the fields and why each is refused, as in "spec.selector: field is immutable".
	Causes []string
	// Immutable says that a field cannot be changed in an existing object.
	Immutable bool
	// Record says that the annotations are too long with the record of what was applied, which no author has set.
	Record bool
	// Attaches says that the controller is a DecoratorController, whose attachments do not roll.
	Attaches bool
	// Err is the API server's error.
	Err error
}

// Error implements error.
func (e *InvalidError) Error() string {
	text := strings.Join(e.Causes, "; ")
	if e.Immutable {
		rolling := ", or RollingRecreate for a rolling update"
		if e.Attaches {
			rolling = ""
		}
		text += "; to have the child deleted and created anew, set updateStrategy.method of its kind to Recreate" + rolling +
			"; to keep it, return the present value"
	}
	if e.Record {
		text += "; " + merge.Annotation + " is among them, which this server adds to a child that it merges; server-side apply needs none: set " +
			"updateStrategy.apply of its kind to ServerSide"
	}
	return text
}

// Unwrap returns the API server's error.
func (e *InvalidError) Unwrap() error { return e.Err }

// invalid returns an InvalidError if that is what an error of the API server about a step is, and the error as it is otherwise. Of a child with
// secrets no values are repeated.
func (a *Applier) invalid(err error, step *plan.Step) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Reason != metav1.StatusReasonInvalid || status.ErrStatus.Details == nil {
		return err
	}
	result := &InvalidError{Err: err, Attaches: a.attaches}
	for _, cause := range status.ErrStatus.Details.Causes {
		reason := withoutDump(cause.Message, step.Secret())
		if step.Action == plan.Update && immutable(reason) {
			result.Immutable = true
		}
		if step.Manager == "" && cause.Field == "metadata.annotations" && cause.Type == metav1.CauseType(field.ErrorTypeTooLong) {
			result.Record = true
		}
		if cause.Field != "" && cause.Field != "<nil>" {
			reason = cause.Field + ": " + reason
		}
		result.Causes = append(result.Causes, reason)
	}
	if len(result.Causes) == 0 {
		return err
	}
	if more := len(result.Causes) - maxCauses; more > 0 {
		result.Causes = append(result.Causes[:maxCauses], "and more")
	}
	return result
}

// immutable reports whether the API server's reason says that a field cannot be changed.
func immutable(reason string) bool {
	return slices.ContainsFunc([]string{
		"immutable", "may not change", "may not be changed", "cannot be changed", "can not be changed", "may not be updated",
		"updates to statefulset spec for fields other than", "may not be modified", "once set",
	}, func(text string) bool { return strings.Contains(reason, text) })
}

// withoutDump returns what an API server says about a field without what follows on further lines, which is a difference between
// structs, and without a value that is long, a struct, or secret.
func withoutDump(message string, secret bool) string {
	message, _, _ = strings.Cut(message, "\n")
	rest, found := strings.CutPrefix(message, "Invalid value: ")
	if !found {
		return message
	}
	end := endOfValue(rest)
	reason, found := strings.CutPrefix(rest[end:], ": ")
	if !found {
		return "Invalid value"
	}
	value := rest[:end]
	if secret || len(value) > maxValue || strings.ContainsAny(value, "{}") {
		return reason
	}
	return "Invalid value: " + value + ": " + reason
}

// endOfValue returns where a value ends that Go's %q or %#v has printed.
func endOfValue(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '`':
			quote = c
		case strings.IndexByte("{[(", c) >= 0:
			depth++
		case strings.IndexByte("}])", c) >= 0:
			depth--
		case depth <= 0 && strings.HasPrefix(text[i:], ": "):
			return i
		}
	}
	return len(text)
}
