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
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

// Controller is what is printed of a controller, of either kind.
type Controller struct {
	// Cells are those of the kind's own columns.
	Cells []any
	// Status is the controller's.
	Status v1alpha1.ControllerStatus
	// Sync, Finalize and Customize are the hooks, nil where the definition has none.
	Sync, Finalize, Customize *v1alpha1.Hook
	// Methods are how existing children are updated, for each child resource; an empty one is the default.
	Methods []v1alpha1.ChildUpdateMethod
	// Account is the service account as which the controller acts, nil for the server's own.
	Account *v1alpha1.ServiceAccountReference
}

// hooks returns the names of the hooks that are called, and where these are.
func (c *Controller) hooks() (called, addresses string) {
	var names, places []string
	for _, h := range []struct {
		name string
		hook *v1alpha1.Hook
	}{{"sync", c.Sync}, {"finalize", c.Finalize}, {"customize", c.Customize}} {
		if h.hook == nil || h.hook.Webhook == nil && h.hook.Inline == nil {
			continue
		}
		names = append(names, h.name)
		at := "inline"
		if h.hook.Webhook != nil {
			at = address(h.hook.Webhook)
		}
		if !slices.Contains(places, at) {
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
		if name := string(cmp.Or(method, v1alpha1.ChildUpdateOnDelete)); !slices.Contains(different, name) {
			different = append(different, name)
		}
	}
	return List(different)
}

// OfControllers returns the columns of one kind of controllers: own are those that only this kind has, and printed says what is in the
// cells. Handled names the objects that the controllers handle, such as Parents.
func OfControllers[O interface {
	runtime.Object
	metav1.Object
}](handled string, own []metav1.TableColumnDefinition, printed func(o O) Controller) Convertor {
	return Convertor{
		Columns: slices.Concat([]metav1.TableColumnDefinition{NameColumn()}, own, columnsOf(handled)),
		Cells: func(object runtime.Object, now time.Time) ([]any, error) {
			o, ok := object.(O)
			if !ok {
				return nil, fmt.Errorf("printing a %T as a %T", object, o)
			}
			c := printed(o)
			return slices.Concat([]any{o.GetName()}, c.Cells, c.cells(Age(o, now))), nil
		},
		Clock: clock.RealClock{},
	}
}

// columnsOf are the columns that cells fills.
func columnsOf(handled string) []metav1.TableColumnDefinition {
	many := strings.ToLower(handled)
	return []metav1.TableColumnDefinition{
		{Name: "Ready", Type: text, Description: "Whether the controller runs: status of its condition Ready."},
		{Name: "Reason", Type: text, Description: "Why the controller does or does not run: reason of its condition Ready."},
		{Name: "Synced", Type: text, Description: "How many of its " + many + " the controller has synced well when it last tried."},
		{Name: "Failing", Type: text, Description: "How many of its " + many + " could not be synced when the controller last tried."},
		AgeColumn(),
		{Name: "Hooks", Type: text, Priority: 1, Description: "Hooks that the controller calls."},
		{Name: "Address", Type: text, Priority: 1, Description: "Where the hooks are: scheme, host and port."},
		{Name: "Strategy", Type: text, Priority: 1, Description: "How existing children are updated: the methods of all child resources."},
		{Name: "Service Account", Type: text, Priority: 1, Description: "Service account as which the controller acts, as namespace/name."},
		{Name: handled, Type: text, Priority: 1, Description: "Number of objects that the controller handles."},
		{Name: "Syncs", Type: text, Priority: 1, Description: "Syncs that ended well since the server took the controller up."},
		{Name: "Failed", Type: text, Priority: 1, Description: "Syncs that failed since the server took the controller up."},
		{
			Name: "Last Error", Type: text, Priority: 1,
			Description: "Why the controller does not run, or what it lacks or holds, else the latest error of a parent: the message of the first " +
				"condition that tells of a fault, or of status.lastErrors.",
		},
	}
}

func (c *Controller) cells(age string) []any {
	ready := &metav1.Condition{Status: Unknown}
	if found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady); found != nil {
		ready = found
	}
	// Not 0, which is what a controller without parents has.
	var synced, failing, parents, syncs, failed any = Unknown, Unknown, Unknown, Unknown, Unknown
	if n := c.Status.Counters; n != nil {
		synced, failing, parents, syncs, failed = fmt.Sprintf("%d/%d", n.Synced, n.Parents), n.Failing, n.Parents, n.Syncs, n.FailedSyncs
	}
	account := None
	if c.Account != nil {
		account = c.Account.Namespace + "/" + c.Account.Name
	}
	called, addresses := c.hooks()
	return []any{
		string(ready.Status), ready.Reason, synced, failing, age, called, addresses, strategies(c.Methods), account, parents, syncs, failed,
		lastError(c.Status),
	}
}

// maxError is how much of a message a cell shows, in characters.
const maxError = 100

// lastError returns why a controller does not do what it should.
func lastError(status v1alpha1.ControllerStatus) string {
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

// Resource returns the resource that a rule names in kubectl's form, for example deployments.apps.
func Resource(rule v1alpha1.ResourceRule) string {
	resource, _ := rule.GroupVersionResource() // One of no API version is printed alone.
	return resource.GroupResource().String()
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
