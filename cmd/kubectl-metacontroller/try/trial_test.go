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

package try

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
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/plan"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a server with parents, whose requests are their names, and plans are the responses that are given.
type scene struct {
	names  []string
	hidden int64
}

func (s scene) Parents(context.Context, v1alpha1.ControllerParentOptions) (*v1alpha1.ControllerParentList, error) {
	list := &v1alpha1.ControllerParentList{Hidden: s.hidden}
	for _, name := range s.names {
		list.Items = append(list.Items, v1alpha1.ControllerParent{ParentReference: v1alpha1.ParentReference{Resource: "things", Namespace: "ns", Name: name}})
	}
	return list, nil
}

func (scene) Requests(_ context.Context, p v1alpha1.ParentReference, _ subresource.RequestOptions) (*v1alpha1.HookRequestList, error) {
	resource := schema.GroupResource{Resource: "things"}
	switch p.Name {
	case "gone":
		return nil, apierrors.NewNotFound(resource, p.Name)
	case "conflict":
		return nil, apierrors.NewConflict(resource, p.Name, errors.New("the customize hook failed"))
	case "enormous":
		return nil, apierrors.NewRequestEntityTooLargeError("more than 32 MiB")
	case "hidden":
		return nil, fmt.Errorf("%w: see what you may do", apierrors.NewForbidden(resource, p.Name, errors.New("you may not get secrets, which would be shown")))
	case "forbidden":
		controllers := schema.GroupResource{Group: "metacontroller.k8s.io", Resource: "compositecontrollers"}
		return nil, apierrors.NewForbidden(controllers, "website", errors.New("you may not get compositecontrollers/request"))
	}
	return &v1alpha1.HookRequestList{Items: []v1alpha1.HookRequest{
		{Hook: localhook.Customize, Body: runtime.RawExtension{Raw: []byte(`"customize"`)}},
		{Hook: localhook.Sync, Body: runtime.RawExtension{Raw: []byte(`"` + p.Name + `"`)}},
		{Hook: localhook.Sync, Revision: "r", Body: runtime.RawExtension{Raw: []byte(`"former"`)}},
	}}, nil
}

func (scene) EachPlan(_ context.Context, spec v1alpha1.ControllerPlanSpec, f func(*v1alpha1.ControllerPlanStatus) error) error {
	if spec.Parents.Name == "large" {
		return apierrors.NewRequestEntityTooLargeError("limit is 1572864")
	}
	if spec.Parents.Name == "read-only" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "read-only", errors.New("you may not create secrets"))
	}
	made := v1alpha1.ParentPlan{ParentReference: v1alpha1.ParentReference{Resource: spec.Parents.Resource, Namespace: spec.Parents.Namespace, Name: spec.Parents.Name}}
	for _, given := range spec.Responses {
		made.Changes = append(made.Changes, v1alpha1.FieldChange{Path: given.Hook + given.Revision, Desired: new(string(given.Body.Raw))})
	}
	return f(&v1alpha1.ControllerPlanStatus{Summary: v1alpha1.PlanSummary{Parents: 1, Changing: 1}, Parents: []v1alpha1.ParentPlan{made}})
}

// echo returns what it is sent.
type echo struct{ err error }

func (e echo) Call(_ context.Context, _ string, body []byte) ([]byte, error) { return body, e.err }

func reportTo(t *testing.T, out, errOut *bytes.Buffer) *plan.Report {
	t.Helper()
	o := plan.Output{}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Add(set)
	if err := set.Parse([]string{"--color=never"}); err != nil {
		t.Fatal(err)
	}
	report, err := o.Report(connection.New(genericiooptions.IOStreams{Out: out, ErrOut: errOut}))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Parents are reported in their order; what is wrong with one is told of that one.
func TestAllParentsAreTried(t *testing.T) {
	var out, errOut bytes.Buffer
	err := trial{client: scene{names: []string{"a", "gone", "b", "conflict", "large", "enormous", "read-only", "c"}}}.all(t.Context(), echo{}, subresource.Selected{}, reportTo(t, &out, &errOut))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "things/") || strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "#") {
			got = append(got, line)
		}
	}
	want := []string{
		"things/ns/a", "+a", "+former", "things/ns/b", "+b", "+former", "things/ns/conflict",
		`# the sync would fail: Operation cannot be fulfilled on things "conflict": the customize hook failed`, "things/ns/large",
		`# the sync would fail: a plan cannot be given the responses of the hook, whether or not a sync takes them: Request entity too large: limit is 1572864`,
		"things/ns/enormous", "# the sync would fail: Request entity too large: more than 32 MiB", "things/ns/read-only",
		`# the sync would fail: a plan with the responses of the hook is refused, whether or not a sync takes them: things "read-only" is forbidden: you may not create secrets`,
		"things/ns/c", "+c", "+former",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A plan counts parents of which the caller may not see all that it would show. So does a trial, unless it is of that parent alone: the error says
// what the caller would have to be allowed.
func TestParentsThatTheCallerMayNotSeeAreHidden(t *testing.T) {
	var out, errOut bytes.Buffer
	report := reportTo(t, &out, &errOut)
	object := controllerobject.Object{Composite: &v1alpha1.CompositeController{}}
	err := trial{client: scene{names: []string{"a", "hidden", "b"}, hidden: 1}}.all(t.Context(), echo{}, subresource.Selected{}, report)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.End(object, subresource.Selected{}); !errors.Is(err, exitstatus.ErrDifferent) {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(out.String(), "things/ns/b") || !strings.Contains(out.String(), "Of 2 parents, 2 would change") {
		t.Errorf("printed\n%s", out.String())
	}
	if !strings.HasPrefix(errOut.String(), "2 parents are left out, because you may not get them, their children or their related objects: ") {
		t.Errorf("it said %q", errOut.String())
	}
	named := subresource.Selected{ParentSelection: v1alpha1.ParentSelection{Namespace: "ns", Name: "hidden"}}
	err = trial{client: scene{names: []string{"hidden"}}}.all(t.Context(), echo{}, named, reportTo(t, &out, &errOut))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "you may not get secrets") {
		t.Errorf("a parent that was named: %v", err)
	}
}

func TestWhatEndsATrial(t *testing.T) {
	var out, errOut bytes.Buffer
	err := trial{client: scene{names: []string{"a", "forbidden", "b"}}}.all(t.Context(), echo{}, subresource.Selected{}, reportTo(t, &out, &errOut))
	if !apierrors.IsForbidden(err) {
		t.Errorf("forbidden: %v", err)
	}
	hook, err := localhook.New([]string{"http://127.0.0.1:1/sync"})
	if err != nil {
		t.Fatal(err)
	}
	err = trial{client: scene{names: []string{"a", "b"}}}.all(t.Context(), hook, subresource.Selected{}, reportTo(t, &out, &errOut))
	if !localhook.IsUnreachable(err) {
		t.Errorf("nothing listens: %v", err)
	}
	out.Reset()
	err = trial{client: scene{names: []string{"a"}}}.all(t.Context(), echo{errors.New("status 500")}, subresource.Selected{}, reportTo(t, &out, &errOut))
	if err != nil || out.String() != "things/ns/a\n# the sync would fail: status 500\n" {
		t.Errorf("a hook that fails: %v, %s", err, out.String())
	}
}

// callFunc is a hook.
type callFunc func(body []byte) ([]byte, error)

func (f callFunc) Call(_ context.Context, _ string, body []byte) ([]byte, error) { return f(body) }

// The response to the call during which a trial is ended is no plan.
func TestATrialThatIsEndedDuringACall(t *testing.T) {
	for range 20 {
		var out, errOut bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		hook := callFunc(func(body []byte) ([]byte, error) {
			cancel()
			return body, nil
		})
		err := trial{client: scene{names: []string{"a"}}}.all(ctx, hook, subresource.Selected{}, reportTo(t, &out, &errOut))
		if !errors.Is(err, context.Canceled) || out.Len() > 0 {
			t.Fatalf("got %v, and it printed %q", err, out.String())
		}
	}
}

// A file with inline hooks is planned with by the server.
func TestAFileIsTried(t *testing.T) {
	const inline = `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"web"},"spec":{"hooks":{"sync":{"inline":{}}}}}`
	file := filepath.Join(t.TempDir(), "controller.yaml")
	if err := os.WriteFile(file, []byte(inline), 0o600); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web"
	cluster := connectiontest.Documents{
		"/api": `{"kind":"APIVersions","versions":[]}`, "/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`, path: inline,
		path + "/plan": `{"kind":"ControllerPlan","apiVersion":"metacontroller.k8s.io/v1alpha1","status":{"summary":{"parents":1,"failing":1},` +
			`"parents":[{"resource":"things","name":"a","error":"no luck"}]}}`,
	}
	for what, tc := range map[string]struct {
		args []string
		want string
	}{
		"a file":                    {[]string{"-f", file, "--all"}, "things/a\n# the sync would fail: no luck\n"},
		"a file, and a hook":        {[]string{"-f", file, "--hook=http://localhost:1/sync"}, "leave out --hook and --exec"},
		"neither":                   {nil, "name a controller, or a file with -f"},
		"inline hooks that run":     {[]string{"cc/web"}, "the hooks of cc/web are inline: try a file with 'kubectl metacontroller try -f FILE'"},
		"no file of that name":      {[]string{"-f", file + "x"}, "no such file"},
		"another controller's name": {[]string{"-f", file, "cc/other", "a"}, "holds cc/web, not cc/other"},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, NewCommand, cluster, tc.args...)
			if err == nil || !strings.Contains(fmt.Sprint(printed, err), tc.want) {
				t.Errorf("printed %q, error %v, want %q", printed, err, tc.want)
			}
		})
	}
}
