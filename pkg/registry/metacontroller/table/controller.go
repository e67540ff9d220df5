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

package table

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// ReadyColumns are the columns that ReadyCells fills.
func ReadyColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Ready", Type: text, Description: "Whether the controller runs: status of its condition Ready."},
		{Name: "Reason", Type: text, Description: "Why the controller does or does not run: reason of its condition Ready."},
	}
}

// ReadyCells returns the cells of ReadyColumns.
func ReadyCells(status metacontroller.ControllerStatus) []any {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return []any{Unknown, ""}
	}
	return []any{string(ready.Status), ready.Reason}
}

// ProgressColumns are the columns that ProgressCells fills. What the controller handles is named so: parents, or targets.
func ProgressColumns(handled string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Synced", Type: text, Description: "How many of its " + handled + " the controller has synced well when it last tried."},
		{Name: "Failing", Type: text, Description: "How many of its " + handled + " could not be synced when the controller last tried."},
	}
}

// ProgressCells returns the cells of ProgressColumns.
func ProgressCells(status metacontroller.ControllerStatus) []any {
	if status.Counters == nil {
		return []any{Unknown, Unknown} // Not 0, which is what a controller without parents has.
	}
	return []any{fmt.Sprintf("%d/%d", status.Counters.Synced, status.Counters.Parents), status.Counters.Failing}
}

// AccountColumn is the wide column that AccountCell fills.
func AccountColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Service Account", Type: text, Priority: 1,
		Description: "Service account as which the controller acts, as namespace/name.",
	}
}

// AccountCell returns the cell of AccountColumn.
func AccountCell(ref *metacontroller.ServiceAccountReference) string {
	if ref == nil {
		return None
	}
	return ref.Namespace + "/" + ref.Name
}

// ErrorColumn is the wide column that ErrorCell fills.
func ErrorColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Last Error", Type: text, Priority: 1,
		Description: "Why the controller does not run, or what it lacks or holds, else the latest error of a parent: the message of the first " +
			"condition that tells of a fault, or of status.lastErrors.",
	}
}

// maxError is how much of a message a cell shows, in characters.
const maxError = 100

// ErrorCell returns the cell of ErrorColumn.
func ErrorCell(status metacontroller.ControllerStatus) string {
	for _, condition := range status.Conditions {
		if condition.Message != "" && condition.Status == fault(condition.Type) && condition.Reason != v1alpha1.ReasonPaused {
			return shorten(condition.Message)
		}
	}
	if len(status.LastErrors) > 0 {
		return shorten(status.LastErrors[0].Message)
	}
	return None
}

// fault returns the status in which a condition tells of a fault, which none is if it never does.
func fault(condition string) metav1.ConditionStatus {
	switch condition {
	case v1alpha1.ConditionProgressing, v1alpha1.ConditionPaused:
		return ""
	case v1alpha1.ConditionDeletionsHeld:
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// shorten returns the beginning of a message, in one line.
func shorten(message string) string {
	characters := []rune(strings.Join(strings.Fields(message), " "))
	if len(characters) > maxError {
		return string(characters[:maxError]) + "…"
	}
	return string(characters)
}

// CounterColumns are the wide columns that CounterCells fills. The first is named for what the controller handles.
func CounterColumns(handled string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: handled, Type: text, Priority: 1, Description: "Number of objects that the controller handles."},
		{Name: "Syncs", Type: text, Priority: 1, Description: "Syncs that ended well since the server took the controller up."},
		{Name: "Failed", Type: text, Priority: 1, Description: "Syncs that failed since the server took the controller up."},
	}
}

// CounterCells returns the cells of CounterColumns.
func CounterCells(status metacontroller.ControllerStatus) []any {
	if status.Counters == nil {
		return []any{Unknown, Unknown, Unknown}
	}
	return []any{status.Counters.Parents, status.Counters.Syncs, status.Counters.FailedSyncs}
}

// Resource returns the resource that a rule names in kubectl's form, for example deployments.apps.
func Resource(rule metacontroller.ResourceRule) string {
	version, err := schema.ParseGroupVersion(rule.APIVersion)
	if err != nil {
		return rule.Resource
	}
	return schema.GroupResource{Group: version.Group, Resource: rule.Resource}.String()
}

// maxListed is how many elements a cell lists. Who has more wants their number.
const maxListed = 3

// List joins the elements of one cell. Of more than three it lists the first ones, and says how many more there are.
func List(elements []string) string {
	switch n := len(elements); {
	case n == 0:
		return None
	case n > maxListed:
		return fmt.Sprintf("%s + %d more", strings.Join(elements[:maxListed], ","), n-maxListed)
	}
	return strings.Join(elements, ",")
}
