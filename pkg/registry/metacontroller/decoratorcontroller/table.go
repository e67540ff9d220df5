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

package decoratorcontroller

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/table"
)

// Table returns the columns of kubectl get decoratorcontrollers.
func Table() table.Convertor {
	return table.Convertor{
		Columns: slices.Concat(
			[]metav1.TableColumnDefinition{
				table.NameColumn(),
				{Name: "Resources", Type: "string", Description: "Resources whose objects are decorated."},
				{Name: "Attachments", Type: "string", Description: "Resources that the hooks may return as attachments."},
			},
			table.ReadyColumns(),
			table.ProgressColumns("targets"),
			[]metav1.TableColumnDefinition{table.AgeColumn()},
			table.HookColumns(),
			[]metav1.TableColumnDefinition{table.StrategyColumn(), table.AccountColumn()},
			table.CounterColumns("Targets"),
			[]metav1.TableColumnDefinition{table.ErrorColumn()},
		),
		Cells: cells,
		Clock: clock.RealClock{},
	}
}

func cells(object runtime.Object, now time.Time) ([]any, error) {
	o, ok := object.(*metacontroller.DecoratorController)
	if !ok {
		return nil, fmt.Errorf("printing a %T as a DecoratorController", object)
	}
	resources := make([]string, 0, len(o.Spec.Resources))
	for _, rule := range o.Spec.Resources {
		resources = append(resources, table.Resource(rule.ResourceRule))
	}
	attachments := make([]string, 0, len(o.Spec.Attachments))
	methods := make([]metacontroller.ChildUpdateMethod, 0, len(o.Spec.Attachments))
	for _, rule := range o.Spec.Attachments {
		attachments = append(attachments, table.Resource(rule.ResourceRule))
		var method metacontroller.ChildUpdateMethod
		if rule.UpdateStrategy != nil {
			method = rule.UpdateStrategy.Method
		}
		methods = append(methods, method)
	}
	return slices.Concat(
		[]any{o.Name, table.List(resources), table.List(attachments)},
		table.ReadyCells(o.Status.ControllerStatus),
		table.ProgressCells(o.Status.ControllerStatus),
		[]any{table.Age(o, now)},
		hooks(o.Spec.Hooks),
		[]any{table.StrategyCell(methods), table.AccountCell(o.Spec.ServiceAccountRef)},
		table.CounterCells(o.Status.ControllerStatus),
		[]any{table.ErrorCell(o.Status.ControllerStatus)},
	), nil
}

func hooks(h *metacontroller.DecoratorControllerHooks) []any {
	if h == nil {
		return table.HookCells()
	}
	return table.HookCells(
		table.NamedHook{Name: "sync", Hook: h.Sync},
		table.NamedHook{Name: "finalize", Hook: h.Finalize},
		table.NamedHook{Name: "customize", Hook: h.Customize},
	)
}
