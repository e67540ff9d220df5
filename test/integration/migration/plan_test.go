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

package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/migration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// TestAMoveStopsBeforeChildrenChange has what the server's controllers would do found out before anything stops: of one whose hook returns what there is,
// of those that would change a child, because the hook returns another one or somebody has edited it, and of one whose hook is not reached.
func TestAMoveStopsBeforeChildrenChange(t *testing.T) {
	s := newScene(t, "testdata/definitions.yaml", "")
	for _, name := range []string{"same", "other", "drifted"} {
		s.create(composites, s.composite(name))
		s.thing(name, name)
	}
	s.create(decorators, s.decorator("notes", "same"))
	if err := s.run(migration.Forward, s.config(), nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"same", "other", "drifted", "same-note"} {
		s.child(name)
	}
	if err := s.run(migration.Back, s.config(), nil); err != nil {
		t.Fatal(err)
	}
	s.plane.Kubectl(t, "patch", "compositecontroller", "other", "--type=merge", "--patch", fmt.Sprintf(`{"spec":{"hooks":{"sync":{"webhook":{"url":%q}}}}}`, s.hook.URL+"/edited"))
	s.plane.Kubectl(t, "patch", "configmap", "drifted", "--namespace", s.namespace, "--type=merge", `--patch={"data":{"from":"somebody"}}`)
	unreached := s.composite("unreached")
	_ = unstructured.SetNestedField(unreached.Object, "http://127.0.0.1:1/", "spec", "hooks", "sync", "webhook", "url") // Nobody may listen there.
	_ = unstructured.SetNestedMap(unreached.Object, map[string]any{"app": "same"}, "spec", "parentResource", "labelSelector", "matchLabels")
	s.create(composites, unreached)

	before := s.objects()
	printed, err := s.planned(t.Context(), migration.Options{})
	want := "plan: children of 2 parents would change, as is said above: if that is wanted, go on with --allow-changes"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the move ends with %v, want %q in it", err, want)
	}
	s.expect(printed,
		fmt.Sprintf("  CompositeController other: 1 of 1 parents would change: things %s/other (children: 1 updated).\n", s.namespace),
		"  CompositeController unreached: 1 of 1 parents could not be planned, the first because of: ",
		fmt.Sprintf("  CompositeController drifted: 1 of 1 parents would change: things %s/drifted (children: 1 updated).\n", s.namespace),
		"  4 parents of 5 controllers were planned. Children of 2 would change.\n")
	for _, silent := range []string{"CompositeController same", "DecoratorController notes"} {
		if strings.Contains(printed, silent) {
			t.Errorf("%s would change nothing, and is named:\n%s", silent, printed)
		}
	}
	if diff := cmp.Diff(before, s.objects()); diff != "" || !s.local() {
		t.Errorf("the definitions serve the group: %t, and objects are others (-before +after):\n%s", s.local(), diff)
	}
	s.showWholePlan()

	printed, err = s.planned(t.Context(), migration.Options{})
	if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(printed, `Going on after step "copy"`) {
		t.Errorf("run again, the move ends with %v:\n%s", err, printed)
	}
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	if printed, err = s.planned(ctx, migration.Options{AllowChanges: true, Out: steps{s.Output(), map[string]func(){"freeze": kill}}}); ctx.Err() == nil {
		t.Errorf("with changes that are allowed, the move ends with %v:\n%s", err, printed)
	}
	printed, err = s.planned(t.Context(), migration.Options{})
	if err != nil || strings.Contains(printed, "plan: ") {
		t.Errorf("killed after the plan and run again, the move ends with %v:\n%s", err, printed)
	}
	if err := s.run(migration.Finish, s.config(), nil); err != nil { // The next test has definitions of its own.
		t.Error(err)
	}
}

// decorator is a DecoratorController with an attachment for each thing with the label app.
func (s *scene) decorator(name, app string) *unstructured.Unstructured {
	return object("DecoratorController", "", name, map[string]any{"spec": map[string]any{
		"resources": []any{map[string]any{
			"apiVersion": things.GroupVersion().String(), "resource": things.Resource,
			"labelSelector": map[string]any{"matchLabels": map[string]any{"app": app}},
		}},
		"attachments": []any{map[string]any{"apiVersion": "v1", "resource": "configmaps", "updateStrategy": map[string]any{"method": "InPlace"}}},
		"hooks":       map[string]any{"sync": map[string]any{"version": "v1", "webhook": map[string]any{"url": s.hook.URL + "/notes"}}},
	}})
}

// planned runs the command with a plan, and returns what it printed. It looks at what the server wrote meanwhile.
func (s *scene) planned(ctx context.Context, with migration.Options) (string, error) {
	s.Helper()
	var printed bytes.Buffer
	o := s.options(s.config(), nil)
	o.SkipPlan, o.AllowChanges, o.PlanTimeout = false, with.AllowChanges, cluster.Limit
	began, ended := time.Time{}, time.Time{}
	on := map[string]func(){"plan": func() { began = time.Now() }, "freeze": func() { ended = time.Now() }}
	if w, ok := with.Out.(steps); ok {
		on["freeze"] = func() { ended = time.Now(); w.on["freeze"]() }
	}
	o.Out = steps{&printed, on}
	err := migration.Forward(ctx, o)
	s.Log(printed.String())
	if ended.IsZero() {
		ended = time.Now()
	}
	if !began.IsZero() {
		s.wroteNothing(began, ended)
	}
	return printed.String(), err
}

// wroteNothing looks at what the server asked the cluster for from one moment to another: dry runs find out who has edited a child.
func (s *scene) wroteNothing(from, to time.Time) {
	s.Helper()
	text, err := os.ReadFile(s.plane.AuditLog())
	if err != nil {
		s.Fatal(err)
	}
	asked, before := 0, 0
	for line := range bytes.Lines(text) {
		var e auditv1.Event
		if json.Unmarshal(line, &e) != nil || e.ObjectRef == nil || !strings.HasPrefix(e.UserAgent, "metacontroller-apiserver/") ||
			e.RequestReceivedTimestamp.After(to) {
			continue
		}
		if e.RequestReceivedTimestamp.Time.Before(from) {
			before++
			continue
		}
		asked++
		switch {
		case strings.Contains(e.RequestURI, "dryRun=All"), e.ObjectRef.APIGroup == "authorization.k8s.io", e.ObjectRef.APIGroup == "authentication.k8s.io":
		default:
			s.Errorf("the server writes during the plan: %s %s", e.Verb, e.RequestURI)
		}
	}
	if before == 0 || asked == 0 {
		s.Errorf("the audit log has %d requests of the server before the plan, and %d during it", before, asked)
	}
}

// objects returns the versions of all parents and children.
func (s *scene) objects() map[string]string {
	s.Helper()
	versions := map[string]string{}
	for _, r := range []schema.GroupVersionResource{things, configMaps} {
		list, err := s.Dynamic.Resource(r).Namespace(s.namespace).List(s.Context(), metav1.ListOptions{})
		if err != nil {
			s.Fatal(err)
		}
		for i := range list.Items {
			versions[r.Resource+" "+list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
		}
	}
	return versions
}

// expect looks for lines in what was printed.
func (s *scene) expect(printed string, lines ...string) {
	s.Helper()
	for _, line := range lines {
		if !strings.Contains(printed, line) {
			s.Errorf("it does not print %q:\n%s", line, printed)
		}
	}
}

// showWholePlan asks for a plan as the command says, and for one that nobody may have.
func (s *scene) showWholePlan() {
	s.Helper()
	const path = "/apis/" + migration.Group + "/v1alpha1/compositecontrollers/"
	text, err := s.plane.TryKubectl(s.Context(), "{}", "create", "--raw", path+"other/plan", "-f", "-")
	if err != nil || !strings.Contains(text, `"path":"data.from"`) {
		s.Errorf("the whole plan is %s: %v", text, err)
	}
	if text, err := s.plane.TryKubectl(s.Context(), "{}", "create", "--raw", path+"nothing/plan", "-f", "-"); err == nil || !strings.Contains(text, http.StatusText(http.StatusNotFound)) && !strings.Contains(text, "not found") {
		s.Errorf("the plan of a controller that is not there is %s: %v", text, err)
	}
}
