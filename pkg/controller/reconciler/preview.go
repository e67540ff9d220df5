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

package reconciler

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// noting is the writer of a sync that does nothing and notes what it would do. One goroutine uses it.
type noting struct {
	s *Sync
	// given are responses that are taken in place of calls of hooks.
	given map[asked][]byte
	// permitsRelated, unless it is nil, is asked before objects are looked for that a given response selects.
	permitsRelated func(ctx context.Context, selected []inspection.Place) error
	// dryRun has children checked by the API server.
	dryRun bool
	// deletions says that the sync ends where the hooks would be called, if there are no children.
	deletions bool
	// asks says that the sync ends where the hook would be called: only the requests are wanted, of one hook if only is set.
	asks bool
	only hook.Name
	// permit, unless it is nil, says that the hooks are called for their responses, each if it returns nil for what is shown.
	permit func(shown []inspection.Place) error

	// plan is what would be written, and requests are those that hooks would be sent.
	plan     v1alpha1.ParentPlan
	requests []v1alpha1.HookRequest
	// shown are the places of objects that people see, and size is that of the bodies of requests.
	shown map[inspection.Place]struct{}
	size  int
}

// asked is a call of a hook about one parent.
type asked struct {
	hook     hook.Name
	revision string
}

// Requests implements inspection.Controller.
func (c *Controller) Requests(
	ctx context.Context, ref v1alpha1.ParentReference, o inspection.RequestOptions,
) ([]v1alpha1.HookRequest, []inspection.Place, error) {
	n := &noting{asks: true, only: hook.Name(o.Hook), permit: o.Call}
	switch err := c.preview(ctx, ref, n); {
	case errors.Is(err, inspection.ErrTooLarge):
		return nil, nil, err
	case err != nil:
		return nil, nil, errors.New(message(err))
	}
	return n.requests, n.places(), nil
}

// Plan implements inspection.Controller.
func (c *Controller) Plan(ctx context.Context, ref v1alpha1.ParentReference, o inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	n := &noting{dryRun: o.DryRun, deletions: o.Deletions, permitsRelated: o.Relate, given: make(map[asked][]byte, len(o.Responses))}
	for i := range o.Responses {
		given := &o.Responses[i]
		n.given[asked{hook.Name(given.Hook), given.Revision}] = given.Body.Raw
	}
	err := c.preview(ctx, ref, n)
	n.plan.ParentReference = ref
	if err != nil {
		n.plan.Error = message(err)
	}
	_, n.plan.Message = c.stateIs(c.parents.ofSync(keyOf(ref)), true, nil, false)
	return n.plan, n.places()
}

// preview does a sync of a parent that does nothing.
func (c *Controller) preview(ctx context.Context, ref v1alpha1.ParentReference, n *noting) error {
	if c.shared.Access.Held() {
		return errors.New("the controller is held, because its service account may not read what it needs; see its condition Permitted")
	}
	s := c.open(keyOf(ref), turn{})
	if s == nil {
		return errors.New("it is no parent of the controller, or not any more")
	}
	s.Writer, s.hooks, n.s = n, c.hooks.Quiet(), s
	err := recovery.Call(ctx, "previewing a sync", func() error {
		// What a sync logs is what it does, and of what it writes it is known whether it may.
		return s.run(klog.NewContext(client.Unobserved(ctx), klog.Logger{}))
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Remember implements Writer.
func (*noting) Remember(func()) {}

func (n *noting) relate(ctx context.Context) ([]wire.Group, error) {
	if n.deletions && len(n.s.Observed) == 0 {
		return nil, errEnough
	}
	return n.related(ctx)
}

func (n *noting) related(ctx context.Context) ([]wire.Group, error) {
	s, c, called, asks := n.s, n.s.controller, n.s.hooks.Customize, n.s.asks()
	if called == nil {
		if n.only == hook.Customize {
			return nil, errors.New("the controller has no customize hook")
		}
		return nil, nil
	}
	if n.asks && (n.only == hook.Customize || n.only == "" && !c.customizer.Remembers(asks)) {
		response, err := n.response(ctx, called, asks.Request(), CustomizeResponse)
		if err != nil {
			return nil, err
		}
		shown := wire.Customize(wire.Request{Controller: asks.Controller, Parent: withoutSecrets(asks.Parent)})
		if err := n.request(called.Name, "", shown, response); err != nil {
			return nil, err
		}
	}
	if n.only == hook.Customize {
		return nil, errEnough
	}
	body, given := n.given[asked{hook: hook.Customize}]
	if given && !n.gives(hook.Sync) && !n.gives(hook.Finalize) {
		// Else a caller would decide which objects of the cluster the hook is sent.
		return nil, errors.New("a response of the customize hook is taken only together with those of the sync or finalize hook")
	}
	confined := s.confined()
	asking := related.Asking{
		Hook: called, Given: given, Confined: confined,
		Ask: func(ctx context.Context) (*wire.CustomizeResponse, error) {
			if given {
				return called.GivenRelated(body)
			}
			return called.Related(ctx, s.Root, asks.Request())
		},
	}
	if given {
		asking.Permit = n.permitsRelated
	}
	found, err := c.customizer.Look(ctx, asks, asking)
	groups := make([]wire.Group, len(found))
	for i, g := range found {
		groups[i] = wire.GroupOf(g.Key, g.Objects)
		for _, o := range g.Objects {
			if confined == "" || o.Namespace() == confined {
				n.show(g.Resource.GroupResource(), o)
			}
		}
	}
	return groups, err
}

// confined returns the only namespace of which hooks are shown related objects, empty if it is not the only one: in version v1 a parent sees
// its own (docs/reference/contract.md#s9).
func (s *Sync) confined() string {
	for _, h := range []*hooks.Hook{s.hooks.Sync, s.hooks.Finalize} {
		if h != nil && h.Version == v1alpha1.HookVersionV2 {
			return ""
		}
	}
	return s.Parent.Namespace()
}

func (n *noting) call(ctx context.Context, x exchange) (*hooks.Response, error) {
	s := n.s
	for _, o := range s.Observed {
		if rule, ok := s.controller.rules.For(o.GroupVersionKind().GroupKind()); ok {
			n.show(rule.Resource.GroupResource(), o)
		}
	}
	if n.asks {
		if n.only != "" && n.only != x.called.Name {
			return nil, nil
		}
		response, err := n.response(ctx, x.called, x.request, responseShown(x.decode))
		if err != nil {
			return nil, err
		}
		r := x.request.Request
		r.Parent, r.Children, r.Related = withoutSecrets(r.Parent), groupsWithoutSecrets(r.Children), groupsWithoutSecrets(r.Related)
		return nil, n.request(x.called.Name, x.revision, x.request.Encode(r), response)
	}
	if body, ok := n.given[asked{x.called.Name, x.revision}]; ok {
		// Whoever gives it was shown the request without values of Secrets.
		return x.called.Given(s.Root, body, revealed(x.decode, s.Parent.Namespace(), s.Observed))
	}
	if n.gives(hook.Sync) || n.gives(hook.Finalize) {
		return nil, fmt.Errorf("responses are given, and none to the request of the %s hook with the revision %q", x.called.Name, x.revision)
	}
	return x.called.Call(ctx, s.Root, x.request, x.decode)
}

// response returns what people may see of the response to a request, nil if it is not wanted.
func (n *noting) response(
	ctx context.Context, called *hooks.Hook, r hooks.Request, read func([]byte, wire.ResponseOptions) ([]byte, error),
) ([]byte, error) {
	if n.permit == nil {
		return nil, nil
	}
	if err := n.permit(n.places()); err != nil {
		return nil, err
	}
	return called.Shown(ctx, r, read)
}

// gives reports whether a response of a hook is given.
func (n *noting) gives(name hook.Name) bool {
	for given := range n.given {
		if given.hook == name {
			return true
		}
	}
	return false
}

// RemoveFinalizer implements Writer. What follows is decided by the parent without the finalizer.
func (n *noting) RemoveFinalizer(ctx context.Context) error {
	if f := n.s.controller.finalizer; f.On(n.s.Parent) {
		return n.setFinalizers(ctx, f.Without(n.s.Parent))
	}
	return nil
}

// WriteParent implements Writer.
func (n *noting) WriteParent(_ context.Context, changes parent.Changes) error {
	if n.s.controller.pointless(n.s.record, changes.Status, n.s.stored) {
		changes.Status = nil
	}
	return n.change(n.s.Parent, changes)
}

// DeleteParent implements Writer.
func (n *noting) DeleteParent(context.Context) error {
	n.plan.Delete = true
	return nil
}

// WriteRevision implements Writer.
func (n *noting) WriteRevision(operation, name string, _ func() error) error {
	n.plan.Revisions = append(n.plan.Revisions, v1alpha1.RevisionPlan{Action: operation, Name: name})
	return nil
}

// Open fills the caches of a controller that does not run, so that it can be asked what it would do. It waits until ctx ends. Close ends
// the use of the caches; a controller that was opened is never run.
func (c *Controller) Open(ctx context.Context) (shut func(), err error) {
	c.acquire()
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	permitted := newSignal()
	if c.shared.Access != nil {
		running.Go(func() { c.shared.Cluster.Credentials.Run(reading) })
		running.Go(func() { c.shared.Access.Run(reading, c.customizer.Resources, func(bool) { permitted.raise() }) })
	}
	shut = func() {
		end()
		running.Wait()
		c.shut()
	}
	if !c.informers.Await(ctx) {
		shut()
		return nil, fmt.Errorf("filling the caches of the candidate: %w", context.Cause(ctx))
	}
	if c.shared.Access.Held() {
		select {
		case <-permitted:
		case <-time.After(reviewLimit): // Its plans say that it is held.
		case <-ctx.Done():
		}
	}
	close(c.started)
	return shut, nil
}

// reviewLimit is how long a candidate waits for the review of its service account.
const reviewLimit = 5 * time.Second

// maxSize is the most that the requests about one parent, with their responses, may have in bytes. Each of those during a rolling update
// repeats the children and the related objects.
const maxSize = 32 << 20

// show notes that an object of a resource is shown.
func (n *noting) show(resource schema.GroupResource, o *object.Object) {
	n.shown = with(n.shown, inspection.Place{GroupResource: resource, Namespace: o.Namespace()}, struct{}{})
}

func (n *noting) places() []inspection.Place { return slices.Collect(maps.Keys(n.shown)) }

// request notes the body of a request and that of the response, nil if it was not asked for, as people may see them. The error,
// inspection.ErrTooLarge, says that they are more than are shown of one parent.
func (n *noting) request(name hook.Name, revision string, body, response []byte) error {
	if n.size += len(body) + len(response); n.size > maxSize {
		return fmt.Errorf("%w: they have more than %d MiB", inspection.ErrTooLarge, maxSize>>20)
	}
	noted := v1alpha1.HookRequest{Hook: string(name), Revision: revision, Body: runtime.RawExtension{Raw: body}}
	if response != nil {
		noted.Response = &runtime.RawExtension{Raw: response}
	}
	n.requests = append(n.requests, noted)
	return nil
}

func (n *noting) setFinalizers(_ context.Context, wanted []string) (err error) {
	o := n.s.Parent
	n.plan.Changes = append(n.plan.Changes, fieldChange("metadata.finalizers", plainOf(o.Finalizers()), plainOf(wanted)))
	n.s.Parent, err = edited(o, "finalizers", plainOf(wanted))
	return err
}

// change notes changes of the parent, as people may see them: of a Secret, the copies of its values in annotations are hidden.
func (n *noting) change(o *object.Object, changes parent.Changes) error {
	fields, err := changes.Fields(o)
	if err != nil {
		return err
	}
	for _, f := range fields {
		list := differences(strings.Join(f.Path, "."), o.Value(f.Path...), plainOf(f.Value))
		for i := range list {
			if isSecret(o) && slices.ContainsFunc(lastApplied, func(name string) bool { return list[i].Path == "metadata.annotations["+name+"]" }) {
				hideValues(&list[i])
			}
		}
		n.plan.Changes = append(n.plan.Changes, list...)
	}
	return nil
}

// Claim implements Writer.
func (n *noting) Claim(_ context.Context, action v1alpha1.ChildAction, _ client.Target, o *object.Object, patch []byte) (*object.Object, error) {
	n.plan.Children = append(n.plan.Children, childPlan(o, action))
	var patched struct {
		Metadata struct {
			OwnerReferences any `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(patch, &patched); err != nil {
		return nil, fmt.Errorf("reading who owns %s: %w", o, err)
	}
	return edited(o, "ownerReferences", patched.Metadata.OwnerReferences)
}

// childPlan returns the plan of an observed child.
func childPlan(o *object.Object, action v1alpha1.ChildAction) v1alpha1.ChildPlan {
	return v1alpha1.ChildPlan{APIVersion: o.APIVersion(), Kind: o.Kind(), Namespace: o.Namespace(), Name: o.Name(), Action: action}
}

// leave implements Writer: the response is one that was carried out before.
func (n *noting) leave() {
	for _, o := range n.s.Observed {
		left := childPlan(o, v1alpha1.ChildLeave)
		left.Reason = string(plan.Same)
		n.plan.Children = append(n.plan.Children, left)
	}
}

// edited returns an object with another value of a field of its metadata.
func edited(o *object.Object, field string, value any) (*object.Object, error) {
	content, err := o.Decode()
	if err != nil {
		return nil, err
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s has no metadata", o)
	}
	metadata[field] = value
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o, err)
	}
	return object.Parse(encoded, object.ParseOptions{KeepManagedFields: true})
}

// reconcile notes what would be done with the children. The error is that of the sync.
func (n *noting) reconcile(ctx context.Context, in plan.Input) error {
	s, c := n.s, n.s.controller
	made, err := makePlan(in)
	held := !c.guard.Would(made.Deletions(), time.Now())
	s.deletedChildren = err == nil && !held && !slices.ContainsFunc(made.Steps, func(step plan.Step) bool {
		return step.Action == plan.Recreate || step.HoldsDeletion()
	})
	var refused map[children.Key]error
	var said map[children.Key]string
	if n.dryRun {
		refused, said = c.shared.Applier.Check(ctx, made)
	}
	errs := []error{err}
	for i := range made.Steps {
		step := &made.Steps[i]
		child := stepPlan(step)
		cause := refused[step.Key]
		if step.Action == plan.Create {
			if conflict := s.conflict(step.Key); conflict != nil {
				cause, child.Reason = conflict, reasonConflict
			}
		}
		switch {
		case held && step.Deletes():
			child.Action, child.Reason = v1alpha1.ChildRefuse, reasonHeld
			child.Message = "spec.deletionGuard.maxDeletions does not allow it now: the deletion would be held until it is confirmed"
		case cause != nil:
			child.Action, child.Reason, child.Message = v1alpha1.ChildRefuse, cmp.Or(child.Reason, reasonRefused), message(cause)
			errs = append(errs, cause)
		case said[step.Key] != "":
			child.Message = said[step.Key]
		}
		n.plan.Children = append(n.plan.Children, child)
	}
	n.rest(made, err)
	return errors.Join(errs...)
}

// Reasons of a refusal, beside those of plans.
const (
	reasonConflict = "Conflict"
	reasonHeld     = "DeletionsHeld"
	reasonRefused  = "RefusedByDryRun"
	reasonFailed   = "Failed"
	reasonRollout  = "Rollout"
)

// rest notes the children that a plan does not deal with: err is about those for which no step could be worked out.
func (n *noting) rest(made plan.Plan, err error) {
	for _, key := range made.Failed {
		failed := v1alpha1.ChildPlan{
			Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Action: v1alpha1.ChildRefuse, Reason: reasonFailed, Message: message(err),
		}
		if rule, ok := n.s.controller.rules.For(key.GroupKind()); ok {
			failed.APIVersion = rule.Kind.GroupVersion().String()
		}
		n.plan.Children = append(n.plan.Children, failed)
	}
	left := sets.New(made.Kept...)
	for _, o := range n.s.Observed {
		if left.Has(children.KeyOf(o)) {
			kept := childPlan(o, v1alpha1.ChildLeave)
			kept.Reason, kept.Message = reasonRollout, "the rolling update has not reached it"
			n.plan.Children = append(n.plan.Children, kept)
		}
	}
}

// messages explain why a child is left as it is.
var messages = map[plan.Reason]string{
	plan.OnDelete: "it differs, and its update method OnDelete leaves it until it is deleted",
	plan.Deleting: "it is being deleted",
	plan.Flapping: "it is changed back after every write, and is left alone for a while",
	plan.Stale:    "it changed after it was observed, and is looked at again",
	plan.Untried:  "it would have to be deleted, and it cannot be tried whether the differences are the API server's doing",
}

// stepPlan returns a step as people see it.
func stepPlan(s *plan.Step) v1alpha1.ChildPlan {
	child := v1alpha1.ChildPlan{
		APIVersion: s.Resource.GroupVersion().String(), Kind: s.Kind, Namespace: s.Namespace, Name: s.Name,
		Action: v1alpha1.ChildAction(s.Action), Reason: string(s.Reason), Message: messages[s.Reason], FieldManager: s.Manager,
	}
	for _, c := range s.ShownChanges() {
		child.Changes = append(child.Changes, fieldChange(c.Path, c.Observed, c.Desired))
	}
	if s.Action == plan.Create {
		body := slices.Clone(s.Body)
		if s.Secret() {
			body = redact(body)
		}
		child.Object = &runtime.RawExtension{Raw: bytes.TrimSpace(body)}
	}
	return child
}

// plainOf returns a value as it is decoded from JSON.
func plainOf(value any) any {
	encoded, err := json.Marshal(value)
	var plain any
	if err != nil || utiljson.Unmarshal(encoded, &plain) != nil {
		return nil // Not reached: it was decoded from JSON.
	}
	return plain
}

// differences returns the places at which two values differ. Lists are one value.
func differences(path string, before, after any) []v1alpha1.FieldChange {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	one, isMap := before.(map[string]any)
	other, areMaps := after.(map[string]any)
	if !isMap && before != nil || !areMaps && after != nil || len(one)+len(other) == 0 {
		return []v1alpha1.FieldChange{fieldChange(path, before, after)}
	}
	keys := map[string]any{}
	maps.Copy(keys, one)
	maps.Copy(keys, other)
	var list []v1alpha1.FieldChange
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		below := path + "." + key
		if strings.ContainsAny(key, "./") {
			below = path + "[" + key + "]"
		}
		list = append(list, differences(below, one[key], other[key])...)
	}
	return list
}

func fieldChange(path string, before, after any) v1alpha1.FieldChange {
	return v1alpha1.FieldChange{Path: path, Observed: textOf(before), Desired: textOf(after)}
}

// textOf returns a value as JSON, nil for none.
func textOf(value any) *string {
	if value == nil {
		return nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil // Not reached: it was decoded from JSON.
	}
	return new(string(encoded))
}

// changesOf returns the places at which an object changes to what after is, as people may see them: values of Secrets are hidden.
func changesOf(o *object.Object, after map[string]any) ([]v1alpha1.FieldChange, error) {
	before, err := o.Decode()
	if err != nil {
		return nil, err
	}
	list := []v1alpha1.FieldChange{}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		list = append(list, differences(key, before[key], after[key])...)
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[key]; !stays {
			list = append(list, differences(key, before[key], nil)...)
		}
	}
	if isSecret(o) {
		for i := range list {
			hideValues(&list[i])
		}
	}
	return list, nil
}

func isSecret(o *object.Object) bool { return o.GroupVersionKind().Group == "" && o.Kind() == "Secret" }

// hideValues says that there are values and not which.
func hideValues(c *v1alpha1.FieldChange) {
	for _, value := range []**string{&c.Observed, &c.Desired} {
		if *value != nil {
			*value = textOf(plan.Hidden)
		}
	}
}
