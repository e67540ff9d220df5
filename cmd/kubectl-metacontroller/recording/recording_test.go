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

package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func website(namespace, name string) v1alpha1.ParentReference {
	return v1alpha1.ParentReference{Group: "example.com", Resource: "websites", Namespace: namespace, Name: name}
}

func TestNothingIsRecordedOfParentsThatAreHidden(t *testing.T) {
	const controllers = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web"
	cluster := connectiontest.Documents{
		"/api":                   `{"kind":"APIVersions","versions":[]}`,
		"/apis":                  `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		controllers:              `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"web"}}`,
		controllers + "/parents": `{"kind":"ControllerParentList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[],"hidden":2}`,
	}
	printed, err := connectiontest.Run(t, NewRecordCommand, cluster, "cc/web", "-o", t.TempDir())
	if printed != "" || err == nil || !strings.HasPrefix(err.Error(), "2 parents are left out") {
		t.Errorf("printed %q, and ended with %v", printed, err)
	}
}

func TestNamesOfFiles(t *testing.T) {
	for want, got := range map[string]string{
		"sync-a_b":                        nameOf(website("a", "b"), "sync", "", false),
		"finalize-b":                      nameOf(website("", "b"), "finalize", "", false),
		"sync-a-b_c":                      nameOf(website("a-b", "c"), "sync", "", false),
		"sync-a_b-c":                      nameOf(website("a", "b-c"), "sync", "", false),
		"sync-a_b_web-123":                nameOf(website("a", "b"), "sync", "web-123", false),
		"customize-websites.example.com_": strings.TrimSuffix(nameOf(website("", "b"), "customize", "", true), "b"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if hook := hookOf(got); hook != strings.SplitN(want, "-", 2)[0] {
			t.Errorf("%s: the hook is %s", got, hook)
		}
	}
}

// Whatever the order of keys and the form of numbers, a file is the same.
func TestFilesHaveOneForm(t *testing.T) {
	const want = "{\n  \"a\": \"<b>\",\n  \"n\": [\n    1,\n    9007199254740993,\n    1.5\n  ]\n}\n"
	for _, body := range []string{`{"n":[1,9007199254740993,1.5],"a":"<b>"}`, `{"a":"\u003cb>" , "n": [1.0, 9007199254740993, 15e-1]}`} {
		if got, err := normal([]byte(body)); err != nil || string(got) != want {
			t.Errorf("%s is %s, error %v", body, got, err)
		}
	}
}

// asked is a server that knows one parent.
type asked struct {
	requests []v1alpha1.HookRequest
	options  []subresource.RequestOptions
}

func (a *asked) Requests(_ context.Context, _ v1alpha1.ParentReference, o subresource.RequestOptions) (*v1alpha1.HookRequestList, error) {
	a.options = append(a.options, o)
	list := &v1alpha1.HookRequestList{}
	for _, r := range a.requests {
		if o.Hook == "" && r.Hook != "customize" || o.Hook == r.Hook {
			if !o.Call {
				r.Response = nil
			}
			list.Items = append(list.Items, r)
		}
	}
	return list, nil
}

func request(hook string) v1alpha1.HookRequest {
	return v1alpha1.HookRequest{
		Hook: hook, Body: runtime.RawExtension{Raw: []byte(`{"hook":"` + hook + `"}`)}, Response: &runtime.RawExtension{Raw: []byte(`{"of":"` + hook + `"}`)},
	}
}

func TestWhatIsRecordedIsRead(t *testing.T) {
	hook := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{}}
	object := controllerobject.Object{Composite: &v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: "website"},
		Spec:       v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{Sync: hook, Customize: hook}},
	}}
	server := &asked{requests: []v1alpha1.HookRequest{request("customize"), request("sync")}}
	folder := filepath.Join(t.TempDir(), "testdata")
	r := &recorder{client: server, object: object, folder: folder}
	made, err := r.one(t.Context(), website("shop", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range made {
		if err := p.write(folder); err != nil {
			t.Fatal(err)
		}
	}
	pairs, err := read(folder)
	if err != nil || len(pairs) != 2 || pairs[0].name != "customize-shop_a" || pairs[1].name != "sync-shop_a" {
		t.Fatalf("got %+v, error %v", pairs, err)
	}
	if string(pairs[1].request) != "{\n  \"hook\": \"sync\"\n}\n" || string(pairs[1].response) != "{\n  \"of\": \"sync\"\n}\n" {
		t.Errorf("got %s and %s", pairs[1].request, pairs[1].response)
	}
	want := []subresource.RequestOptions{{Call: true}, {Hook: "customize", Call: true}}
	if diff := cmp.Diff(want, server.options); diff != "" {
		t.Errorf("what was asked (-want +got):\n%s", diff)
	}
	if err := os.Remove(filepath.Join(folder, "sync-shop_a.response.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := read(folder); err == nil || !strings.Contains(err.Error(), "sync-shop_a.response.json") {
		t.Errorf("a response is missing: %v", err)
	}
	for _, empty := range []string{t.TempDir(), filepath.Join(folder, "nothing")} {
		if _, err := read(empty); err == nil || !strings.Contains(err.Error(), "kubectl metacontroller record") {
			t.Errorf("%s: %v", empty, err)
		}
	}
}

// An older server ignores that its hooks are to be called.
func TestAServerThatReturnsNoResponses(t *testing.T) {
	without := request("sync")
	without.Response = nil
	r := &recorder{client: &asked{requests: []v1alpha1.HookRequest{without}}, object: controllerobject.Object{Decorator: &v1alpha1.DecoratorController{}}}
	if _, err := r.one(t.Context(), website("shop", "a")); err == nil || !strings.Contains(err.Error(), "--hook") {
		t.Errorf("got %v", err)
	}
}

// partly is a server that fails for the parent of a name.
type partly struct {
	asked

	failing string
}

func (p *partly) Requests(ctx context.Context, parent v1alpha1.ParentReference, o subresource.RequestOptions) (*v1alpha1.HookRequestList, error) {
	if parent.Name == p.failing {
		return nil, errors.New("no luck")
	}
	return p.asked.Requests(ctx, parent, o)
}

// interrupts ends a context when something is printed.
type interrupts context.CancelFunc

func (i interrupts) Write(text []byte) (int, error) {
	i()
	return len(text), nil
}

// What is written does not heed the context: a command that ends in the middle of it has not done all.
func TestWhoInterruptsARecordingIsToldSo(t *testing.T) {
	for what, tc := range map[string]struct {
		failing, want string
	}{
		"nothing failed before":   {"", "context canceled"},
		"something failed before": {"a", "recording requests about websites.example.com/shop/a: no luck\ncontext canceled"},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			parents := []v1alpha1.ControllerParent{{ParentReference: website("shop", "b")}, {ParentReference: website("shop", "c")}}
			if tc.failing != "" {
				parents = append([]v1alpha1.ControllerParent{{ParentReference: website("shop", tc.failing)}}, parents...)
			}
			r := &recorder{
				client: &partly{asked: asked{requests: []v1alpha1.HookRequest{request("sync")}}, failing: tc.failing},
				object: controllerobject.Object{Decorator: &v1alpha1.DecoratorController{}}, folder: t.TempDir(),
			}
			err := r.all(ctx, connection.New(genericiooptions.IOStreams{Out: interrupts(cancel)}), parents)
			if err == nil || err.Error() != tc.want || r.recorded != 1 {
				t.Errorf("%d are recorded, error %v, want %q", r.recorded, err, tc.want)
			}
		})
	}
}

// hooks return what is written for them.
type hooks map[string]string

func (h hooks) Call(_ context.Context, name string, _ []byte) ([]byte, error) {
	if response, ok := h[name]; ok {
		return []byte(response), nil
	}
	return nil, errors.New("status 500")
}

func TestReplay(t *testing.T) {
	pairs := []pair{
		{"finalize-a", []byte(`{}`), []byte(`{"finalized":true}`)},
		{"sync", []byte(`{}`), []byte(`{"children":[{"kind":"Pod"}],"status":{"n":1}}`)},
	}
	for what, tc := range map[string]struct {
		hooks   hooks
		status  int
		printed string
	}{
		"the same": {
			hooks{"finalize": ` {"finalized": true}`, "sync": `{"status":{"n":1.0},"children":[{"kind":"Pod"}]}`},
			0,
			"The hook returned what was recorded to 2 requests.\n",
		},
		"another response": {
			hooks{"finalize": `{"finalized":true}`, "sync": `{"children":[{"kind":"Pod"}],"status":{"n":2}}`},
			1,
			"--- sync.response.json\n+++ the hook returned\n@@ -5,6 +5,6 @@\n     }\n   ],\n   \"status\": {\n-    \"n\": 1\n+    \"n\": 2\n   }\n }\n" +
				"The hook returned something else than was recorded to 1 of 2 requests.\n",
		},
		"a hook that fails": {
			hooks{"sync": `{"children":[{"kind":"Pod"}],"status":{"n":1}}`}, 2, "finalize-a.request.json\n# the hook failed: status 500\n",
		},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			status, _ := exitstatus.Of(replay(t.Context(), textdiff.Printer{Out: &out}, tc.hooks, pairs))
			if status != tc.status {
				t.Errorf("the status is %d, want %d", status, tc.status)
			}
			if diff := cmp.Diff(tc.printed, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A hook returns the values of Secrets that the server has hidden in what it recorded.
func TestReplayComparesSecretsWithHiddenValues(t *testing.T) {
	child := func(apiVersion, kind, name, fields string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + name + `"` + fields + `}`
	}
	secret := func(name, fields string) string { return child("v1", "Secret", name, "},"+fields) }
	const applied = `,"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"`
	for what, tc := range map[string]struct {
		field, recorded, returned string
		different                 bool
	}{
		"data":                             {"children", secret("a", `"data":{"k":"aHVudGVyMg=="}`), secret("a", `"data":{"k":"bmV3"}`), false},
		"stringData":                       {"children", secret("a", `"stringData":{"k":"hunter2"}`), secret("a", `"stringData":{"k":"new"}`), false},
		"an attachment":                    {"attachments", secret("a", `"data":{"k":"aHVudGVyMg=="}`), secret("a", `"data":{"k":"bmV3"}`), false},
		"a copy in an annotation":          {"children", child("v1", "Secret", "a", applied+`hunter2"}}`), child("v1", "Secret", "a", applied+`new"}}`), false},
		"several":                          {"children", secret("a", `"data":{"k":"YQ=="}`) + "," + secret("b", `"data":{"k":"Yg=="}`), secret("a", `"data":{"k":"Yw=="}`) + "," + secret("b", `"data":{"k":"ZA=="}`), false},
		"another order":                    {"children", secret("a", `"data":{"k":"YQ=="}`) + "," + secret("b", `"data":{"k":"Yg=="}`), secret("b", `"data":{"k":"ZA=="}`) + "," + secret("a", `"data":{"k":"Yw=="}`), true},
		"a key more":                       {"children", secret("a", `"data":{"k":"YQ=="}`), secret("a", `"data":{"k":"YQ==","l":"Yg=="}`), true},
		"a key less":                       {"children", secret("a", `"data":{"k":"YQ==","l":"Yg=="}`), secret("a", `"data":{"k":"YQ=="}`), true},
		"no data any more":                 {"children", secret("a", `"data":{"k":"YQ=="}`), secret("a", `"type":"Opaque"`), true},
		"another type":                     {"children", secret("a", `"data":{"k":"YQ=="},"type":"Opaque"`), secret("a", `"data":{"k":"YQ=="},"type":"tls"`), true},
		"another name":                     {"children", secret("a", `"data":{"k":"YQ=="}`), secret("b", `"data":{"k":"YQ=="}`), true},
		"a ConfigMap":                      {"children", child("v1", "ConfigMap", "a", `},"data":{"k":"(hidden)"}`), child("v1", "ConfigMap", "a", `},"data":{"k":"new"}`), true},
		"a Secret of another group":        {"children", child("a/v1", "Secret", "a", `},"data":{"k":"(hidden)"}`), child("a/v1", "Secret", "a", `},"data":{"k":"new"}`), true},
		"what is no object, and no Secret": {"children", `null,1,{"apiVersion":"v1","kind":"Secret","data":1,"metadata":2}`, `null,1,{"apiVersion":"v1","kind":"Secret","data":1,"metadata":2}`, false},
	} {
		t.Run(what, func(t *testing.T) {
			recorded, err := reconciler.ResponseWithoutSecrets([]byte(`{"` + tc.field + `":[` + tc.recorded + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			lines, err := compare(pair{"sync", []byte(`{}`), recorded}, []byte(`{"`+tc.field+`":[`+tc.returned+`]}`))
			if err != nil || textdiff.Different(lines) != tc.different {
				t.Errorf("got %v, error %v, want a difference: %v", lines, err, tc.different)
			}
		})
	}
}

// The server shows the response of a customize hook as the hook wrote it, so that the same hook passes.
func TestReplayOfRulesAsTheServerShowsThem(t *testing.T) {
	for what, returned := range map[string]string{
		"a selector of all":       `{"relatedResources":[{"apiVersion":"v1","resource":"nodes","labelSelector":{"matchLabels":{}}}]}`,
		"names, none of them":     `{"relatedResources":[{"apiVersion":"v1","resource":"nodes","names":[],"namespace":""}]}`,
		"null in place of values": `{"relatedResources":[{"apiVersion":"v1","resource":"nodes","names":null,"labelSelector":null}]}`,
		"no rules":                `{}`,
		"no list of rules":        `{"relatedResources":null}`,
	} {
		t.Run(what, func(t *testing.T) {
			recorded, err := reconciler.CustomizeResponse([]byte(returned), wire.ResponseOptions{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			lines, err := compare(pair{"customize", []byte(`{}`), recorded}, []byte(returned))
			if err != nil || textdiff.Different(lines) {
				t.Errorf("got %v, error %v", lines, err)
			}
		})
	}
}

// With --hook, what a hook on this machine returned was recorded as it was.
func TestReplayComparesValuesOfSecretsThatAreNotHidden(t *testing.T) {
	const recorded, returned = `{"children":[{"apiVersion":"v1","kind":"Secret","data":{"k":"YQ=="}}]}`, `{"children":[{"apiVersion":"v1","kind":"Secret","data":{"k":"Yg=="}}]}`
	lines, err := compare(pair{"sync", []byte(`{}`), []byte(recorded)}, []byte(returned))
	if err != nil || !textdiff.Different(lines) {
		t.Errorf("got %v, error %v", lines, err)
	}
}

func TestAPairIsReplacedAsAWhole(t *testing.T) {
	folder := t.TempDir()
	former := pair{name: "sync-web", request: []byte(`{"parent":1}`), response: []byte(`{"status":1}`)}
	if err := former.write(folder); err != nil {
		t.Fatal(err)
	}
	// The response cannot be written: a folder is where it would be.
	blocked := filepath.Join(folder, former.name+responseEnd+unfinished)
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (pair{name: former.name, request: []byte(`{"parent":2}`), response: []byte(`{"status":2}`)}).write(folder); err == nil {
		t.Error("it was written")
	}
	pairs, err := read(folder)
	if err != nil || len(pairs) != 1 || !strings.Contains(string(pairs[0].request), "1") || !strings.Contains(string(pairs[0].response), "1") {
		t.Errorf("got %s, %v, want the former pair", pairs, err)
	}
}

// Who takes -o for a format gets no folder of that name.
func TestAFormatIsNoFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	printed, err := connectiontest.Run(t, NewRecordCommand, connectiontest.Documents{}, "cc/website", "-o", "json")
	if err == nil || !strings.Contains(err.Error(), "write -o testdata") {
		t.Errorf("printed %q, error %v", printed, err)
	}
}

// Inline hooks are evaluated without a cluster and, for what they look for, without schemas.
func TestInlineHooksAreReplayed(t *testing.T) {
	const controller = `apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: web}
spec:
  parentResource: {apiVersion: example.com/v1, resource: websites}
  childResources: [{apiVersion: v1, resource: configmaps}, {apiVersion: example.com/v1, resource: widgets}]
  hooks:
    sync:
      inline:
        children:
        - template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${parent.metadata.name}"}, data: {a: b}}
        status: {maps: "${children.configmaps.size()}", widgets: "${children.widgets.map(w, w.metadata.name)}"}
    finalize: {webhook: {url: "http://localhost/finalize"}}
`
	const request = `{"controller":{},"parent":{"apiVersion":"example.com/v1","kind":"Website","metadata":{"name":"a","namespace":"shop"}},"related":{},"finalizing":false,
		"children":{"ConfigMap.v1":{"shop/a":{"metadata":{"name":"a","namespace":"shop"}}},"Widget.example.com/v1":{"w":{"metadata":{"name":"w","namespace":"shop"}}}}}`
	const response = `{"children":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"b"}}],"status":{"maps":1,"widgets":["w"]}}`
	edited := func(old, replacement string) string { return strings.Replace(controller, old, replacement, 1) }
	for what, tc := range map[string]struct {
		controller, hook string
		status           int
		want             string
	}{
		"what was recorded": {controller, "sync", 0, "The hook returned what was recorded to 1 request.\n"},
		"another response":  {edited("a: b", "a: c"), "sync", 1, "-        \"a\": \"b\"\n+        \"a\": \"c\"\n"},
		"a mistake": {
			edited("children.configmaps.size()", "children.configmap.size()"), "sync", 2,
			`controller.yaml: spec.hooks.sync.inline.status.maps: Invalid value: "children.configmap.size()": children has no field configmap; did you mean configmaps? (line 1, column 9)`,
		},
		"an error with what is recorded": {
			edited("children.configmaps.size()", "parent.spec.maps"), "sync", 2, "# the hook failed: spec.hooks.sync.inline.status.maps: ",
		},
		"a webhook":             {controller, "finalize", 2, "it is not known where the finalize hook is: say it with --hook finalize=URL"},
		"webhooks alone":        {edited("inline:\n", "webhook: {url: 'http://localhost/sync'}\n      other:\n"), "sync", 2, "has no inline hook: say with --hook where"},
		"a kind of no resource": {strings.Replace(controller, "resource: widgets", "resource: mice", 1), "sync", 2, "mice"},
		"no controller":         {"kind: ConfigMap", "sync", 2, "holds neither"},
	} {
		t.Run(what, func(t *testing.T) {
			folder := t.TempDir()
			file := filepath.Join(folder, "controller.yaml")
			if err := os.WriteFile(file, []byte(tc.controller), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := (pair{tc.hook + "-a", []byte(request), []byte(response)}).write(folder); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			cmd := NewReplayCommand(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{folder, "-f", file})
			err := cmd.ExecuteContext(t.Context())
			status, message := exitstatus.Of(err)
			if printed := fmt.Sprint(out.String(), message); status != tc.status || !strings.Contains(printed, tc.want) {
				t.Errorf("the status is %d, printed\n%s\nwant %d and\n%s", status, printed, tc.status, tc.want)
			}
		})
	}
}

// Where the name of a kind says nothing of its resource, no request is evaluated as if there were no objects.
func TestAKindThatCannotBeGuessed(t *testing.T) {
	hooks := &inlineHooks{
		definition: inline.Definition{Children: []v1alpha1.ResourceRule{{APIVersion: "example.com/v1", Resource: "mice"}}}, schemas: lint.NewSchemas(),
		programs: map[hook.Name]*inline.Program{hook.Sync: {}},
	}
	for range 2 {
		_, err := hooks.Call(t.Context(), "sync", []byte(`{"parent":{},"children":{"Mouse.example.com/v1":{}}}`))
		if err == nil || !strings.Contains(err.Error(), "the kind of mice of example.com/v1 is not known") {
			t.Errorf("got %v", err)
		}
	}
}
