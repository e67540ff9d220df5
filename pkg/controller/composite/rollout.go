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
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// revisionResource is where revisions are stored: in this process.
var revisionResource = v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions")

// revisionResponse is what the hook returned about one revision of the parent.
type revisionResponse struct {
	*wire.CompositeResponse
	desired map[children.Key]children.Desired
}

// decideRollout asks the hook about every revision of the parent and lets the planner say which children follow which
// (docs/reference/contract.md#s14).
func (c *Controller) decideRollout(ctx context.Context, s *scope) error {
	content, err := s.parent.Decode()
	if err != nil {
		return err
	}
	stored, err := c.storedRevisions(s)
	if err != nil {
		return err
	}
	revisions, err := c.planner.Revisions(content, stored)
	if err != nil {
		return fmt.Errorf("reading the revisions of %s: %w", s.parent, err)
	}
	responses, asked, err := c.askRevisions(ctx, s, revisions)
	if err != nil {
		return err
	}
	observed := make(map[children.Key]*object.Object, len(s.observed))
	for _, o := range s.observed {
		observed[plan.KeyOf(o)] = o
	}
	latest := slices.Collect(maps.Values(responses[0].desired))
	in, err := c.converger.Gather(ctx, s.parent, s.observed, latest)
	if err != nil {
		return err
	}
	p, err := c.planner.Plan(rollout.Input{
		Revisions: revisions,
		Responses: asked,
		Observed: func(key rollout.Key) (rollout.Child, bool) {
			o, ok := observed[children.Key(key)]
			return rolling{o}, ok
		},
		Unchanged: func(key rollout.Key) bool {
			return in.Unchanged(responses[0].desired[children.Key(key)], observed[children.Key(key)])
		},
	})
	if err != nil {
		return fmt.Errorf("planning the rollout of %s: %w", s.parent, err)
	}
	s.decision.resyncAfter = p.ResyncAfter
	if err := c.writeRevisions(ctx, s, p.Writes); err != nil {
		return err
	}
	c.tellMoves(s, p)
	status, _ := content["status"].(map[string]any)
	s.decision = decision{
		resyncAfter: p.ResyncAfter,
		finalized:   p.Finalized,
		status:      p.Updated.Apply(responses[0].Status, status, c.clock.Now()),
	}
	kept := map[children.Key]bool{}
	for _, a := range p.Children {
		key := children.Key(a.Key)
		if a.Keep {
			kept[key] = true
			continue
		}
		s.decision.desired = append(s.decision.desired, responses[a.Revision].desired[key])
	}
	for _, o := range s.observed {
		if !kept[plan.KeyOf(o)] {
			s.decision.observed = append(s.decision.observed, o)
		}
	}
	return nil
}

// askRevisions asks the hook about each revision, with the same observed children.
func (c *Controller) askRevisions(ctx context.Context, s *scope, revisions []rollout.Revision) ([]revisionResponse, []rollout.Response, error) {
	responses, asked := make([]revisionResponse, len(revisions)), make([]rollout.Response, len(revisions))
	for i := range revisions {
		var shown wire.Object = s.parent
		if i > 0 {
			encoded, err := revisions[i].ParentJSON()
			if err != nil {
				return nil, nil, err
			}
			shown = formerParent{s.parent, encoded}
		}
		response, err := c.ask(ctx, s, shown, nil)
		if err != nil {
			return nil, nil, err
		}
		desired, err := c.judge(s, response)
		if err != nil {
			return nil, nil, err
		}
		responses[i] = revisionResponse{CompositeResponse: response, desired: make(map[children.Key]children.Desired, len(desired))}
		asked[i] = rollout.Response{ResyncAfter: response.ResyncAfter, Finalized: response.Finalized}
		for _, d := range desired {
			responses[i].desired[d.Key] = d
			asked[i].Desired = append(asked[i].Desired, rollout.Key(d.Key))
		}
	}
	return responses, asked, nil
}

// formerParent is a parent with the fields of a former revision.
type formerParent struct {
	*object.Object
	encoded []byte
}

// JSON implements wire.Object.
func (p formerParent) JSON() []byte { return p.encoded }

// rolling is a child as package rollout looks at it.
type rolling struct{ *object.Object }

// Field implements rollout.Child.
func (r rolling) Field(path ...string) ([]byte, bool) { return r.Object.Field(path...) }

// storedRevisions returns the ControllerRevisions that may be the parent's.
func (c *Controller) storedRevisions(s *scope) ([]*v1alpha1.ControllerRevision, error) {
	namespace := c.revisionNamespace(s)
	candidates := c.revisions.ControlledBy(s.parent.UID())
	for _, o := range c.revisions.List(namespace) {
		if o.Controller() == nil {
			candidates = append(candidates, o)
		}
	}
	var list []*v1alpha1.ControllerRevision
	for _, o := range candidates {
		if o.Namespace() != namespace {
			continue
		}
		var r v1alpha1.ControllerRevision
		if err := utiljson.Unmarshal(o.JSON(), &r); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", o, err)
		}
		list = append(list, &r)
	}
	return list, nil
}

func (c *Controller) revisionNamespace(s *scope) string {
	if s.key.Namespace == "" {
		return c.shared.Options.ServerNamespace
	}
	return s.key.Namespace
}

// writeRevisions writes what the planner says about revisions, before any child is touched.
func (c *Controller) writeRevisions(ctx context.Context, s *scope, writes []rollout.Write) error {
	for _, w := range writes {
		client := c.shared.Own.Client.MetacontrollerV1alpha1().ControllerRevisions(w.Revision.Namespace)
		var written *v1alpha1.ControllerRevision
		var err error
		switch w.Operation {
		case rollout.Create:
			written, err = client.Create(ctx, w.Revision, metav1.CreateOptions{})
		case rollout.Update:
			written, err = client.Update(ctx, w.Revision, metav1.UpdateOptions{})
		case rollout.Delete:
			err = client.Delete(ctx, w.Revision.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.Revision.UID}})
			err = parent.IgnoreGone(err)
			c.shared.Cluster.Barrier.Deleted(s.parent.UID(), c.revisions, w.Revision.Namespace, w.Revision.Name, w.Revision.UID)
		}
		if err != nil {
			return fmt.Errorf("can't write ControllerRevision %s/%s of %s: %w", w.Revision.Namespace, w.Revision.Name, s.parent, err)
		}
		if written != nil {
			c.shared.Cluster.Barrier.Wrote(s.parent.UID(), c.revisions, written.ResourceVersion)
		}
	}
	return nil
}

// tellMoves records on the parent which children the rollout goes on to.
func (c *Controller) tellMoves(s *scope, p *rollout.Plan) {
	for _, key := range p.Moved {
		c.shared.Recorder.Normal(childcontrol.Reference(s.parent), "RolloutProgressing",
			"Updating "+children.Key(key).String()+" to the latest revision")
	}
}
