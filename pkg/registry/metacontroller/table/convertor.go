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
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// text is the type of all columns but ages. Numbers are text, too, since they may be unknown.
const text = "string"

// Unknown is printed where an object does not say.
const Unknown = "<unknown>"

// None is printed where an object says that there is nothing.
const None = "<none>"

// Convertor converts objects and lists of one kind. Set every field; it is safe for concurrent use.
type Convertor struct {
	// Columns are the headings, in order. Those with a priority above 0 are shown by kubectl get -o wide only.
	Columns []metav1.TableColumnDefinition
	// Cells returns the cells of one object, one for each column. It is given objects of the kind only, as hub types.
	Cells func(o runtime.Object, now time.Time) ([]any, error)
	// Clock tells the age of objects.
	Clock clock.PassiveClock
}

var _ rest.TableConvertor = Convertor{}

// ConvertToTable returns a table of one object, or of all items of a list.
func (c Convertor) ConvertToTable(_ context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	now := c.Clock.Now()
	add := func(o runtime.Object) error {
		cells, err := c.Cells(o, now)
		if err != nil {
			return err
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: o}})
		return nil
	}
	if meta.IsListType(object) {
		if err := meta.EachListItem(object, add); err != nil {
			return nil, err
		}
	} else if err := add(object); err != nil {
		return nil, err
	}
	if list, err := meta.ListAccessor(object); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, err := meta.CommonAccessor(object); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || !options.NoHeaders {
		table.ColumnDefinitions = c.Columns
	}
	return table, nil
}

// Age returns the time since an object's creation as kubectl prints it.
func Age(o metav1.Object, now time.Time) string {
	created := o.GetCreationTimestamp()
	if created.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(created.Time))
}

// NameColumn is the first column of every kind.
func NameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Name", Type: text, Format: "name", Description: "Name of the object."}
}

// AgeColumn is the last narrow column of every kind.
func AgeColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: "Age", Type: text, Description: "Time since the object was created."}
}

// hooks returns the names of the hooks that are called, and where these are.
func (c *Controller) hooks() (called, addresses string) {
	var names, places []string
	for _, h := range []struct {
		name string
		hook *v1alpha1.Hook
	}{{"sync", c.Sync}, {"finalize", c.Finalize}, {"customize", c.Customize}} {
		if h.hook == nil || h.hook.Webhook == nil {
			continue
		}
		names = append(names, h.name)
		if at := address(h.hook.Webhook); !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	return List(names), List(places)
}

// address is where a webhook is. The path and the query are left out, and the user: they may be secret.
func address(webhook *v1alpha1.Webhook) string {
	if webhook.URL != nil {
		u, err := url.Parse(*webhook.URL)
		if err != nil || u.Host == "" {
			return Unknown
		}
		return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	}
	if webhook.Service == nil {
		return Unknown
	}
	s := webhook.Service
	host := net.JoinHostPort(s.Name+"."+s.Namespace, strconv.Itoa(int(ptr.Deref(s.Port, 80))))
	return (&url.URL{Scheme: ptr.Deref(s.Protocol, "http"), Host: host}).String()
}

// strategies returns each method once. An empty one is the default.
func strategies(methods []v1alpha1.ChildUpdateMethod) string {
	var different []string
	for _, method := range methods {
		if method == "" {
			method = v1alpha1.ChildUpdateOnDelete
		}
		if !slices.Contains(different, string(method)) {
			different = append(different, string(method))
		}
	}
	return List(different)
}
