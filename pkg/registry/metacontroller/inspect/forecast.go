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
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

const (
	// forecastLimit is how long a write waits for its warning.
	forecastLimit = 2 * time.Second
	// maxCause is the most that a warning has of an error, in characters: an API server shortens warnings that are long together.
	maxCause = 300
)

// forecaster warns whoever writes a definition of what syncs would do with it. Nothing that it finds out or fails at keeps the write from
// being stored.
type forecaster struct {
	subresource

	scheme *runtime.Scheme
}

// WarnOfPlans returns what a store of controllers of a kind calls with definitions that are written: a plan over the parents that there are is
// summed up in a warning. Of a dry run it says everything, of another write only what that deletes.
func (i *Inspector) WarnOfPlans(scheme *runtime.Scheme, kind, resource string) func(ctx context.Context, o, was runtime.Object, write controller.Write) {
	f := &forecaster{subresource{Inspector: i, kind: kind, resource: resource}, scheme}
	return func(ctx context.Context, o, was runtime.Object, write controller.Write) {
		if write.Manager == candidateManager {
			return
		}
		var text string
		err := recovery.Call(ctx, "planning for a warning", func() (err error) {
			text, err = f.forecast(ctx, o, was, write.DryRun)
			return err
		})
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot warn of what syncs would do", "kind", kind, "err", err)
		}
		if err != nil && write.DryRun {
			text = "what syncs would do was not looked at: " + oneLine(err.Error())
		}
		if text != "" {
			warning.AddWarning(ctx, "", text)
		}
	}
}

// forecast returns the warning of a write, empty if there is nothing to say. The error says why nothing is known.
func (f *forecaster) forecast(ctx context.Context, o, was runtime.Object, dryRun bool) (string, error) {
	object, err := f.scheme.ConvertToVersion(o, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return "", fmt.Errorf("converting the definition: %w", err)
	}
	m, err := meta.Accessor(object)
	if err != nil || m.GetDeletionTimestamp() != nil {
		return "", err
	}
	_, paused := definitionOf(object)
	if !dryRun {
		// A pause deletes nothing, and neither it nor the pace of syncs is another definition of what they do.
		if same, err := f.same(object, was); paused || same || err != nil {
			return "", err
		}
	}
	status, err := f.foresee(ctx, m.GetName(), object, !dryRun)
	switch {
	case err != nil:
		return "", err
	case dryRun:
		return inFull(&status, paused), nil
	}
	return ofDeletions(&status, map[string]string{v1alpha1.KindComposite: "cc/", v1alpha1.KindDecorator: "dc/"}[f.kind]+m.GetName()), nil
}

// definitionOf returns the spec of a controller without what says when and how fast it syncs, and whether it is paused.
func definitionOf(object runtime.Object) (spec any, paused bool) {
	switch o := object.(type) {
	case *v1alpha1.CompositeController:
		running := o.Spec
		running.Paused, running.Workers, running.ResyncPeriodSeconds = nil, nil, nil
		return &running, ptr.Deref(o.Spec.Paused, false)
	case *v1alpha1.DecoratorController:
		running := o.Spec
		running.Paused, running.Workers, running.ResyncPeriodSeconds = nil, nil, nil
		return &running, ptr.Deref(o.Spec.Paused, false)
	}
	return nil, false
}

// same reports whether the definition was the same, but for when and how fast it syncs.
func (f *forecaster) same(object, was runtime.Object) (bool, error) {
	if was == nil {
		return false, nil
	}
	stored, err := f.scheme.ConvertToVersion(was, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return false, fmt.Errorf("converting the stored definition: %w", err)
	}
	now, _ := definitionOf(object)
	before, _ := definitionOf(stored)
	return apiequality.Semantic.DeepEqual(now, before), nil
}

// foresee plans all parents of a definition for whoever writes it, as far as the time goes. It takes what the plan of a candidate takes: the right
// to the subresource plan, and those to see the parents and their children.
func (f *forecaster) foresee(ctx context.Context, name string, object runtime.Object, deletions bool) (status v1alpha1.ControllerPlanStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, forecastLimit)
	defer cancel()
	who, err := f.caller(ctx)
	if err != nil {
		return status, err
	}
	lacking, err := who.lacking(ctx, rights.Right{Verb: rights.Create, Group: v1alpha1.GroupName, Resource: f.resource, Subresource: "plan", Name: name})
	if err != nil {
		return status, err
	}
	if lacking != nil {
		return status, fmt.Errorf("user %q may not create %s/plan", who.subject.User, f.resource)
	}
	engine, err := f.engine()
	if err != nil {
		return status, err
	}
	ctx, leave, err := f.forecasts.enter(ctx)
	if err != nil {
		return status, err
	}
	defer leave()
	candidate, shut, err := engine.Candidate(ctx, object)
	if err != nil {
		return status, late(ctx, err)
	}
	defer shut()
	if deletions {
		candidate = deleting{candidate}
	}
	status, err = (&PlanREST{&f.subresource}).plan(ctx, who, candidate, &v1alpha1.ControllerPlanSpec{Limit: maxLimit})
	return status, late(ctx, err)
}

// late returns an error, or that there was no more time.
func late(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no parent was planned within %s; is the hook slow?", forecastLimit)
	}
	return err
}

// deleting is a controller whose plans are about deletions.
type deleting struct{ inspection.Controller }

// Plan implements inspection.Controller.
func (d deleting) Plan(ctx context.Context, p v1alpha1.ParentReference, o inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	o.Deletions = true
	return d.Controller.Plan(ctx, p, o)
}

// inFull sums up what syncs would do, empty if there are no parents.
func inFull(status *v1alpha1.ControllerPlanStatus, paused bool) string {
	s := &status.Summary
	if s.Parents+status.Hidden+status.Remaining == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %s would change", s.Changing, plural(s.Parents, "parent", "parents"))
	if s.Parents == 0 {
		text = "no parent was looked at"
	}
	if parts := changes(s); parts != "" {
		text += ": " + parts
	}
	if s.Failing > 0 {
		text += fmt.Sprintf("; %s would fail, the first with: %s", plural(s.Failing, "sync", "syncs"), oneLine(firstError(status.Parents)))
	}
	if paused {
		text += "; nothing is synced while the controller is paused"
	}
	return text + left(status) + "; see 'kubectl metacontroller plan --all -f FILE'"
}

// ofDeletions says what a write deletes and recreates, empty if that is nothing.
func ofDeletions(status *v1alpha1.ControllerPlanStatus, argument string) string {
	parts := changes(&v1alpha1.PlanSummary{Recreate: status.Summary.Recreate, Delete: status.Summary.Delete})
	if parts == "" {
		return ""
	}
	return fmt.Sprintf("syncs with this definition: %s%s; 'kubectl metacontroller pause %s' stops them", parts, left(status), argument)
}

// changes lists what would happen to children, empty if that is nothing. What is left as it is is not told.
func changes(s *v1alpha1.PlanSummary) string {
	var parts []string
	changing := *s
	changing.Leave = 0
	changing.EachAction(func(n int64, done string) {
		if len(parts) == 0 {
			done = plural(n, "child", "children") + " " + done
		} else {
			done = fmt.Sprintf("%d %s", n, done)
		}
		parts = append(parts, done)
	})
	return strings.Join(parts, ", ")
}

// left says what was not looked at.
func left(status *v1alpha1.ControllerPlanStatus) (text string) {
	if status.Remaining > 0 {
		text += "; " + plural(status.Remaining, "parent was", "parents were") + " not looked at"
	}
	if status.Hidden > 0 {
		text += "; " + plural(status.Hidden, "parent was", "parents were") + " left out, because you may not get them, their children or their related objects"
	}
	return text
}

func firstError(parents []v1alpha1.ParentPlan) string {
	for i := range parents {
		if parents[i].Error != "" {
			return parents[i].Error
		}
	}
	return ""
}

// oneLine returns a text as a warning may have it, which a header carries.
func oneLine(text string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "")))
	if len(runes) > maxCause {
		runes = append(runes[:maxCause], '…')
	}
	return string(runes)
}

// plural returns a number with what it counts.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
