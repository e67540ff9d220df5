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

package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

const (
	// planPage is how many parents are planned by one request, at most.
	planPage = 500
	// named is how many parents of a controller are named.
	named = 3
	// standbyInterval is the pause between two looks whether the server's engine answers.
	standbyInterval = 500 * time.Millisecond
)

// forecast is what syncs by this server would do with the parents of one controller.
type forecast struct {
	// looked counts the parents that were planned, and failing those of them whose sync would fail.
	looked, failing int64
	// remaining counts the parents that were not planned, and hidden those that the user may not see.
	remaining, hidden int64
	// changing are the parents of which a child would change, in their order, with what would.
	changing []change
	// cause is why the first sync would fail, or why there is no plan.
	cause string
	// ended says that nothing more could be asked, and complete that there was nothing more to ask.
	ended, complete bool
}

// change is what a sync would do with the children of a parent.
type change struct {
	parent v1alpha1.ParentReference
	what   string
}

// plan has this server plan what it would do with all parents, and prints whose children would change. That is an error unless it is allowed.
// Hooks that cannot be called, and what there was no time for, are said and keep nothing from going on.
func (m *move) plan(ctx context.Context) error {
	if m.SkipPlan {
		m.sayf("  It was left out, because of --skip-plan.")
		return nil
	}
	all, err := m.list(ctx, true)
	if err != nil {
		return err
	}
	controllers := slices.DeleteFunc(all.keys(), func(key string) bool { return kindOf(all[key]).namespaced }) // Revisions have no plan.
	limited, cancel := context.WithTimeout(ctx, m.PlanTimeout)
	defer cancel()
	forecasts, parents, changing := make([]*forecast, len(controllers)), int64(0), 0
	for i, key := range controllers {
		forecasts[i] = m.forecast(limited, all[key])
	}
	for i, key := range controllers {
		f := forecasts[i]
		if len(f.changing) > 0 { // The engine that runs may have done it meanwhile.
			f.confirm(m.forecast(limited, all[key]))
		}
		if err := ctx.Err(); err != nil {
			return err // Nothing is known.
		}
		for _, sentence := range f.sentences() {
			m.sayf("  %s: %s", key, sentence)
		}
		if len(f.changing) > 0 {
			m.sayf("    The whole plan: echo '{}' | kubectl create --raw %s -f -", planPath(all[key]))
		}
		parents, changing = parents+f.looked-f.failing, changing+len(f.changing)
	}
	m.sayf("  %d parents of %d controllers were planned. Children of %d would change.", parents, len(controllers), changing)
	if limited.Err() != nil {
		m.sayf("  The time was over after %s: --plan-timeout sets it.", m.PlanTimeout)
	}
	if changing > 0 && !m.AllowChanges {
		return fmt.Errorf("children of %d parents would change, as is said above: if that is wanted, go on with --allow-changes", changing)
	}
	return nil
}

func planPath(o *unstructured.Unstructured) string {
	return strings.Join([]string{DoorPath, kindOf(o).resource, o.GetName() + planSuffix}, "/")
}

// forecast has this server plan the parents of a controller, one page after the other, until ctx ends.
func (m *move) forecast(ctx context.Context, controller *unstructured.Unstructured) *forecast {
	f := &forecast{}
	for next := ""; ; {
		part, err := m.planPart(ctx, controller, next)
		if ctx.Err() != nil {
			f.ended = true
			return f
		}
		if err != nil {
			f.cause = err.Error()
			return f
		}
		f.add(part)
		next, f.complete = part.Continue, part.Continue == ""
		// A hook that is not reached about a page of parents is not waited for about the others.
		if s := part.Summary; f.complete || s.Parents > 0 && s.Failing == s.Parents {
			return f
		}
	}
}

// planPart has this server plan some parents of a controller: those behind a token. An engine that has just stopped leading does not answer at once,
// and is waited for before the first answer.
func (m *move) planPart(ctx context.Context, controller *unstructured.Unstructured, next string) (*v1alpha1.ControllerPlanStatus, error) {
	body, err := json.Marshal(v1alpha1.ControllerPlan{Spec: v1alpha1.ControllerPlanSpec{Limit: planPage, Continue: next}})
	if err != nil {
		return nil, fmt.Errorf("encoding a request for a plan: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	for {
		result := m.kube.Discovery().RESTClient().Post().AbsPath(planPath(controller)).SetHeader("Content-Type", "application/json").Body(body).Do(ctx)
		err := result.Error()
		if m.answered = m.answered || !apierrors.IsServiceUnavailable(err); m.answered {
			return planned(result)
		}
		select {
		case <-waiting.Done():
			m.answered = true
			return nil, err
		case <-time.After(standbyInterval):
		}
	}
}

func planned(result rest.Result) (*v1alpha1.ControllerPlanStatus, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	text, err := result.Raw()
	if err != nil {
		return nil, err
	}
	plan := &v1alpha1.ControllerPlan{}
	if err := json.Unmarshal(text, plan); err != nil {
		return nil, fmt.Errorf("reading a plan: %w", err)
	}
	return &plan.Status, nil
}

// add adds a part of the plan, which follows those that were added before.
func (f *forecast) add(part *v1alpha1.ControllerPlanStatus) {
	f.looked += part.Summary.Parents
	f.failing += part.Summary.Failing
	f.hidden += part.Hidden
	f.remaining = part.Remaining
	for i := range part.Parents {
		p := &part.Parents[i]
		f.cause = cmp.Or(f.cause, p.Error)
		if what := changeOf(p); what != "" {
			f.changing = append(f.changing, change{p.ParentReference, what})
		}
	}
}

// confirm takes what a second look found, if that was at all parents: of the changes those that both found.
func (f *forecast) confirm(again *forecast) {
	if !again.complete {
		return
	}
	before := sets.New[v1alpha1.ParentReference]()
	for _, c := range f.changing {
		before.Insert(c.parent)
	}
	again.changing = slices.DeleteFunc(again.changing, func(c change) bool { return !before.Has(c.parent) })
	*f = *again
}

// changeOf says what would become of the children of a parent, empty if nothing would. Changes of the parent itself, as of its status, count only if it
// would be deleted.
func changeOf(p *v1alpha1.ParentPlan) string {
	var parts []string
	for _, kind := range []struct {
		action v1alpha1.ChildAction
		what   string
	}{
		{v1alpha1.ChildCreate, "created"},
		{v1alpha1.ChildUpdate, "updated"},
		{v1alpha1.ChildRecreate, "recreated"},
		{v1alpha1.ChildDelete, "deleted"},
		{v1alpha1.ChildAdopt, "adopted"},
		{v1alpha1.ChildRelease, "released"},
		{v1alpha1.ChildRetain, "retained"},
	} {
		n := 0
		for i := range p.Children {
			if p.Children[i].Action == kind.action {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.what))
		}
	}
	if len(parts) > 0 {
		parts = []string{"children: " + strings.Join(parts, ", ")}
	}
	if p.Delete {
		parts = append(parts, "it is deleted")
	}
	return strings.Join(parts, "; ")
}

// sentences say what is to be known of a controller, nothing if no child would change.
func (f *forecast) sentences() (list []string) {
	if n := len(f.changing); n > 0 {
		var names []string
		for _, c := range f.changing[:min(n, named)] {
			names = append(names, fmt.Sprintf("%s (%s)", nameOf(c.parent), c.what))
		}
		more := ""
		if n > named {
			more = fmt.Sprintf(" and %d more", n-named)
		}
		list = append(list, fmt.Sprintf("%d of %d parents would change: %s%s.", n, f.looked, strings.Join(names, ", "), more))
	}
	switch {
	case f.failing > 0:
		list = append(list, fmt.Sprintf("%d of %d parents could not be planned, the first because of: %s", f.failing, f.looked, f.cause))
	case f.cause != "":
		list = append(list, "it could not be planned: "+f.cause)
	}
	switch {
	case f.ended && f.looked == 0:
		list = append(list, "it was not looked at.")
	case f.remaining > 0:
		list = append(list, fmt.Sprintf("%d parents were not looked at.", f.remaining))
	}
	if f.hidden > 0 {
		list = append(list, fmt.Sprintf("%d parents were left out, because you may not get them, their children or their related objects.", f.hidden))
	}
	return list
}

func nameOf(p v1alpha1.ParentReference) string {
	return p.Resource + " " + strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
}
