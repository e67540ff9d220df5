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
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// SyncsREST says what the recent syncs of a controller did, and why.
type SyncsREST struct{ *subresource }

var (
	_ rest.GetterWithOptions = &SyncsREST{}
	_ rest.TableConvertor    = &SyncsREST{}
)

// New returns an empty list.
func (*SyncsREST) New() runtime.Object { return &v1alpha1.ControllerSyncList{} }

// NewGetOptions returns the query parameters.
func (*SyncsREST) NewGetOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return &v1alpha1.ControllerSyncOptions{}, false, ""
}

// Get returns the recent syncs of the parents that the options select, if the caller may get the parents and the children. Other objects
// that he may not get are not named.
func (r *SyncsREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	o, ok := options.(*v1alpha1.ControllerSyncOptions)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the options are a %T", options))
	}
	selection := &v1alpha1.ParentSelection{Resource: o.Resource, Namespace: o.Namespace, Name: o.Name}
	who, c, s, err := r.queried(ctx, name, selection, o.LabelSelector, true)
	if err != nil {
		return nil, err
	}
	syncs, more, recorded := c.Syncs(s.parents, limited(o.Limit))
	if !recorded {
		return nil, apierrors.NewServiceUnavailable("this server does not record syncs: it runs with --sync-history-bytes=0")
	}
	if err := hide(ctx, who, syncs); err != nil {
		return nil, err
	}
	list := &v1alpha1.ControllerSyncList{Items: syncs, Hidden: s.hidden}
	if list.Items == nil {
		list.Items = []v1alpha1.ControllerSync{}
	}
	if more > 0 {
		list.RemainingItemCount = new(int64(more))
	}
	return list, nil
}

// hide takes out of syncs what the caller may not know: related objects, and children of kinds that a former definition declared.
func hide(ctx context.Context, who *caller, syncs []v1alpha1.ControllerSync) error {
	var places []inspection.Place
	for i := range syncs {
		for _, t := range syncs[i].Triggers {
			if t.Object != nil {
				places = append(places, placeOfObject(t.Object))
			}
		}
		for j := range syncs[i].Children {
			places = append(places, placeOfObject(&syncs[i].Children[j].SyncObject))
		}
	}
	if err := who.learn(ctx, places); err != nil {
		return err
	}
	for i := range syncs {
		for j := range syncs[i].Triggers {
			if t := &syncs[i].Triggers[j]; t.Object != nil && who.hides(placeOfObject(t.Object)) {
				*t = v1alpha1.SyncTrigger{Reason: t.Reason, Hidden: true}
			}
		}
		shown := syncs[i].Children[:0]
		for _, child := range syncs[i].Children {
			if who.sees(placeOfObject(&child.SyncObject)) {
				shown = append(shown, child)
			} else {
				syncs[i].MoreChildren++
			}
		}
		syncs[i].Children = shown
	}
	return nil
}

func placeOfObject(o *v1alpha1.SyncObject) inspection.Place {
	return inspection.Place{GroupResource: schema.GroupResource{Group: o.Group, Resource: o.Resource}, Namespace: o.Namespace}
}

// ConvertToTable prints a list of syncs.
func (*SyncsREST) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	list, ok := object.(*v1alpha1.ControllerSyncList)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("a %T is no list of syncs", object))
	}
	return tableOfSyncs(list, options), nil
}

// tableOfSyncs prints syncs.
func tableOfSyncs(list *v1alpha1.ControllerSyncList, options runtime.Object) *metav1.Table {
	table := &metav1.Table{
		ListMeta: list.ListMeta,
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Ago", Type: text, Description: "How long ago the sync began."},
			{Name: "Namespace", Type: text, Description: "The namespace of the parent."},
			{Name: "Name", Type: text, Format: "name", Description: "The name of the parent."},
			{Name: "Why", Type: text, Description: "What triggered the sync."},
			{Name: "Waited", Type: text, Description: "How long the parent waited for the sync."},
			{Name: "Hook", Type: text, Description: "How long the calls of hooks took."},
			{Name: "Took", Type: text, Description: "How long the sync took."},
			{Name: "Did", Type: text, Description: "What was done with which child, and what of the parent was written."},
			{Name: "Error", Type: text, Description: "The error of the sync."},
		},
		Rows: []metav1.TableRow{},
	}
	now := time.Now()
	for i := range list.Items {
		s := &list.Items[i]
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells: []any{
				duration.HumanDuration(now.Sub(s.Time.Time)), s.Namespace, s.Name, why(s), milliseconds(s.WaitMilliseconds),
				milliseconds(s.HookMilliseconds), milliseconds(s.DurationMilliseconds), did(s), s.Error,
			},
			Object: rowObject(options, s.ParentReference, &v1alpha1.ControllerSyncList{Items: list.Items[i : i+1]}),
		})
	}
	return table
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// why prints the triggers of a sync.
func why(s *v1alpha1.ControllerSync) string {
	var parts []string
	for i := range s.Triggers {
		t := &s.Triggers[i]
		part := string(t.Reason)
		if t.Object != nil && (t.Object.Resource != s.Resource || t.Object.Name != s.Name) {
			part += " " + t.Object.Kind + "/" + t.Object.Name
		}
		parts = append(parts, part+places(t.Fields, t.MoreFields))
	}
	return joined(parts, s.MoreTriggers)
}

// did prints what a sync did.
func did(s *v1alpha1.ControllerSync) string {
	var parts []string
	for i := range s.Children {
		c := &s.Children[i]
		part := string(c.Action) + " " + c.Kind + "/" + c.Name
		if c.Reason != "" {
			part += " " + c.Reason
		}
		parts = append(parts, part+places(c.Fields, c.MoreFields)+by(c.ChangedBackBy))
	}
	if len(s.Fields) > 0 {
		parts = append(parts, "Update parent"+places(s.Fields, false)+by(s.ChangedBackBy))
	}
	if len(s.Dropped) > 0 {
		parts = append(parts, "dropped of the parent"+places(s.Dropped, false))
	}
	return joined(parts, s.MoreChildren)
}

func places(fields []string, more bool) string {
	if len(fields) == 0 {
		return ""
	}
	list := strings.Join(fields, ", ")
	if more {
		list += ", ..."
	}
	return " (" + list + ")"
}

func by(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " changed back by " + strings.Join(names, ", ")
}

func joined(parts []string, more int32) string {
	list := strings.Join(parts, "; ")
	if more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return strings.TrimSpace(list)
}
