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

package inspection

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func syncsNameTheirTriggers(t *testing.T, e *fixture.Environment) {
	tests(t, e, fixture.Table[*stage]{
		Both: map[string]func(*stage){
			"each cause":            causes,
			"a timer and resyncs":   timers,
			"a table":               syncsTable,
			"two controllers fight": fight,
		},
		Inline: map[string]func(*stage){"the status is read": statusRead, "the status is unread": statusUnread},
	})
}

// syncs asks for the syncs of a controller.
func (s *stage) syncs(
	as typedv1alpha1.MetacontrollerV1alpha1Interface, kind fixture.Kind, controller string, o v1alpha1.ControllerSyncOptions,
) (*v1alpha1.ControllerSyncList, error) {
	return subresources(as, kind).GetSyncs(s.T.Context(), controller, o)
}

// awaitSync waits for a sync of a parent that began after the syncs that are known.
func (s *stage) awaitSync(what, name string, is func(*v1alpha1.ControllerSync) bool) {
	s.T.Helper()
	s.awaitSyncOf(s.kind, s.controller.Name, what, name, is)
}

func (s *stage) awaitSyncOf(kind fixture.Kind, controller, what, name string, is func(*v1alpha1.ControllerSync) bool) {
	s.T.Helper()
	var list *v1alpha1.ControllerSyncList
	var err error
	cluster.EventuallySeen(s.T, limit, "a sync: "+what, func(context.Context) bool {
		list, err = s.syncs(s.admin(), kind, controller, v1alpha1.ControllerSyncOptions{Namespace: s.Name, Name: name})
		return err == nil && slices.ContainsFunc(list.Items, func(sync v1alpha1.ControllerSync) bool { return is(&sync) })
	}, func() string {
		if err != nil {
			return err.Error()
		}
		var seen []string
		for i := range list.Items {
			seen = append(seen, fmt.Sprintf("%+v", list.Items[i]))
		}
		return strings.Join(seen, "\n")
	})
}

// triggered reports whether a sync has a trigger for a reason, about an object and a field; empty stands for any.
func triggered(s *v1alpha1.ControllerSync, reason v1alpha1.SyncReason, object, field string) bool {
	return slices.ContainsFunc(s.Triggers, func(t v1alpha1.SyncTrigger) bool {
		return t.Reason == reason && (object == "" || t.Object != nil && t.Object.Kind+"/"+t.Object.Name == object && t.Object.Namespace == s.Namespace) &&
			(field == "" || slices.Contains(t.Fields, field))
	})
}

// did reports whether a sync did something with a child, because of a field; empty stands for none.
func did(s *v1alpha1.ControllerSync, action v1alpha1.ChildAction, name, field string) bool {
	return slices.ContainsFunc(s.Children, func(c v1alpha1.SyncChild) bool {
		return c.Action == action && c.Kind == "ConfigMap" && c.Resource == "configmaps" && c.Name == name && (field == "" || slices.Contains(c.Fields, field))
	})
}

// causes brings about each cause but those that take time, one after the other, and finds it.
func causes(s *stage) {
	s.definition.Finalize = s.finalize
	s.definition.Customize = s.Customizing(s.kind, s.inline, hook.RelatedResourceRule{APIVersion: "v1", Resource: "services", Namespace: s.Name, Names: []string{"related"}})
	s.Parent("old", map[string]any{"names": "first", "data": "x"})
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	for _, step := range []struct {
		cause, parent string
		act           func()
		is            func(*v1alpha1.ControllerSync) bool
	}{
		{"first sight after a start", "old", nil, func(c *v1alpha1.ControllerSync) bool { return triggered(c, v1alpha1.SyncStarted, "", "") }},
		{"creation", "a", nil, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncParentCreated, "Thing/a", "")
		}},
		{"what the creation did", "a", nil, func(c *v1alpha1.ControllerSync) bool {
			return did(c, v1alpha1.ChildCreate, "one", "") && slices.ContainsFunc(c.Fields, func(f string) bool { return strings.HasPrefix(f, "metadata.finalizers") }) &&
				c.DurationMilliseconds >= c.HookMilliseconds
		}},
		{"own write", "a", nil, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncOwnWrite, "ConfigMap/one", "") && len(c.Children) == 0
		}},
		{"spec", "a", func() { s.Patch(fixture.Things, "a", `{"spec":{"data":"y"}}`) }, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncSpecChanged, "Thing/a", "spec.data") && did(c, v1alpha1.ChildUpdate, "one", "data.data")
		}},
		{"metadata", "a", func() { s.Patch(fixture.Things, "a", `{"metadata":{"annotations":{"note":"x"}}}`) }, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncMetadataChanged, "Thing/a", "metadata.annotations") ||
				triggered(c, v1alpha1.SyncMetadataChanged, "Thing/a", "metadata.annotations.note")
		}},
		{"status", "a", func() {
			s.Patch(fixture.Things, "a", `{"status":{"data":"foreign"}}`, "status")
		}, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncStatusChanged, "Thing/a", "status.data") && slices.Contains(c.Fields, "status.data")
		}},
		{"child changed", "a", func() { s.Patch(fixture.ConfigMaps, "one", `{"data":{"data":"drift"}}`) }, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncChildChanged, "ConfigMap/one", "data.data") && did(c, v1alpha1.ChildUpdate, "one", "data.data")
		}},
		{"child deleted", "a", func() { s.Delete(fixture.ConfigMaps, "one") }, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncChildDeleted, "ConfigMap/one", "") && did(c, v1alpha1.ChildCreate, "one", "")
		}},
		{"related object", "a", func() {
			s.related()
		}, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncRelatedChanged, "Service/related", "")
		}},
		{"resync asked for by a user", "a", func() {
			if _, err := s.resync(s.admin(), &v1alpha1.ParentSelection{Name: "a"}); err != nil {
				s.T.Fatal(err)
			}
		}, func(c *v1alpha1.ControllerSync) bool { return triggered(c, v1alpha1.SyncResyncRequested, "", "") }},
		{"retry after an error", "a", func() {
			s.Patch(fixture.Things, "a", `{"spec":{"data":"z","fails":"the hook has a bad day"}}`)
		}, func(c *v1alpha1.ControllerSync) bool {
			return triggered(c, v1alpha1.SyncRetry, "", "") && strings.Contains(c.Error, "the hook has a bad day")
		}},
		{"controller edited", "a", func() {
			s.Patch(fixture.Things, "a", `{"spec":{"fails":null}}`)
			s.controller.Patch(`{"spec":{"workers":3}}`)
		}, func(c *v1alpha1.ControllerSync) bool { return triggered(c, v1alpha1.SyncControllerChanged, "", "") }},
		{"what was before the edit", "a", nil, func(c *v1alpha1.ControllerSync) bool { return triggered(c, v1alpha1.SyncRelatedChanged, "", "") }},
	} {
		if step.act != nil {
			s.Idle(s.controller)
			step.act()
		}
		s.awaitSync(step.cause, step.parent, step.is)
	}
	deletion(s)
}

// deletion deletes a parent, whose syncs are forgotten when it is gone.
func deletion(s *stage) {
	s.Patch(fixture.Things, "a", `{"spec":{"fails":"the hook does not finalize yet"}}`)
	s.Delete(fixture.Things, "a")
	s.awaitSync("deletion", "a", func(c *v1alpha1.ControllerSync) bool {
		return triggered(c, v1alpha1.SyncParentDeleted, "Thing/a", "metadata.deletionTimestamp")
	})
	s.Patch(fixture.Things, "a", `{"spec":{"fails":null}}`)
	s.Await(fixture.Things, "a", "to be gone", cluster.Gone)
	s.eventually("its syncs to be forgotten", func() bool {
		list, err := s.syncs(s.admin(), s.kind, s.controller.Name, v1alpha1.ControllerSyncOptions{Namespace: s.Name})
		return err == nil && len(list.Items) > 0 && !slices.ContainsFunc(list.Items, func(c v1alpha1.ControllerSync) bool { return c.Name == "a" })
	})
}

// timers lets a hook ask for a sync, and the period of resyncs pass.
func timers(s *stage) {
	s.definition.ResyncPeriod = new(int32(1))
	s.run()
	s.Parent("timed", map[string]any{"names": "one", "data": "x", "resync": 0.2})
	s.Parent("resynced", map[string]any{"names": "two", "data": "x"})
	s.awaitSync("timer", "timed", func(c *v1alpha1.ControllerSync) bool { return triggered(c, v1alpha1.SyncTimer, "", "") })
	s.awaitSync("resync period", "resynced", func(c *v1alpha1.ControllerSync) bool { return triggered(c, v1alpha1.SyncResyncPeriod, "", "") })
}

// statusRead has an inline hook whose response depends on the status that it has returned before: it is asked again when that is written.
func statusRead(s *stage) {
	s.definition.Sync = fixture.Inline(s.T, s.kind, `status: {data: "${parent.?status.?data.orValue('') == '' ? 'first' : parent.spec.data}"}`)
	s.run()
	s.Parent("a", map[string]any{"data": "x"})
	s.awaitSync("own write", "a", func(c *v1alpha1.ControllerSync) bool {
		return triggered(c, v1alpha1.SyncOwnWrite, "Thing/a", "") && slices.Contains(c.Fields, "status.data")
	})
	s.awaitStatus("x")
}

// statusUnread has an inline hook that does not look at the status: it is asked when another client has written that, and not when its own response
// was written.
func statusUnread(s *stage) {
	s.definition.Sync = fixture.Inline(s.T, s.kind, `status: {data: "${parent.spec.data}"}`)
	s.run()
	s.Parent("a", map[string]any{"data": "x"})
	s.awaitStatus("x")
	s.Idle(s.controller)
	s.Patch(fixture.Things, "a", `{"spec":{"data":"y"}}`)
	s.awaitSync("spec", "a", func(c *v1alpha1.ControllerSync) bool {
		return triggered(c, v1alpha1.SyncSpecChanged, "Thing/a", "spec.data") && slices.Contains(c.Fields, "status.data")
	})
	s.awaitStatus("y")
	s.Idle(s.controller)
	s.Patch(fixture.Things, "a", `{"status":{"data":"foreign"}}`, "status")
	s.awaitSync("the status of another client", "a", func(c *v1alpha1.ControllerSync) bool {
		return triggered(c, v1alpha1.SyncStatusChanged, "Thing/a", "status.data") && slices.Contains(c.Fields, "status.data")
	})
	s.awaitStatus("y")
	s.Idle(s.controller)
	list, err := s.syncs(s.admin(), s.kind, s.controller.Name, v1alpha1.ControllerSyncOptions{Namespace: s.Name, Name: "a"})
	if err != nil {
		s.T.Fatal(err)
	}
	for i := range list.Items {
		if triggered(&list.Items[i], v1alpha1.SyncOwnWrite, "", "") {
			s.T.Errorf("the hook was asked again about its own status: %+v", list.Items[i])
		}
	}
}

func (s *stage) awaitStatus(data string) {
	s.T.Helper()
	s.Await(fixture.Things, "a", "to have the status "+data, func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "data") == data })
}

// syncsTable is what kubectl and the server's printing show. Values are in neither.
func syncsTable(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "very-secret"})
	s.awaitSync("creation", "a", func(c *v1alpha1.ControllerSync) bool { return did(c, v1alpha1.ChildCreate, "one", "") })
	s.Idle(s.controller)
	s.Patch(fixture.ConfigMaps, "one", `{"data":{"data":"no-secret"}}`)
	s.awaitSync("drift", "a", func(c *v1alpha1.ControllerSync) bool { return did(c, v1alpha1.ChildUpdate, "one", "data.data") })
	path := "/apis/metacontroller.k8s.io/v1alpha1/" + s.resource() + "/" + s.controller.Name + "/syncs"
	raw := s.Kubectl(s.T, "get", "--raw", path+"?namespace="+s.Name)
	for _, part := range []string{`"kind":"ControllerSyncList"`, `"apiVersion":"metacontroller.k8s.io/v1alpha1"`, `"reason":"ChildChanged"`, `"data.data"`} {
		if !strings.Contains(raw, part) {
			s.T.Errorf("no %s in %s", part, raw)
		}
	}
	if strings.Contains(raw, "-secret") {
		s.T.Errorf("values are in %s", raw)
	}
	printed := &metav1.Table{}
	err := s.admin().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(s.T.Context()).Into(printed)
	if err != nil || len(printed.Rows) < 2 {
		s.T.Fatalf("the table is %+v, error %v", printed, err)
	}
	if !slices.ContainsFunc(printed.Rows, func(r metav1.TableRow) bool {
		return strings.Contains(fmt.Sprint(r.Cells[3]), "ChildChanged ConfigMap/one (data.data)") && r.Cells[7] == "Update ConfigMap/one (data.data)"
	}) {
		s.T.Errorf("the table is %+v", printed.Rows)
	}
}

// fight lets a DecoratorController change a label of a child back. Each of both controllers shows what the other one does.
func fight(s *stage) {
	const side = "side"
	selected := s.Name + "-child"
	s.behaves(func(*fixture.Call) (*fixture.Reply, error) {
		child := fixture.ConfigMap("one", map[string]any{"data": "x"})
		child.SetLabels(map[string]string{fixture.Label: selected, side: "owner"})
		return &fixture.Reply{Children: []*hook.Object{child}}, nil
	}, fmt.Sprintf(`
children:
- template: {apiVersion: v1, kind: ConfigMap, metadata: {name: one, labels: {%q: %q, %q: owner}}, data: {data: x}}
`, fixture.Label, selected, side))
	other := s.NewScript(fixture.Decorator)
	other.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Labels: map[string]*string{side: new("decorator")}}, nil
	})
	s.Handle("/other", other)
	s.run()
	decorator := s.Run(fixture.Definition{
		Kind: fixture.Decorator, Name: s.Name + "-other", Parents: []schema.GroupVersionResource{fixture.ConfigMaps}, Selector: map[string]string{fixture.Label: selected},
		Sync: s.At("/other"),
	})
	s.Parent("a", nil)
	s.awaitSync("the owner's side", "a", func(c *v1alpha1.ControllerSync) bool {
		return triggered(c, v1alpha1.SyncChildChanged, "ConfigMap/one", "metadata.labels."+side) && did(c, v1alpha1.ChildUpdate, "one", "metadata.labels."+side) &&
			slices.Contains(c.Children[0].ChangedBackBy, "DecoratorController "+decorator.Name)
	})
	s.awaitSyncOf(fixture.Decorator, decorator.Name, "the decorator's side", "one", func(c *v1alpha1.ControllerSync) bool {
		return triggered(c, v1alpha1.SyncMetadataChanged, "ConfigMap/one", "metadata.labels."+side) && slices.Contains(c.Fields, "metadata.labels."+side) &&
			slices.Contains(c.ChangedBackBy, "the controller of Thing a")
	})
}

// syncsNameWhoChangesChildrenBack edits a child twice with kubectl edit.
func syncsNameWhoChangesChildrenBack(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nexec sed -i 's/data: x/data: edited/' \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBE_EDITOR", editor)
	for range 2 {
		// The editor changes what the hook wants, so the edit before must have been taken back.
		s.Await(fixture.ConfigMaps, "one", "to be as the hook wants it", has("x"))
		s.Idle(s.controller)
		s.Kubectl(t, "-n", s.Name, "edit", "configmap", "one")
	}
	s.awaitSync("the update that takes the edit back", "a", func(c *v1alpha1.ControllerSync) bool {
		return triggered(c, v1alpha1.SyncChildChanged, "ConfigMap/one", "data.data") && did(c, v1alpha1.ChildUpdate, "one", "data.data") &&
			slices.Equal(c.Children[0].ChangedBackBy, []string{"kubectl-edit"})
	})
}
