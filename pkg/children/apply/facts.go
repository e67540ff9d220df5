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
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// maxSingleTrials is how many differences of one child are tried one by one.
const maxSingleTrials = 16

// Read reads children in other versions than those in which they are observed. One read of each version comes first: if the version is not
// served, its error is that of all. Nil if there are none.
func (a *Applier) Read(ctx context.Context, versions []plan.Step) map[children.Key]plan.Reading {
	if len(versions) == 0 {
		return nil // As in nearly every sync.
	}
	result := make(map[children.Key]plan.Reading, len(versions))
	var first, rest []plan.Step
	leaders := map[schema.GroupVersionResource]children.Key{}
	for _, v := range versions {
		if _, led := leaders[v.Resource]; led {
			rest = append(rest, v)
		} else {
			leaders[v.Resource], first = v.Key, append(first, v)
		}
	}
	a.read(ctx, first, result)
	rest = slices.DeleteFunc(rest, func(v plan.Step) bool {
		leader := result[leaders[v.Resource]]
		unserved := apierrors.IsNotFound(leader.Err)
		if unserved {
			result[v.Key] = leader
		}
		return unserved
	})
	a.read(ctx, rest, result)
	return result
}

func (a *Applier) read(ctx context.Context, versions []plan.Step, result map[children.Key]plan.Reading) {
	objects, errs := side(ctx, a, len(versions), "reading a child in another version", func(i int) (*object.Object, error) {
		o, err := a.client.Get(ctx, targetOf(versions[i].Resource, versions[i].Key))
		if client.IsGone(err) {
			return nil, nil
		}
		return o, err
	})
	for i := range versions {
		result[versions[i].Key] = plan.Reading{Object: objects[i], Err: errs[i]}
	}
}

// Try resolves the doubts about children: it asks the API server what it would make of them (dry runs), and changes nothing. It
// sends one request for each, and more if the API server refuses it as invalid, or if fields have to change owners and a dry run
// is not possible, or before a child would be deleted.
func (a *Applier) Try(ctx context.Context, in plan.Input) map[children.Key]plan.Trial {
	in.Trials = maps.Clone(in.Trials)
	// After what an update would do it may be asked what a creation would do.
	for range 2 {
		doubts := plan.Missing(in).Doubts
		if len(doubts) == 0 {
			break
		}
		if in.Trials == nil {
			in.Trials = make(map[children.Key]plan.Trial, len(doubts))
		}
		trials, errs := side(ctx, a, len(doubts), "trying a child", func(i int) (plan.Trial, error) {
			if doubts[i].Fresh {
				return a.complete(ctx, &doubts[i], in.Trials[doubts[i].Key])
			}
			return a.try(ctx, &doubts[i])
		})
		for i := range doubts {
			trials[i].Desired, trials[i].Err = doubts[i].Desired, errs[i]
			in.Trials[doubts[i].Key] = trials[i]
		}
	}
	return in.Trials
}

// complete completes a trial with what the API server would make of a new child and, if that is asked for, with the child as it is stored.
func (a *Applier) complete(ctx context.Context, doubt *plan.Doubt, trial plan.Trial) (plan.Trial, error) {
	trial.FreshTried = true
	if !doubt.Read {
		_, err := a.completeFresh(ctx, doubt, &trial)
		return trial, err
	}
	// A definition that changes between the trial and the read shows the child without a field that a new one would have. So the child is read
	// before it, too: what was declared for the trial was declared before it or is after it, unless it changes twice.
	before, err := a.client.Get(ctx, targetOf(doubt.Resource, doubt.Key))
	if err == nil {
		var possible bool
		if possible, err = a.completeFresh(ctx, doubt, &trial); err != nil || !possible {
			return trial, err
		}
		trial.Stored, err = a.client.Get(ctx, targetOf(doubt.Resource, doubt.Key))
	}
	switch {
	case client.IsGone(err):
		trial.Stale, trial.Cause = true, err
		return trial, nil
	case err == nil && before.ResourceVersion() == trial.Stored.ResourceVersion() && !before.Shows(trial.Stored):
		trial.Stale = true
		trial.Cause = apierrors.NewConflict(doubt.Resource.GroupResource(), doubt.Key.Name,
			errors.New("the API server serves the same version of it in two forms: the definition of its kind changes"))
	}
	return trial, err
}

// completeFresh completes a trial with what the API server would make of a new child, and reports whether that can be tried.
func (a *Applier) completeFresh(ctx context.Context, doubt *plan.Doubt, trial *plan.Trial) (possible bool, err error) {
	body, err := doubt.Body(nil)
	if err == nil {
		where := targetOf(doubt.Resource, doubt.Key)
		where.Name = ""
		trial.Fresh, err = request{verb: metrics.Trial}.count(a.client.TryCreate(ctx, where, body))
	}
	refused := apierrors.IsInvalid(err)
	trial.FreshRefused = refused && !ofName(err)
	switch {
	case impossible(err):
		return false, nil
	case err != nil && !refused:
		return false, err
	}
	return true, nil
}

// ofName reports whether what was tried is refused as invalid for its metadata, or for the object as a whole, where it may be the name: the
// object that was tried had another one than the child.
func ofName(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Details != nil && slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "" || cause.Field == "<nil>" || strings.HasPrefix(cause.Field, "metadata")
	})
}

// impossible reports whether an error says that nothing can be tried: for example, the user may not write, or a webhook knows no
// dry run.
func impossible(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

func (a *Applier) try(ctx context.Context, doubt *plan.Doubt) (plan.Trial, error) {
	result, err := a.attempt(ctx, doubt, doubt.Paths)
	var trial plan.Trial
	if apierrors.IsInvalid(err) && len(doubt.Paths) <= maxSingleTrials {
		result, trial.Refused, err = a.tryEach(ctx, doubt)
	}
	conflict := ownership(err)
	switch {
	case err == nil:
		trial.Result = result
	case conflict != nil && !doubt.Whole:
		return trial, conflict
	case conflict != nil, apierrors.IsInvalid(err), impossible(err):
		// In a conflict the other manager may be one of ours, whose fields are moved before it is applied.
		trial = plan.Trial{}
	case apierrors.IsConflict(err), client.IsGone(err):
		return plan.Trial{Stale: true, Cause: err}, nil
	default:
		return trial, err
	}
	if !doubt.Whole {
		return trial, nil
	}
	if trial.Whole = trial.Result; trial.Result == nil {
		trial.Whole, err = a.client.Whole().Get(ctx, targetOf(doubt.Resource, doubt.Key))
		if client.IsGone(err) {
			return plan.Trial{Stale: true, Cause: err}, nil
		}
	}
	return trial, err
}

// tryEach tries the differences of a child one by one, and then those together that are not refused. The result is nil if all are.
func (a *Applier) tryEach(ctx context.Context, doubt *plan.Doubt) (result *object.Object, refused []string, err error) {
	if len(doubt.Paths) == 1 {
		return nil, doubt.Paths, nil
	}
	var rest []string
	for _, path := range doubt.Paths {
		_, err := a.attempt(ctx, doubt, []string{path})
		switch {
		case err == nil:
			rest = append(rest, path)
		case apierrors.IsInvalid(err):
			refused = append(refused, path)
		default:
			return nil, nil, err
		}
	}
	if len(rest) == 0 {
		return nil, refused, nil
	}
	result, err = a.attempt(ctx, doubt, rest)
	return result, refused, err
}

func (a *Applier) attempt(ctx context.Context, doubt *plan.Doubt, paths []string) (*object.Object, error) {
	body, err := doubt.Body(paths)
	if err != nil {
		return nil, err
	}
	c := a.client
	if doubt.Whole {
		c = c.Whole()
	}
	trial := request{verb: metrics.Trial}
	target := targetOf(doubt.Resource, doubt.Key)
	if doubt.Manager != "" {
		return trial.count(c.Apply(ctx, target, client.Application{Manager: doubt.Manager, Force: doubt.Force, Try: true, Body: body}))
	}
	result, err := trial.count(c.Try(ctx, target, body))
	for range maxInsisting {
		if !doubt.Insists || !apierrors.IsConflict(err) {
			break
		}
		// Nothing is stored: what the API server makes of the desired values does not depend on what others wrote.
		latest, errLatest := a.client.Get(ctx, target)
		if errLatest != nil {
			break
		}
		if body, err = withVersion(body, latest.ResourceVersion()); err != nil {
			return nil, err
		}
		result, err = trial.count(c.Try(ctx, target, body))
	}
	return result, err
}

// Check asks the API server whether it would take what a plan creates and updates (dry runs), and changes nothing. It returns the errors of
// the children that would be refused, and what is to be said of others: the API server's warnings, or that one cannot be tried, because the plan
// creates its namespace.
func (a *Applier) Check(ctx context.Context, p plan.Plan) (refused map[children.Key]error, said map[children.Key]string) {
	created := sets.New[string]()
	for i := range p.Steps {
		if step := &p.Steps[i]; step.Action == plan.Create && isNamespace(step.Key) {
			created.Insert(step.Name)
		}
	}
	var steps []*plan.Step
	refused, said = map[children.Key]error{}, map[children.Key]string{}
	for i := range p.Steps {
		switch step := &p.Steps[i]; {
		case step.Action != plan.Create && step.Action != plan.Update || step.Body == nil:
		case created.Has(step.Namespace):
			said[step.Key] = "no dry run was made: its namespace is created first"
		default:
			steps = append(steps, step)
		}
	}
	warnings, errs := side(ctx, a, len(steps), "checking a child of "+p.ParentName, func(i int) ([]string, error) { return a.check(ctx, steps[i]) })
	for i, err := range errs {
		switch {
		case err != nil:
			refused[steps[i].Key] = err
		case len(warnings[i]) > 0:
			said[steps[i].Key] = "the API server warns: " + strings.Join(warnings[i], "; ")
		}
	}
	return refused, said
}

func (a *Applier) check(ctx context.Context, step *plan.Step) (warnings []string, err error) {
	var collected client.Warnings
	_, err = request{verb: metrics.Trial}.count(a.checked(collected.Collect(ctx), step))
	if conflict := ownership(err); conflict != nil {
		return nil, conflict
	}
	return collected.All(), a.invalid(err, step)
}

func (a *Applier) checked(ctx context.Context, step *plan.Step) (*object.Object, error) {
	target, creates := targetOf(step.Resource, step.Key), step.Action == plan.Create
	switch {
	case step.Manager != "" && creates:
		return a.apply(ctx, step, impossibleVersion, true)
	case step.Manager != "":
		return a.apply(ctx, step, step.Observed.ResourceVersion(), true)
	case creates:
		target.Name = ""
		return a.client.TryCreate(ctx, target, step.Body)
	}
	return a.client.Try(ctx, target, step.Body)
}
