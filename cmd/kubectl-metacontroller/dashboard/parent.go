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

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/explainloop"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/plan"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/tree"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

const (
	// syncsRead are looked at for fights, and syncsShown are in the timeline.
	syncsRead, syncsShown = 200, 40
	// depth and objects bound the tree.
	depth, objects = 5, 500
)

// parentView is what is shown of one parent.
type parentView struct {
	Controller string
	Parent     v1alpha1.ControllerParent
	// ParentPaused says that the parent is paused, and not the controller; Revised that it has revisions.
	ParentPaused, Revised, ReadOnly bool
}

// Query is the parent as addresses have it.
func (v parentView) Query(path string, more ...string) string {
	return parentLink(path, v.Controller, v.Parent.ParentReference, more...)
}

func parentLink(path, controller string, p v1alpha1.ParentReference, more ...string) string {
	return link(path, append(more, "c", controller, "resource", p.GroupResource().String(), "ns", p.Namespace, "name", p.Name)...)
}

// parentPage begins a page about one parent.
func parentPage(object controllerobject.Object, p v1alpha1.ParentReference, title string) *page {
	up := []crumb{{home, "/"}, {object.Kind() + " " + object.Name(), link("/controller", "c", object.Argument())}}
	if title != "" {
		return &page{Title: title, Up: append(up, crumb{p.FullName(), parentLink("/parent", object.Argument(), p)})}
	}
	return &page{Title: p.FullName(), Up: up}
}

// failed is a page of which nothing can be shown.
func failed(title string, err error) *page {
	return &page{Title: title, Up: []crumb{{home, "/"}}, Parts: []part{{ID: "problem", Problem: err}}}
}

// parent is the page of one parent.
func (s *server) parent(ctx context.Context, q url.Values) *page {
	object, ref, client, err := s.open(ctx, q)
	if err != nil {
		p := failed(q.Get("name"), err)
		p.Live = true // It may be read later.
		return p
	}
	p := parentPage(object, ref, "")
	p.Live = true
	var grown treeView
	var grow error
	var group sync.WaitGroup
	group.Go(func() { grown, grow = s.treeOf(ctx, ref) })
	list, err := client.Syncs(ctx, v1alpha1.ControllerSyncOptions{Resource: ref.GroupResource().String(), Namespace: ref.Namespace, Name: ref.Name, Limit: syncsRead})
	syncs := part{ID: "timeline", Template: "timeline", Problem: err}
	fights := part{ID: "fights"}
	if err == nil {
		syncs.Data = timelineOf(list.Items)
		var loops []explainloop.Loop
		if loops, fights.Problem = explainloop.Loops(ctx, s.c, object, ref, list.Items); len(loops) > 0 {
			fights.Template, fights.Data = "fights", fightsOf(object, loops, list.Items)
		}
	}
	state := part{ID: "state", Template: "parent"}
	one, err := parentOf(ctx, client, ref)
	group.Wait()
	view := parentView{Controller: object.Argument(), ReadOnly: s.readOnly}
	if state.Problem = err; err == nil {
		view.Parent = *one
		view.ParentPaused = one.State == v1alpha1.ParentPaused && !object.Paused()
		view.Revised = grown.Revised
		state.Data = view
	}
	rollout := part{ID: "rollout"}
	if len(grown.Rollout) > 0 {
		rollout.Template, rollout.Data = "rollout", grown
	}
	p.Parts = []part{state, fights, rollout, {ID: "tree", Template: "tree", Data: grown, Problem: grow}, syncs}
	return p
}

// parentOf reads how a controller is doing with one parent.
func parentOf(ctx context.Context, client *subresource.Client, ref v1alpha1.ParentReference) (*v1alpha1.ControllerParent, error) {
	list, err := client.ParentPage(ctx, v1alpha1.ControllerParentOptions{Resource: ref.GroupResource().String(), Namespace: ref.Namespace, Name: ref.Name})
	switch {
	case err != nil:
		return nil, err
	case len(list.Items) == 0 && list.Hidden > 0:
		return nil, errors.New(subresource.Hidden(list.Hidden))
	case len(list.Items) == 0:
		return nil, fmt.Errorf("the controller has no parent %s now: it is deleted, or not selected any more", ref.FullName())
	}
	return &list.Items[0], nil
}

// treeView is the tree of a parent, and how its children are spread over its revisions.
type treeView struct {
	Root    *tree.Node
	Notes   []string
	Rollout []revision
	// Children counts the children that are on a revision, and Revised says that the parent has revisions.
	Children int
	Revised  bool
}

// revision is a ControllerRevision with the children that are on it.
type revision struct {
	Name     string
	Former   bool
	Children []*tree.Node
	// X and Width are those of its part of the bar, of 600.
	X, Width float64
}

// barWidth is how wide bars are drawn.
const barWidth = 600

// treeOf reads the tree of a parent.
func (s *server) treeOf(ctx context.Context, ref v1alpha1.ParentReference) (treeView, error) {
	root, notes, err := tree.Of(ctx, s.c, []string{subresource.NameOf(ref)}, depth, objects)
	v := treeView{Root: root, Notes: notes}
	if err != nil {
		return v, err
	}
	for _, child := range root.Children {
		if child.IsRevision() {
			v.Rollout = append(v.Rollout, revision{Name: child.Name, Former: child.Former()})
		}
	}
	for i := range v.Rollout {
		for _, child := range root.Children {
			if child.Revision == v.Rollout[i].Name {
				v.Rollout[i].Children = append(v.Rollout[i].Children, child)
				v.Children++
			}
		}
	}
	// Former revisions without children are history.
	v.Revised = len(v.Rollout) > 0
	v.Rollout = slices.DeleteFunc(v.Rollout, func(r revision) bool { return len(r.Children) == 0 && r.Former })
	slices.SortStableFunc(v.Rollout, func(a, b revision) int { return cmp.Compare(order(a), order(b)) })
	x := 0.0
	for i := range v.Rollout {
		v.Rollout[i].X, v.Rollout[i].Width = x, float64(len(v.Rollout[i].Children))*barWidth/float64(max(1, v.Children))
		x += v.Rollout[i].Width
	}
	return v, nil
}

// order has the latest revision first.
func order(r revision) int {
	if r.Former {
		return 1
	}
	return 0
}

// hookView are the requests about one parent.
type hookView struct {
	Query    url.Values
	Requests []v1alpha1.HookRequest
	Called   bool
}

// hooks makes the page of what hooks would be sent about a parent now; with call also of what they return to that.
func (s *server) hooks(call bool) view {
	return func(ctx context.Context, q url.Values) *page {
		object, ref, client, err := s.open(ctx, q)
		if err != nil {
			return failed("Requests of hooks", err)
		}
		p := parentPage(object, ref, "Requests of hooks")
		list, err := client.Requests(ctx, ref, subresource.RequestOptions{Call: call})
		one := part{ID: "requests", Template: "requests", Problem: err}
		if err == nil {
			one.Data = hookView{Query: q, Requests: list.Items, Called: call}
		}
		p.Parts = []part{one}
		return p
	}
}

// planView is what a sync of one parent would do.
type planView struct {
	Query   url.Values
	Summary string
	Lines   []textdiff.Line
	// Definition is the one that is planned with, as YAML, and Edited says that it is not the stored one.
	Definition string
	Edited     bool
}

// plan is the page of what the next sync of a parent would do.
func (s *server) plan(ctx context.Context, q url.Values) *page { return s.planned(ctx, q, "") }

// edited is the same page for a definition in place of the stored one.
func (s *server) edited(ctx context.Context, q url.Values) *page {
	written := strings.ReplaceAll(q.Get("definition"), "\r\n", "\n") // As browsers end the lines of a form.
	return s.planned(ctx, q, cmp.Or(written, "#"))
}

func (s *server) planned(ctx context.Context, q url.Values, definition string) *page {
	object, ref, client, err := s.open(ctx, q)
	if err != nil {
		return failed("Plan", err)
	}
	p := parentPage(object, ref, "Plan")
	v := planView{Query: q, Definition: definition, Edited: definition != ""}
	spec := v1alpha1.ControllerPlanSpec{Parents: &v1alpha1.ParentSelection{Resource: ref.GroupResource().String(), Namespace: ref.Namespace, Name: ref.Name}}
	if v.Edited {
		spec.Candidate, err = candidate(object, definition)
	} else {
		v.Definition, err = definitionOf(object)
	}
	if err == nil {
		err = client.EachPlan(ctx, spec, func(status *v1alpha1.ControllerPlanStatus) error {
			v.Summary = plan.Summary(&status.Summary)
			for i := range status.Parents {
				v.Lines = append(v.Lines, plan.Lines(&status.Parents[i])...)
			}
			return nil
		})
	}
	p.Parts = []part{{ID: "plan", Template: "plan", Data: v, Problem: err}, {ID: "definition", Template: "definition", Data: v}}
	return p
}

// candidate reads a definition in place of a stored one.
func candidate(object controllerobject.Object, text string) (*runtime.RawExtension, error) {
	read, err := lint.Controller("-", strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the edited definition: %w", err)
	}
	if read.Argument() != object.Argument() {
		return nil, fmt.Errorf("the edited definition is that of %s, not of %s", read.Argument(), object.Argument())
	}
	return &runtime.RawExtension{Raw: read.Encoded}, nil
}

// definitionOf is a controller object as its author writes it.
func definitionOf(object controllerobject.Object) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.Runtime())
	if err != nil {
		return "", fmt.Errorf("encoding the definition: %w", err)
	}
	written := map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": object.Kind(), "metadata": map[string]any{"name": object.Name()}, "spec": content["spec"],
	}
	text, err := yaml.Marshal(written)
	if err != nil {
		return "", fmt.Errorf("encoding the definition: %w", err)
	}
	return string(text), nil
}
