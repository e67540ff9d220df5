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

package compositecontroller

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

// Table returns the columns of kubectl get compositecontrollers.
func Table() table.Convertor {
	return table.Convertor{
		Columns: slices.Concat(
			[]metav1.TableColumnDefinition{
				table.NameColumn(),
				{Name: "Parent", Type: "string", Description: "Resource whose objects the controller handles."},
				{Name: "Children", Type: "string", Description: "Resources that the hooks may return as children."},
			},
			table.ReadyColumns(),
			table.ProgressColumns("parents"),
			[]metav1.TableColumnDefinition{table.AgeColumn()},
			table.HookColumns(),
			[]metav1.TableColumnDefinition{table.StrategyColumn(), table.AccountColumn()},
			table.CounterColumns("Parents"),
			[]metav1.TableColumnDefinition{table.ErrorColumn()},
		),
		Cells: cells,
		Clock: clock.RealClock{},
	}
}

func cells(object runtime.Object, now time.Time) ([]any, error) {
	o, ok := object.(*metacontroller.CompositeController)
	if !ok {
		return nil, fmt.Errorf("printing a %T as a CompositeController", object)
	}
	children := make([]string, 0, len(o.Spec.ChildResources))
	methods := make([]metacontroller.ChildUpdateMethod, 0, len(o.Spec.ChildResources))
	for _, rule := range o.Spec.ChildResources {
		children = append(children, table.Resource(rule.ResourceRule))
		var method metacontroller.ChildUpdateMethod
		if rule.UpdateStrategy != nil {
			method = rule.UpdateStrategy.Method
		}
		methods = append(methods, method)
	}
	return slices.Concat(
		[]any{o.Name, table.Resource(o.Spec.ParentResource.ResourceRule), table.List(children)},
		table.ReadyCells(o.Status.ControllerStatus),
		table.ProgressCells(o.Status.ControllerStatus),
		[]any{table.Age(o, now)},
		hooks(o.Spec.Hooks),
		[]any{table.StrategyCell(methods), table.AccountCell(o.Spec.ServiceAccountRef)},
		table.CounterCells(o.Status.ControllerStatus),
		[]any{table.ErrorCell(o.Status.ControllerStatus)},
	), nil
}

func hooks(h *metacontroller.CompositeControllerHooks) []any {
	if h == nil {
		return table.HookCells()
	}
	return table.HookCells(
		table.NamedHook{Name: "sync", Hook: h.Sync},
		table.NamedHook{Name: "finalize", Hook: h.Finalize},
		table.NamedHook{Name: "customize", Hook: h.Customize},
	)
}
