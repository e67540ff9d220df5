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

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// Check asks the API server whether it would take what a plan creates and updates (dry runs), and changes nothing. It returns the errors of
// the children that would be refused, and the children that cannot be tried: those in a namespace that the plan creates.
func (a *Applier) Check(ctx context.Context, p plan.Plan) (refused map[children.Key]error, untried sets.Set[children.Key]) {
	created := sets.New[string]()
	for i := range p.Steps {
		if step := &p.Steps[i]; step.Action == plan.Create && isNamespace(step.Key) {
			created.Insert(step.Name)
		}
	}
	var steps []*plan.Step
	refused, untried = map[children.Key]error{}, sets.New[children.Key]()
	for i := range p.Steps {
		switch step := &p.Steps[i]; {
		case step.Action != plan.Create && step.Action != plan.Update || step.Body == nil:
		case created.Has(step.Namespace):
			untried.Insert(step.Key)
		default:
			steps = append(steps, step)
		}
	}
	errs := make([]error, len(steps))
	a.side(ctx, len(steps), "checking a child of "+p.ParentName, func(i int) error { return a.check(ctx, steps[i]) }, errs)
	for i, err := range errs {
		if err != nil {
			refused[steps[i].Key] = err
		}
	}
	return refused, untried
}

func (a *Applier) check(ctx context.Context, step *plan.Step) error {
	target := targetOf(step.Resource, step.Key)
	_, err := request{verb: metrics.Trial}.count(a.checked(ctx, target, step))
	if conflict := ownership(err); conflict != nil {
		return conflict
	}
	return a.invalid(err, step)
}

func (a *Applier) checked(ctx context.Context, target client.Target, step *plan.Step) (*object.Object, error) {
	if step.Manager == "" {
		if step.Action == plan.Create {
			target.Name = ""
			return a.client.TryCreate(ctx, target, step.Body)
		}
		return a.client.Try(ctx, target, step.Body)
	}
	version := impossibleVersion
	if step.Action == plan.Update {
		version = step.Observed.ResourceVersion()
	}
	body, err := withVersion(step.Body, version)
	if err != nil {
		return nil, err
	}
	apply := application(step, body)
	apply.Try = true
	return a.client.Apply(ctx, target, apply)
}
