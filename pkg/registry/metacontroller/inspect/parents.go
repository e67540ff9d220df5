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
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// ParentsREST says how a controller is doing with its parents.
type ParentsREST struct{ *subresource }

var (
	_ rest.GetterWithOptions = &ParentsREST{}
	_ rest.TableConvertor    = &ParentsREST{}
)

// New returns an empty list.
func (*ParentsREST) New() runtime.Object { return &v1alpha1.ControllerParentList{} }

// NewGetOptions returns the query parameters.
func (*ParentsREST) NewGetOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return &v1alpha1.ControllerParentOptions{}, false, ""
}

// Get returns the parents of a controller that the options select and the caller may get.
func (r *ParentsREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	o, ok := options.(*v1alpha1.ControllerParentOptions)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the options are a %T", options))
	}
	if err := checkState(o.State); err != nil {
		return nil, err
	}
	selection := &v1alpha1.ParentSelection{Resource: o.Resource, Namespace: o.Namespace, Name: o.Name}
	_, c, s, err := r.queried(ctx, name, selection, o.LabelSelector, false)
	if err != nil {
		return nil, err
	}
	list, err := page(ctx, c, s.parents, o)
	if err != nil {
		return nil, err
	}
	list.Hidden = s.hidden
	return list, nil
}

var states = []v1alpha1.ParentState{
	v1alpha1.ParentSynced, v1alpha1.ParentPending, v1alpha1.ParentSyncing, v1alpha1.ParentFailing, v1alpha1.ParentWaiting,
	v1alpha1.ParentHeld, v1alpha1.ParentPaused,
}

func checkState(state string) error {
	if state != "" && !slices.Contains(states, v1alpha1.ParentState(state)) {
		return apierrors.NewBadRequest(fmt.Sprintf("state: %q is none of %q", state, states))
	}
	return nil
}

// page returns the states of the parents behind the token, up to the limit.
func page(
	ctx context.Context, c inspection.Controller, parents []v1alpha1.ParentReference, o *v1alpha1.ControllerParentOptions,
) (*v1alpha1.ControllerParentList, error) {
	rest, err := from(parents, o.Continue)
	if err != nil {
		return nil, err
	}
	list, limit := &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{}}, limited(o.Limit)
	for i, p := range rest {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("looking for parents in the state %q: %w", o.State, err)
		}
		if len(list.Items) == limit {
			if list.Continue, err = token(rest[i-1]); err != nil {
				return nil, err
			}
			if o.State == "" {
				list.RemainingItemCount = new(int64(len(rest) - i))
			}
			break
		}
		if state, ok := c.State(p, v1alpha1.ParentState(o.State)); ok {
			list.Items = append(list.Items, state)
		}
	}
	return list, nil
}

// ConvertToTable prints a list of parents.
func (*ParentsREST) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	list, ok := object.(*v1alpha1.ControllerParentList)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("a %T is no list of parents", object))
	}
	return tableOf(list, options), nil
}

// text is the type of most columns.
const text = "string"

// rowObject returns the object of a row: whole, which is a list of one, as lists are what the API has, if the options of the table ask for objects.
func rowObject(options runtime.Object, p v1alpha1.ParentReference, whole runtime.Object) runtime.RawExtension {
	if o, ok := options.(*metav1.TableOptions); ok && o.IncludeObject == metav1.IncludeObject {
		return runtime.RawExtension{Object: whole}
	}
	return runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}}
}

// tableOf prints parents.
func tableOf(list *v1alpha1.ControllerParentList, options runtime.Object) *metav1.Table {
	table := &metav1.Table{
		ListMeta: list.ListMeta,
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Namespace", Type: text, Description: "The namespace of the parent."},
			{Name: "Name", Type: text, Format: "name", Description: "The name of the parent."},
			{Name: "State", Type: text, Description: "How the controller is doing with the parent."},
			{Name: "Children", Type: text, Description: "How many children are ready, if that is known, and how many there are."},
			{Name: "Last Sync", Type: text, Description: "How long ago the last sync ended."},
			{Name: "Took", Type: text, Description: "How long the last sync took."},
			{Name: "Retries", Type: "integer", Description: "How many syncs have failed in a row."},
			{Name: "Next", Type: text, Description: "When the parent is synced even if nothing changes."},
			{Name: "Message", Type: text, Description: "What the parent waits for, why it is held, or the error of the last sync."},
			{Name: "Resource", Type: text, Priority: 1, Description: "The resource of the parent."},
		},
		Rows: []metav1.TableRow{},
	}
	now := time.Now()
	for i := range list.Items {
		p := &list.Items[i]
		lastSync, took, next := "<none>", "<none>", "<none>"
		if p.LastSyncTime != nil {
			lastSync = duration.HumanDuration(now.Sub(p.LastSyncTime.Time))
			took = (time.Duration(p.LastSyncMilliseconds) * time.Millisecond).String()
		}
		if p.NextSyncTime != nil {
			next = duration.HumanDuration(max(0, p.NextSyncTime.Sub(now)))
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells: []any{
				p.Namespace, p.Name, string(p.State), p.Children.Text(), lastSync, took, int64(p.Retries), next, cmp.Or(p.Message, p.LastError),
				p.GroupResource().String(),
			},
			Object: rowObject(options, p.ParentReference, &v1alpha1.ControllerParentList{Items: list.Items[i : i+1]}),
		})
	}
	return table
}
