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

package reconciler

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// of returns the events of a reason.
func (l *eventLog) of(reason string) []string {
	return slices.DeleteFunc(slices.Clone(l.events), func(e string) bool { return !strings.HasPrefix(e, reason+": ") })
}

func TestAChildThatOnDeleteLeavesIsToldOnceForEachChange(t *testing.T) {
	c := newControlOf(t, &api{}, v1alpha1.ChildUpdateOnDelete)
	version := func(number, value string) string {
		return strings.NewReplacer(`"5"`, `"`+number+`"`, `"old"`, `"`+value+`"`).Replace(theChild)
	}
	for _, step := range []struct {
		reason, desired, child string
		told                   int
	}{
		{"It differs.", "v", version("5", "old"), 1},
		{"Nothing is new.", "v", version("5", "old"), 1},
		{"The child changed, and differs in the same way.", "v", version("6", "older"), 1},
		{"Something else is desired.", "w", version("6", "older"), 2},
		{"It does not differ.", "older", version("6", "older"), 2},
		{"A parent that is forgotten is told anew.", "w", version("6", "older"), 3},
	} {
		if step.told == 3 {
			c.forget()
		}
		if _, err := c.reconcileTo(t, step.desired, parse(t, step.child)); err != nil {
			t.Fatal(err)
		}
		events := c.events.of("ChildNotUpdated")
		if len(events) != step.told {
			t.Errorf("%q, want %d events: %s", events, step.told, step.reason)
		}
		for _, e := range events {
			if !strings.Contains(e, "ConfigMap ns/a (data.k)") || !strings.Contains(e, "OnDelete") || !strings.Contains(e, "InPlace") {
				t.Errorf("the event %q names no child, field or cure", e)
			}
		}
	}
}

func TestManyChildrenThatOnDeleteLeavesAreToldOnce(t *testing.T) {
	c := newControlOf(t, &api{}, v1alpha1.ChildUpdateOnDelete)
	var observed []*object.Object
	var desired []children.Desired
	for i := range 1000 {
		key := children.Key{Kind: "ConfigMap", Namespace: "ns", Name: fmt.Sprint("a", i)}
		observed = append(observed, parse(t, strings.NewReplacer(`"a"`, strconv.Quote(key.Name), `"u"`, strconv.Quote(key.Name)).Replace(theChild)))
		desired = append(desired, children.Desired{Key: key, APIVersion: "v1", Content: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": key.Name, "namespace": "ns"}, "data": map[string]any{"k": "v"},
		}})
	}
	for range 3 {
		sync := c.sync()
		in, err := sync.gather(t.Context(), observed, desired, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := sync.reconcile(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if events := c.events.of("ChildNotUpdated"); len(events) != 1 || !strings.Contains(events[0], "ConfigMap ns/a0 (data.k)") {
		t.Errorf("%q", events)
	}
}

// TestAChildThatIsAsItWasAppliedIsNotToldAfterARestart has children that were applied with what is desired, and that the API server shows otherwise:
// after a restart nobody knows what it has made of that.
func TestAChildThatIsAsItWasAppliedIsNotToldAfterARestart(t *testing.T) {
	applied := func(value string) string {
		record := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"},"data":{"k":%q}}`, value)
		return strings.Replace(theChild, `"metadata":{`, fmt.Sprintf(`"metadata":{"annotations":{%q:%q},`, merge.Annotation, record), 1)
	}
	for name, tc := range map[string]struct {
		reason, applied, desired string
		told                     int
	}{
		"AsApplied":   {"It may be the API server's form of that.", "v", "v", 0},
		"HookChanged": {"It was applied as something else.", "v", "w", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControlOf(t, &api{}, v1alpha1.ChildUpdateOnDelete)
			if _, err := c.reconcileTo(t, tc.desired, parse(t, applied(tc.applied))); err != nil {
				t.Fatal(err)
			}
			if events := c.events.of("ChildNotUpdated"); len(events) != tc.told {
				t.Errorf("%q, want %d. %s", events, tc.told, tc.reason)
			}
		})
	}
}

func TestAChildThatIsAppliedBecauseItIsLargeIsToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		rule  children.Rule
		value string
		told  int
	}{
		"Large":                {children.Rule{}, strings.Repeat("x", 300<<10), 1},
		"Small":                {children.Rule{}, "v", 0},
		"LargeAndServerSide":   {children.Rule{ServerSide: true}, strings.Repeat("x", 300<<10), 0},
		"LargeAndNoForceAtAll": {children.Rule{Force: false}, strings.Repeat("x", 300<<10), 1},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rule.Method = v1alpha1.ChildUpdateInPlace
			a := &api{answers: map[string]string{http.MethodPost: theChild, http.MethodPatch: theChild}}
			c := newControlBy(t, a, tc.rule)
			for range 2 {
				if _, err := c.reconcileTo(t, tc.value); err != nil {
					t.Fatal(err)
				}
			}
			events := c.events.of("ChildAppliedServerSide")
			if len(a.writes) != 2 || len(events) != tc.told {
				t.Fatalf("%d writes, events %q", len(a.writes), events)
			}
			if tc.told > 0 && (!strings.Contains(events[0], "ConfigMap ns/a") || !strings.Contains(a.writes[0], "force=true")) {
				t.Errorf("the event is %q, the first write %.100s", events[0], a.writes[0])
			}
		})
	}
}

func TestWhatTheAPIServerWarnsAboutIsToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		warning string
		want    []string
	}{
		"UnknownField": {`unknown field \"data.K\"`, []string{"ConfigMap ns/a", `unknown field "data.K"`, "does not store such a field"}},
		"Deprecation":  {"v1beta1 CronJob is deprecated", []string{"ConfigMap ns/a", "v1beta1 CronJob is deprecated"}},
	} {
		t.Run(name, func(t *testing.T) {
			written := strings.NewReplacer(`"old"`, `"v"`, `"5"`, `"6"`).Replace(theChild)
			a := &api{answers: map[string]string{http.MethodPut: written}, warning: tc.warning}
			c := newControl(t, a)
			for range 2 {
				if _, err := c.reconcile(t, parse(t, theChild)); err != nil {
					t.Fatal(err)
				}
			}
			events := c.events.of("ChildWarning")
			if len(a.writes) != 2 || len(events) != 1 {
				t.Fatalf("%d writes, events %q", len(a.writes), events)
			}
			for _, part := range tc.want {
				if !strings.Contains(events[0], part) {
					t.Errorf("the event is %q, want %q in it", events[0], part)
				}
			}
		})
	}
}

func TestAStatusThatIsNotSentIsToldAtTheCreation(t *testing.T) {
	for name, tc := range map[string]struct {
		rule children.Rule
		sent bool
	}{
		"merged, and the kind has the subresource":  {children.Rule{HasStatus: true}, false},
		"merged, and the kind has none":             {children.Rule{}, true},
		"applied, and the kind has the subresource": {children.Rule{HasStatus: true, ServerSide: true}, false},
		"applied, and the kind has none":            {children.Rule{ServerSide: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rule.Method = v1alpha1.ChildUpdateInPlace
			a := &api{answers: map[string]string{http.MethodPost: theChild, http.MethodPatch: theChild}}
			c := newControlBy(t, a, tc.rule)
			if _, err := c.reconcileWith(t, map[string]any{"status": map[string]any{"phase": "Done"}}); err != nil {
				t.Fatal(err)
			}
			if len(a.writes) != 1 || !tc.rule.HasStatus && strings.Contains(a.writes[0], "Done") != tc.sent {
				t.Errorf("writes %q, want the status in one: %t", a.writes, tc.sent)
			}
			if events := c.events.of("ChildStatusIgnored"); (len(events) == 0) != tc.sent {
				t.Errorf("events %q for a status that is sent: %t", events, tc.sent)
			}
		})
	}
}
