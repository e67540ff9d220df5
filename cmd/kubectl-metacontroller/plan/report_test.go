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

package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

var website = controllerobject.Object{Composite: &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "website"}}}

func parentOf(plan v1alpha1.ParentPlan) v1alpha1.ParentPlan {
	plan.ParentReference = v1alpha1.ParentReference{Group: "example.com", Resource: "websites", Namespace: "shop", Name: "a"}
	return plan
}

func child(kind string, action v1alpha1.ChildAction, more func(*v1alpha1.ChildPlan)) v1alpha1.ChildPlan {
	c := v1alpha1.ChildPlan{APIVersion: "apps/v1", Kind: kind, Namespace: "shop", Name: "a", Action: action}
	if more != nil {
		more(&c)
	}
	return c
}

func change(path, observed, desired string) v1alpha1.FieldChange {
	c := v1alpha1.FieldChange{Path: path}
	if observed != "" {
		c.Observed = &observed
	}
	if desired != "" {
		c.Desired = &desired
	}
	return c
}

func TestWhatIsPrintedOfAParent(t *testing.T) {
	const name = "websites.example.com/shop/a\n"
	for what, tc := range map[string]struct {
		plan v1alpha1.ParentPlan
		want string
	}{
		"nothing to do": {v1alpha1.ParentPlan{
			Message:  "the controller is paused",
			Children: []v1alpha1.ChildPlan{child("Deployment", v1alpha1.ChildLeave, func(c *v1alpha1.ChildPlan) { c.Reason = "Same" })},
		}, ""},
		"create": {v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{child("Deployment", v1alpha1.ChildCreate, func(c *v1alpha1.ChildPlan) {
			c.Object = &runtime.RawExtension{Raw: []byte(`{"kind":"Deployment","spec":{"replicas":2}}`)}
			c.Message = `the API server warns: unknown field "spec.replica"`
		})}}, name + "--- /dev/null\n+++ apps.v1.Deployment.shop.a\n# the API server warns: unknown field \"spec.replica\"\n+kind: Deployment\n+spec:\n+  replicas: 2\n"},
		"update": {v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{child("Deployment", v1alpha1.ChildUpdate, func(c *v1alpha1.ChildPlan) {
			c.FieldManager = "metacontroller.website"
			c.Changes = []v1alpha1.FieldChange{
				change("spec.replicas", "2", "3"), change("spec.paused", "true", ""),
				change("spec.list", `[{"a":1,"b":2}]`, `[{"a":1,"b":3}]`), change(bookkeeping, "", ""),
			}
		})}}, name + "--- apps.v1.Deployment.shop.a\n+++ apps.v1.Deployment.shop.a\n# applied as field manager metacontroller.website\n" +
			"@@ spec.replicas @@\n-2\n+3\n@@ spec.paused @@\n-true\n@@ spec.list @@\n - a: 1\n-  b: 2\n+  b: 3\n"},
		"values of a Secret": {v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{child("Secret", v1alpha1.ChildUpdate, func(c *v1alpha1.ChildPlan) {
			c.Changes = []v1alpha1.FieldChange{change("data.k", `"(hidden)"`, `"(hidden)"`), change("data.new", "", `"(hidden)"`)}
		})}}, name + "--- apps.v1.Secret.shop.a\n+++ apps.v1.Secret.shop.a\n@@ data.k @@\n-(hidden)\n+(hidden)\n@@ data.new @@\n+(hidden)\n"},
		"recreate": {v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{child("Pod", v1alpha1.ChildRecreate, func(c *v1alpha1.ChildPlan) {
			c.Changes = []v1alpha1.FieldChange{change("spec.image", `"a"`, `"b"`)}
		})}}, name + "--- apps.v1.Pod.shop.a\n+++ apps.v1.Pod.shop.a\n# deleted, and created again by a later sync\n@@ spec.image @@\n-a\n+b\n"},
		"delete": {
			v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{child("Pod", v1alpha1.ChildDelete, func(c *v1alpha1.ChildPlan) { c.Namespace = "" })}},
			name + "--- apps.v1.Pod.a\n+++ /dev/null\n# deleted, because it is not desired\n",
		},
		"retain": {
			v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{child("Pod", v1alpha1.ChildRetain, nil)}},
			name + "# keep apps.v1.Pod.shop.a without owner, by onParentDeletion: Retain\n",
		},
		"adopt and release": {v1alpha1.ParentPlan{Children: []v1alpha1.ChildPlan{
			child("Pod", v1alpha1.ChildAdopt, nil), child("Job", v1alpha1.ChildRelease, nil),
		}}, name + "# adopt apps.v1.Pod.shop.a: it matches the selector and has no controlling owner\n" +
			"# release apps.v1.Job.shop.a: it does not match the selector any more\n"},
		"leave and refuse": {v1alpha1.ParentPlan{Error: "the name is taken", Children: []v1alpha1.ChildPlan{
			child("Pod", v1alpha1.ChildLeave, func(c *v1alpha1.ChildPlan) {
				c.Reason, c.Message = "OnDelete", "it is left"
				c.Changes = []v1alpha1.FieldChange{change("spec.a", "", `"`+strings.Repeat("x", 100)+`"`)}
			}),
			child("Job", v1alpha1.ChildRefuse, func(c *v1alpha1.ChildPlan) { c.Reason, c.Message = "Conflict", "the name is taken" }),
		}}, name + "# the sync would fail: the name is taken\n# leave apps.v1.Pod.shop.a (OnDelete): it is left\n" +
			`#   differs at spec.a: nothing, desired "` + strings.Repeat("x", 78) + "…\n# refuse apps.v1.Job.shop.a (Conflict): the name is taken\n"},
		"the parent": {v1alpha1.ParentPlan{
			Message: "the controller is paused", Changes: []v1alpha1.FieldChange{change("status.n", "1", "2")},
			Revisions: []v1alpha1.RevisionPlan{{Action: "Create", Name: "r"}},
		}, name + "# not synced now: the controller is paused\n--- websites.example.com/shop/a\n+++ websites.example.com/shop/a\n@@ status.n @@\n-1\n+2\n" +
			"# create ControllerRevision r\n"},
		"the parent is deleted": {v1alpha1.ParentPlan{Delete: true}, name + "--- websites.example.com/shop/a\n+++ /dev/null\n# deleted, as the hook wants it\n"},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			plan := parentOf(tc.plan)
			printParent(textdiff.Printer{Out: &out}, &plan)
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The status is that of kubectl diff, whatever the parts are in which a plan comes.
func TestStatusAndSummary(t *testing.T) {
	for what, tc := range map[string]struct {
		parts        []v1alpha1.ControllerPlanStatus
		name         string
		status       int
		printed, err string
		said         string
	}{
		"nothing changes": {
			parts:   []v1alpha1.ControllerPlanStatus{{Summary: v1alpha1.PlanSummary{Parents: 1, Leave: 2}}},
			printed: "Of 1 parent, 0 would change. Children: 2 left as they are.\n",
		},
		"something changes": {
			parts: []v1alpha1.ControllerPlanStatus{
				{Summary: v1alpha1.PlanSummary{Parents: 2, Changing: 1, Create: 1, Update: 1, Recreate: 1, Delete: 1}},
				{Summary: v1alpha1.PlanSummary{Parents: 1, Changing: 1, Adopt: 1, Release: 1, Leave: 1, Refuse: 1, Create: 1}},
			},
			status:  1,
			printed: "Of 3 parents, 2 would change. Children: 2 created, 1 updated, 1 recreated, 1 deleted, 1 adopted, 1 released, 1 refused, 1 left as they are.\n",
		},
		"a sync fails": {
			parts:  []v1alpha1.ControllerPlanStatus{{Summary: v1alpha1.PlanSummary{Parents: 1, Changing: 1, Failing: 1}}},
			status: 2, printed: "Of 1 parent, 1 would change, and the syncs of 1 would fail.\n",
			err: "1 sync would fail, as it says above; see how the parents are with 'kubectl metacontroller parents cc/website --all'",
		},
		"no parents": {
			parts: []v1alpha1.ControllerPlanStatus{{}},
			said:  "cc/website has no parent in namespace shop: list all of them with 'kubectl metacontroller parents cc/website --all'\n",
		},
		"not the parent": {
			parts: []v1alpha1.ControllerPlanStatus{{}}, name: "a", status: 1,
			err: "cc/website has no parent a in namespace shop: list all of them with 'kubectl metacontroller parents cc/website --all'",
		},
		"deletions that the guard holds": {
			parts:   []v1alpha1.ControllerPlanStatus{{Summary: v1alpha1.PlanSummary{Parents: 1, Refuse: 2}}},
			printed: "Of 1 parent, 0 would change. Children: 2 refused.\n", status: 1,
		},
		"hidden parents": {
			parts:   []v1alpha1.ControllerPlanStatus{{Hidden: 1}, {Hidden: 1, Summary: v1alpha1.PlanSummary{Parents: 1}}},
			printed: "Of 1 parent, 0 would change. There are no children.\n",
			said:    "2 parents are left out, because you may not get them, their children or their related objects: see 'kubectl auth can-i --list'\n",
		},
		"all are hidden": {
			parts: []v1alpha1.ControllerPlanStatus{{Hidden: 2}}, status: 2,
			err: "no parent of cc/website was looked at: 2 parents are left out, because you may not get them, their children or their related objects: see 'kubectl auth can-i --list'",
		},
		"the parent is hidden": {
			parts: []v1alpha1.ControllerPlanStatus{{Hidden: 1}}, name: "a", status: 2,
			err: "no parent of cc/website was looked at: 1 parent is left out, because you may not get them, their children or their related objects: see 'kubectl auth can-i --list'",
		},
	} {
		t.Run(what, func(t *testing.T) {
			var out, errOut bytes.Buffer
			r := &Report{printer: textdiff.Printer{Out: &out}, errOut: &errOut}
			for i := range tc.parts {
				if err := r.Part(&tc.parts[i]); err != nil {
					t.Fatal(err)
				}
			}
			selected := subresource.Selected{ParentSelection: v1alpha1.ParentSelection{Namespace: "shop", Name: tc.name}}
			status, message := exitstatus.Of(r.End(website, selected))
			got := ""
			if message != nil {
				got = message.Error()
			}
			if status != tc.status || got != tc.err {
				t.Errorf("the status is %d, the error %q, want %d, %q", status, got, tc.status, tc.err)
			}
			if diff := cmp.Diff(tc.printed, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if errOut.String() != tc.said {
				t.Errorf("it said %q", errOut.String())
			}
		})
	}
}

func TestPlansForProgramsAreWhole(t *testing.T) {
	for _, format := range []string{outputformat.JSON, outputformat.YAML} {
		var out bytes.Buffer
		r := &Report{Format: format, printer: textdiff.Printer{Out: &out}, errOut: io.Discard}
		for range 2 {
			part := &v1alpha1.ControllerPlanStatus{Hidden: 1, Summary: v1alpha1.PlanSummary{Parents: 1}, Parents: []v1alpha1.ParentPlan{parentOf(v1alpha1.ParentPlan{})}}
			if err := r.Part(part); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.End(website, subresource.Selected{}); err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.ControllerPlan
		encoded, err := yaml.YAMLToJSON(out.Bytes())
		if err == nil {
			err = json.Unmarshal(encoded, &got)
		}
		if err != nil || got.Kind != "ControllerPlan" || len(got.Status.Parents) != 2 || got.Status.Summary.Parents != 2 || got.Status.Hidden != 2 {
			t.Errorf("%s: %+v, error %v", format, got, err)
		}
	}
}

// What is said of a plan for programs is not among what they read.
func TestAPlanOfNoParentsIsADocument(t *testing.T) {
	for _, format := range []string{outputformat.JSON, outputformat.YAML} {
		for what, tc := range map[string]struct {
			hidden int64
			status int
			said   string
		}{
			"no parents":     {0, 0, "cc/website has no parent\n"},
			"all are hidden": {2, 2, ""},
		} {
			var out, errOut bytes.Buffer
			r := &Report{Format: format, printer: textdiff.Printer{Out: &out}, errOut: &errOut}
			if err := r.Part(&v1alpha1.ControllerPlanStatus{Hidden: tc.hidden}); err != nil {
				t.Fatal(err)
			}
			status, _ := exitstatus.Of(r.End(website, subresource.Selected{}))
			var got v1alpha1.ControllerPlan
			err := yaml.UnmarshalStrict(out.Bytes(), &got)
			if err != nil || got.Kind != "ControllerPlan" || got.Status.Hidden != tc.hidden || status != tc.status || errOut.String() != tc.said {
				t.Errorf("%s as %s: the status is %d, it said %q, the document is %v:\n%s", what, format, status, errOut.String(), err, out.String())
			}
		}
	}
}

// It would mean all parents of the namespace.
func TestAnEmptyNameOfAParentIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	for what, args := range map[string][]string{
		"of a stored controller":     {"cc/website", ""},
		"of a candidate":             {"-f", file, ""},
		"of a candidate by its name": {"-f", file, "cc/website", ""},
	} {
		t.Run(what, func(t *testing.T) {
			if printed, err := connectiontest.Run(t, NewCommand, connectiontest.Documents{}, args...); err == nil || !strings.Contains(err.Error(), "the name of the parent is empty") {
				t.Errorf("printed %q, error %v", printed, err)
			}
		})
	}
}

// Beside make run, the hooks of a candidate are on the machine of the server, where its manifest does not have them.
func TestTheHooksOfACandidateAreCalledWhereTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	const candidate = `{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: web},
		spec: {hooks: {sync: {webhook: {path: /sync, service: {name: web, namespace: web}}}}}}`
	if err := os.WriteFile(file, []byte(candidate), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		stored string
		args   []string
		want   string
	}{
		"of a stored one on this machine": {`{"url":"http://localhost:1234/old"}`, nil, "http://localhost:1234/sync"},
		"of a stored one in the cluster":  {`{"url":"http://web.web/sync"}`, nil, ""},
		"named":                           {`{"url":"http://localhost:1234/old"}`, []string{"--hook=http://localhost:5"}, "http://localhost:5/sync"},
	} {
		t.Run(what, func(t *testing.T) {
			var got string
			cluster := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Warning", `299 - "it is old"`)
				if r.Method != http.MethodPost {
					fmt.Fprint(w, `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"web"},"spec":{"hooks":{"sync":{"webhook":`+tc.stored+`}}}}`)
					return
				}
				var posted v1alpha1.ControllerPlan
				var sent v1alpha1.CompositeController
				if err := json.NewDecoder(r.Body).Decode(&posted); err != nil {
					t.Error(err)
				} else if err := json.Unmarshal(posted.Spec.Candidate.Raw, &sent); err != nil {
					t.Error(err)
				}
				got = ptr.Deref(sent.Spec.Hooks.Sync.Webhook.URL, "")
				fmt.Fprint(w, `{"kind":"ControllerPlan","apiVersion":"metacontroller.k8s.io/v1alpha1"}`)
			})
			printed, err := connectiontest.Run(t, NewCommand, cluster, append([]string{"-f", file, "--all"}, tc.args...)...)
			if err != nil || got != tc.want {
				t.Errorf("the hook is at %q, want %q; printed %q, error %v", got, tc.want, printed, err)
			}
			if strings.Count(printed, "Warning: it is old\n") != 1 {
				t.Errorf("the warning is not printed once, as kubectl does: %q", printed)
			}
		})
	}
	if printed, err := connectiontest.Run(t, NewCommand, connectiontest.Documents{}, "-f", filepath.Dir(file), "--hook=x", "cc/other"); err == nil || !strings.Contains(err.Error(), "--hook") {
		t.Errorf("a folder is not read as its file is: printed %q, error %v", printed, err)
	}
	for what, args := range map[string][]string{"no address": {"-f", file, "--hook=localhost:8080"}, "no file": {"cc/web", "--hook=http://localhost:8080"}} {
		if _, err := connectiontest.Run(t, NewCommand, connectiontest.Documents{}, args...); err == nil || !strings.HasPrefix(err.Error(), "--hook") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// An inline hook is called nowhere, also in place of a webhook on this machine.
func TestACandidateWithInlineHooksIsSentAsItIs(t *testing.T) {
	const candidate = `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"web"},` +
		`"spec":{"hooks":{"sync":{"inline":{"status":{"n":9007199254740993}}}}}}`
	stored := connectiontest.Documents{
		"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web": strings.Replace(candidate, `"inline"`, `"webhook":{"url":"http://localhost:1/sync"},"x"`, 1),
	}
	var said bytes.Buffer
	c := connectiontest.New(t, stored, genericiooptions.IOStreams{ErrOut: &said})
	body := &runtime.RawExtension{Raw: []byte(candidate)}
	err := (&options{}).point(t.Context(), c, controllerobject.Object{Composite: &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}, body)
	if err != nil || string(body.Raw) != candidate || said.Len() > 0 {
		t.Errorf("error %v, it is %s, said %q", err, body.Raw, said.String())
	}
}
