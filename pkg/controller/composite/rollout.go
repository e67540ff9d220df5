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

package composite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// revisionResource is where revisions are stored: in this process.
var revisionResource = v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions")

// revisionResponses are the responses of the hook about the revisions of a parent.
type revisionResponses struct {
	list []rollout.Response
	// status is that of the latest revision, and unserved are children of all revisions that the cluster does not serve.
	status   map[string]any
	unserved []children.Key
}

// decideRollout calls the hook for every revision of the parent and lets the planner say which children follow which
// (docs/reference/contract.md#s14).
func (k *kind) decideRollout(ctx context.Context, s *reconciler.Sync) error {
	defer func() {
		if !s.Handled() {
			k.doubts.forget(s.Key)
		}
	}()
	asked := s.ParentShown()
	content, err := asked.Decode()
	if err != nil {
		return err
	}
	revisions, err := k.readRevisions(s, content)
	if err != nil {
		return fmt.Errorf("reading the revisions of %s: %w", s.Parent, err)
	}
	responses, err := k.callRevisions(ctx, s, asked, rollout.Live(revisions))
	if err != nil {
		return err
	}
	p, err := k.plan(ctx, s, revisions, responses.list)
	if err != nil {
		return fmt.Errorf("planning the rollout of %s: %w", s.Parent, err)
	}
	if err := k.writeRevisions(ctx, s, p.Writes); err != nil {
		return err
	}
	for _, key := range p.Moved {
		s.Event("RolloutProgressing", "Updating "+key.String()+" to the latest revision")
	}
	status, _ := content["status"].(map[string]any)
	slices.SortFunc(responses.unserved, children.Key.Compare)
	kept := sets.New(p.Kept...)
	s.Decision = reconciler.Decision{
		ResyncAfter: p.ResyncAfter, Finalized: p.Finalized, Desired: p.Desired, Unserved: slices.Compact(responses.unserved),
		Observed: slices.DeleteFunc(slices.Clone(s.Observed), func(o *object.Object) bool { return kept.Has(children.KeyOf(o)) }),
	}
	if responses.status != nil || !s.BuiltIn() {
		updated := parent.Condition{Type: parent.ConditionUpdated, Status: p.Updated.Status, Reason: p.Updated.Reason, Message: p.Updated.Message}
		s.Decision.Status = updated.Apply(responses.status, status, time.Now())
	}
	s.Rollout(p.Updated.Status != metav1.ConditionTrue, p.Outdated, len(p.Moved))
	return nil
}

// plan lets the planner decide how the rollout continues.
func (k *kind) plan(ctx context.Context, s *reconciler.Sync, revisions []rollout.Revision, responses []rollout.Response) (*rollout.Plan, error) {
	observed := children.ByKey(s.Observed)
	in, err := s.Gather(ctx, responses[0].Desired)
	if err != nil {
		return nil, err
	}
	return k.planner.Plan(rollout.Input{
		Revisions: revisions,
		Responses: responses,
		Observed: func(key children.Key) (rollout.Child, bool) {
			o, ok := observed[key]
			return o, ok
		},
		Unchanged: func(d children.Desired) bool { return in.Unchanged(d, observed[d.Key]) },
	})
}

// callRevisions calls the hook about the parent as it is asked about, for each revision, with the same observed children.
func (k *kind) callRevisions(
	ctx context.Context, s *reconciler.Sync, asked *object.Object, revisions []rollout.Revision,
) (all revisionResponses, err error) {
	shown := func(i int) (wire.Object, string, error) {
		if i == 0 {
			return asked, "", nil
		}
		encoded, err := revisions[i].ParentJSON()
		return formerParent{asked, encoded}, revisions[i].Object.Name, err
	}
	err = s.CallEach(ctx, len(revisions), shown, func(i int, response *hooks.Response) error {
		// It counts whatever fails after this (docs/reference/contract.md#s6).
		s.Decision.ResyncAfter = queue.Earliest(s.Decision.ResyncAfter, response.ResyncAfter)
		desired, unserved, err := s.Validate(response)
		// The next call waits for room among all responses that are held.
		response.Release()
		if err != nil {
			return err
		}
		all.list = append(all.list, rollout.Response{Desired: desired, ResyncAfter: response.ResyncAfter, Finalized: response.Finalized})
		all.unserved = append(all.unserved, unserved...)
		if i == 0 {
			all.status = response.Status
		}
		return nil
	})
	return all, err
}

// formerParent is a parent with the fields of a former revision.
type formerParent struct {
	*object.Object

	encoded []byte
}

// JSON implements wire.Object.
func (p formerParent) JSON() []byte { return p.encoded }

// readRevisions returns the revisions of a parent. When one cannot be read, the parent is synced again with the next event of that.
func (k *kind) readRevisions(s *reconciler.Sync, content map[string]any) ([]rollout.Revision, error) {
	for {
		stored, err := k.storedRevisions(s)
		if err != nil {
			return nil, err
		}
		revisions, err := k.planner.Revisions(content, stored)
		begun := false
		if broken, ok := errors.AsType[*rollout.UnreadableError](err); ok {
			s.Remember(func() {
				begun = k.doubts.begin(types.NamespacedName{Namespace: broken.Namespace, Name: broken.Name}, doubt{s.Key, v1alpha1.SyncRetry})
			})
		}
		if !begun {
			return revisions, err
		}
		// An event between the reading and the note has woken nobody.
	}
}

// storedRevisions returns the ControllerRevisions that may be the parent's.
func (k *kind) storedRevisions(s *reconciler.Sync) ([]*v1alpha1.ControllerRevision, error) {
	namespace := cmp.Or(s.Key.Namespace, k.shared.Options.ServerNamespace)
	candidates := append(k.revisions.ControlledBy(s.Parent.UID()), k.revisions.Orphans(namespace, k.planner.Selector())...)
	var list []*v1alpha1.ControllerRevision
	for _, o := range candidates {
		var r v1alpha1.ControllerRevision
		if err := utiljson.Unmarshal(o.JSON(), &r); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", o, err)
		}
		list = append(list, &r)
	}
	return list, nil
}

// writeRevisions writes what the planner says about revisions, before any child is touched.
func (k *kind) writeRevisions(ctx context.Context, s *reconciler.Sync, writes []rollout.Write) error {
	for _, w := range writes {
		err := s.WriteRevision(string(w.Operation), w.Revision.Name, func() error {
			err := k.writeRevision(ctx, s, w)
			k.doubts.wrote(types.NamespacedName{Namespace: w.Revision.Namespace, Name: w.Revision.Name}, s.Key, err)
			return err
		})
		if w.Operation == rollout.Create && s.Parent.Deleting() && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			continue // The namespace goes with all of its revisions, and waits for the parent to be finalized.
		}
		if err != nil {
			return fmt.Errorf("can't write ControllerRevision %s/%s of %s: %w", w.Revision.Namespace, w.Revision.Name, s.Parent, err)
		}
	}
	return nil
}

func (k *kind) writeRevision(ctx context.Context, s *reconciler.Sync, w rollout.Write) error {
	client := k.shared.Own.Client.MetacontrollerV1alpha1().ControllerRevisions(w.Revision.Namespace)
	var written *v1alpha1.ControllerRevision
	var err error
	switch w.Operation {
	case rollout.Create:
		written, err = client.Create(ctx, w.Revision, metav1.CreateOptions{})
	case rollout.Update:
		written, err = client.Update(ctx, w.Revision, metav1.UpdateOptions{})
	case rollout.Delete:
		// A late one must not delete a revision that another engine has given children.
		observed := &metav1.Preconditions{UID: &w.Revision.UID, ResourceVersion: &w.Revision.ResourceVersion}
		err = client.Delete(ctx, w.Revision.Name, metav1.DeleteOptions{Preconditions: observed})
		if o, ok := k.revisions.Get(w.Revision.Namespace, w.Revision.Name); ok && err == nil && o.UID() == w.Revision.UID {
			s.Deleted(k.revisions, o)
		}
		return parent.IgnoreGone(err)
	}
	if err != nil {
		return err
	}
	o, err := revisionObject(written)
	if err != nil {
		return err
	}
	s.WroteOther(k.revisions, o)
	return nil
}

// revisionObject returns a revision as informers have it.
func revisionObject(r *v1alpha1.ControllerRevision) (*object.Object, error) {
	typed := *r // Clients leave its type out.
	typed.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ControllerRevision"))
	data, err := json.Marshal(&typed)
	if err != nil {
		return nil, fmt.Errorf("encoding ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return object.Parse(data, object.ParseOptions{})
}

var _ reconciler.Reviser = &kind{}

// Former implements reconciler.Reviser.
func (k *kind) Former(s *reconciler.Sync, name string) (reconciler.Former, error) {
	if !k.planner.Active() {
		return reconciler.Former{}, fmt.Errorf("%w: no kind of children is updated by a rolling method, so that there are no revisions",
			inspection.ErrNoRevision)
	}
	content, err := s.Parent.Decode()
	if err != nil {
		return reconciler.Former{}, err
	}
	stored, err := k.storedRevisions(s)
	if err != nil {
		return reconciler.Former{}, err
	}
	revisions, err := k.planner.Revisions(content, stored)
	if err != nil {
		return reconciler.Former{}, fmt.Errorf("reading the revisions: %w", err)
	}
	former, err := k.planner.Former(revisions, name)
	if err != nil {
		return reconciler.Former{}, err
	}
	return reconciler.Former{Name: former.Object.Name, Latest: revisions[0].Object.Name, Parent: former.Parent}, nil
}

// doubts are the revisions whose parents are synced again with their next event. Of some it is not known whether the last write was done: its
// response was lost, for one, and a sync that follows may succeed on what the informer showed before that write. Others cannot be read until
// somebody deletes them. It is safe for concurrent use; the zero value is ready.
type doubts struct {
	mu   sync.Mutex
	list map[types.NamespacedName]doubt
}

// doubt is one about a revision.
type doubt struct {
	parent parent.Key
	// reason is why the parent is synced when it ends.
	reason v1alpha1.SyncReason
}

// wrote says how a write of a parent's revision ended. One that was done would be a conflict if one before it had been done and not been shown.
func (d *doubts) wrote(revision types.NamespacedName, key parent.Key, err error) {
	if err != nil {
		d.begin(revision, doubt{key, v1alpha1.SyncOwnWrite})
	} else {
		d.end(revision)
	}
}

// begin begins a doubt about a revision. It returns false if there is one.
func (d *doubts) begin(revision types.NamespacedName, of doubt) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.list[revision]; known {
		return false
	}
	if d.list == nil {
		d.list = map[types.NamespacedName]doubt{}
	}
	d.list[revision] = of
	return true
}

// end ends the doubt about a revision. It returns false if there was none.
func (d *doubts) end(revision types.NamespacedName) (doubt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended, ok := d.list[revision]
	delete(d.list, revision)
	return ended, ok
}

func (d *doubts) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list)
}

// forget drops a parent that is gone.
func (d *doubts) forget(key parent.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.list, func(_ types.NamespacedName, of doubt) bool { return of.parent == key })
}
