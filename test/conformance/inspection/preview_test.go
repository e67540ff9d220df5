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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func requestsAndPlans(t *testing.T, e *fixture.Environment) {
	tests(t, e, fixture.Table[*stage]{
		Both: map[string]func(*stage){
			"the request is what the hook gets":          requestIsTheHooks,
			"values of Secrets are never shown":          secrets,
			"given responses are taken":                  given,
			"a candidate":                                candidate,
			"a candidate of a user who may not write it": candidateOfOthers,
			"what the API server refuses":                dryRun,
			"deletions that are held":                    held,
			"related objects":                            relatedObjects,
		},
		Webhooks: map[string]string{"the request is what the hook gets": "it is compared with what comes over the network"},
	})
	t.Run("a rollout half-way", func(t *testing.T) { rollout(newStage(t, e, fixture.Composite)) })
}

// requestIsTheHooks compares the request that is shown with the one that the hook gets next.
func requestIsTheHooks(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	s.Idle(s.controller)
	shown, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "a"})
	if err != nil || len(shown.Items) != 1 || shown.Items[0].Hook != "sync" || shown.Parent.Name != "a" {
		s.T.Fatalf("the requests are %+v, error %v", shown, err)
	}
	before := len(s.Requests("/hook"))
	if _, err := s.resync(s.admin(), &v1alpha1.ParentSelection{Namespace: s.Name, Name: "a"}); err != nil {
		s.T.Fatal(err)
	}
	s.eventually("the hook to be called", func() bool { return len(s.Requests("/hook")) > before })
	got := s.Requests("/hook")[before].Body
	if diff := cmp.Diff(decode(s.T, got), decode(s.T, shown.Items[0].Body.Raw)); diff != "" {
		s.T.Errorf("the request is another one (-sent +shown):\n%s", diff)
	}
	s.responsesAreTheHooks(before)
	for _, wrong := range []v1alpha1.HookRequestOptions{{Namespace: s.Name}, {Namespace: s.Name, Name: "a", Hook: "presync"}} {
		if _, err := s.requests(s.admin(), wrong); !apierrors.IsBadRequest(err) {
			s.T.Errorf("%+v: %v", wrong, err)
		}
	}
	if _, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "b"}); !apierrors.IsNotFound(err) {
		s.T.Errorf("a parent that is not there: %v", err)
	}
}

func decode(t *testing.T, body []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(body, &value); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return value
}

// secrets has Secrets for children, which are created, changed and shown.
func secrets(s *stage) {
	s.definition.Children = []fixture.Child{{Resource: fixture.Secrets, Method: v1alpha1.ChildUpdateInPlace}}
	s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
		reply := &fixture.Reply{}
		for name := range strings.FieldsSeq(fixture.Value(c.Parent, "spec", "names")) {
			reply.Children = append(reply.Children, &hook.Object{Object: map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name},
				"stringData": map[string]any{"password": fixture.Value(c.Parent, "spec", "password")},
			}})
		}
		return reply, nil
	}, `
children:
- forEach: [{name: name, in: "parent.spec.names.split(' ')"}]
  template: {apiVersion: v1, kind: Secret, metadata: {name: "${name}"}, stringData: {password: "${parent.spec.password}"}}
`)
	s.run()
	// The parent has no password of its own: the hook adds a part, so that values of Secrets can be told from what is no secret.
	s.Parent("a", map[string]any{"names": "one", "password": "first"})
	s.Await(fixture.Secrets, "one", "to be there", cluster.Exists)
	s.Idle(s.controller)
	s.pause()
	s.behaves(func(*fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Children: []*hook.Object{
			{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "one"}, "stringData": map[string]any{"password": "hunter2"}}},
			{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "two"}, "stringData": map[string]any{"password": "hunter3"}}},
		}}, nil
	}, `
children:
- template: {apiVersion: v1, kind: Secret, metadata: {name: one}, stringData: {password: hunter2}}
- template: {apiVersion: v1, kind: Secret, metadata: {name: two}, stringData: {password: hunter3}}
`)
	s.settlePaused("a")
	plans := s.planTwice()
	if diff := cmp.Diff(map[string]string{"one": "Update", "two": "Create"}, actions(&plans.Parents[0])); diff != "" {
		s.T.Errorf("the plan (-want +got):\n%s", diff)
	}
	shown, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "a", Call: true})
	if err != nil {
		s.T.Fatal(err)
	}
	if sent := s.Requests("/hook"); !s.inline && !bytes.Contains(sent[len(sent)-1].Body, []byte("Zmlyc3Q=")) {
		s.T.Errorf("the hook was called without the values: %s", sent[len(sent)-1].Body)
	}
	if response := string(shown.Items[0].Response.Raw); !strings.Contains(response, `"password":"(hidden)"`) || strings.Contains(response, "hunter") {
		s.T.Errorf("the response shows %s", response)
	}
	children, err := json.Marshal(decode(s.T, shown.Items[0].Body.Raw).(map[string]any)[s.childrenField()])
	if err != nil || !strings.Contains(string(children), "KGhpZGRlbik=") {
		s.T.Errorf("the request shows %s, error %v", children, err)
	}
	planned, err := json.Marshal(plans)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, text := range []string{string(planned), string(children)} {
		// In base64 as well.
		for _, value := range []string{"hunter2", "hunter3", "first", "aHVudGVy", "Zmlyc3Q="} {
			if strings.Contains(text, value) {
				s.T.Errorf("%s is in %s", value, text)
			}
		}
	}
	if !strings.Contains(string(planned), "data.password") {
		s.T.Errorf("the path of the change is not in %s", planned)
	}
}

func (s *stage) childrenField() string {
	if s.kind == fixture.Decorator {
		return "attachments"
	}
	return "children"
}

// given plans with a response that the hook did not give.
func given(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	s.Idle(s.controller)
	response := func(body string) v1alpha1.ControllerPlanSpec {
		return v1alpha1.ControllerPlanSpec{Responses: []v1alpha1.GivenResponse{{
			ParentReference: v1alpha1.ParentReference{Group: fixture.Group, Resource: "things", Namespace: s.Name, Name: "a"},
			Hook:            "sync", Body: runtime.RawExtension{Raw: []byte(body)},
		}}}
	}
	calls := s.script.All()
	plans := s.planned(response(`{"status":{"given":true},"` + s.childrenField() + `":[
		{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two"},"data":{"k":"v"}}]}`))
	if diff := cmp.Diff(map[string]string{"one": "Delete", "two": "Create"}, actions(&plans.Parents[0])); diff != "" {
		s.T.Errorf("the plan (-want +got):\n%s", diff)
	}
	var paths []string
	for _, change := range plans.Parents[0].Changes {
		paths = append(paths, change.Path)
	}
	if diff := cmp.Diff([]string{"status.data", "status.given"}, paths); diff != "" {
		s.T.Errorf("the parent changes at (-want +got):\n%s", diff)
	}
	if want := (v1alpha1.PlanSummary{Parents: 1, Changing: 1, Create: 1, Delete: 1}); plans.Summary != want {
		s.T.Errorf("the summary is %+v, want %+v", plans.Summary, want)
	}
	bad := s.planned(response(`{"` + s.childrenField() + `":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"two"}}]}`))
	if !strings.Contains(bad.Parents[0].Error, "Pod") || bad.Summary.Failing != 1 {
		s.T.Errorf("a kind that is not declared: %+v", bad)
	}
	if now := s.script.All(); now != calls {
		s.T.Errorf("the hook was called %d times", now-calls)
	}
	s.Idle(s.controller)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced && p.LastError == "" })
}

// other is the hook of a candidate, which wants one and new.
func (s *stage) other() *v1alpha1.Hook {
	s.T.Helper()
	if !s.inline {
		return s.At("/other")
	}
	return fixture.Inline(s.T, s.kind, `
children:
- {template: {apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {data: x}}}
- {template: {apiVersion: v1, kind: ConfigMap, metadata: {name: new}, data: {data: x}}}
`)
}

// candidate is the stage's controller with another hook.
func (s *stage) candidate(sync *v1alpha1.Hook) *runtime.RawExtension {
	s.T.Helper()
	d := s.definition
	d.Sync = sync
	var object any
	if s.kind == fixture.Decorator {
		object = v1alpha1.DecoratorController{Spec: s.DecoratorSpec(d)}
	} else {
		object = v1alpha1.CompositeController{Spec: s.CompositeSpec(d)}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		s.T.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

// candidate plans another definition, and compares what is written when it is taken.
func candidate(s *stage) {
	other := s.NewScript(s.kind)
	other.Want(fixture.ConfigMap("one", map[string]any{"data": "x"}), fixture.ConfigMap("new", map[string]any{"data": "x"}))
	s.Handle("/other", other)
	s.run()
	s.Parent("a", map[string]any{"names": "one two", "data": "x"})
	s.Await(fixture.ConfigMaps, "two", "to be there", cluster.Exists)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	s.Idle(s.controller)
	calls, written := s.script.All(), s.written()
	plans := s.planned(v1alpha1.ControllerPlanSpec{Candidate: s.candidate(s.other())})
	if diff := cmp.Diff(map[string]string{"one": "Leave Same", "two": "Delete", "new": "Create"}, actions(&plans.Parents[0])); diff != "" {
		s.T.Errorf("the plan (-want +got):\n%s", diff)
	}
	if now := s.script.All(); now != calls || !s.inline && other.All() != 1 {
		s.T.Errorf("the running hook was called %d times, the candidate's %d times", now-calls, other.All())
	}
	if diff := cmp.Diff(written, s.written()); diff != "" {
		s.T.Errorf("the plan wrote (-before +after):\n%s", diff)
	}
	_, err := s.plan(s.admin(), v1alpha1.ControllerPlanSpec{Candidate: &runtime.RawExtension{Raw: []byte(`{"spec":{"workers":-1}}`)}})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.workers") {
		s.T.Errorf("a candidate that is not valid: %v", err)
	}
	if !s.inline { // Children of a kind that the candidate does not declare make an inline hook a wrong one.
		s.candidateWarns()
	}
	s.definitionWarns(s.other())
	s.awaitWritten(withoutEvents(written), plans)
}

// definitionWarns has kubectl give the controller another hook, which wants another child in place of one.
func (s *stage) definitionWarns(sync *v1alpha1.Hook) {
	s.T.Helper()
	patch, err := json.Marshal([]any{map[string]any{"op": "replace", "path": "/spec/hooks/sync", "value": sync}})
	if err != nil {
		s.T.Fatal(err)
	}
	args := []string{"patch", s.resource(), s.controller.Name, "--type=json", "-p", string(patch)}
	const full = "Warning: 1 of 1 parent would change: 1 child created, 1 deleted; see 'kubectl metacontroller plan --all -f FILE'"
	// A warning is of what was found out within 2 seconds.
	cluster.Eventually(s.T, limit, "kubectl to say: "+full, func(context.Context) (bool, string) {
		output := s.Kubectl(s.T, append(args, "--dry-run=server")...)
		return strings.Contains(output, full), output
	})
	began := time.Now()
	output := s.Kubectl(s.T, args...)
	if took := time.Since(began); took < 2*time.Second && !strings.Contains(output, "Warning: syncs with this definition: 1 child deleted; 'kubectl metacontroller pause ") {
		s.T.Errorf("kubectl does not warn of the deletion, in %s:\n%s", took, output)
	}
}

// candidateWarns plans a candidate with a mistake that a write of it would be warned of.
func (s *stage) candidateWarns() {
	var warnings strings.Builder
	config := rest.CopyConfig(s.Config(s.T))
	config.WarningHandler = rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{})
	mistaken := s.candidate(s.other())
	mistaken.Raw = []byte(strings.ReplaceAll(string(mistaken.Raw), `"configmaps"`, `"configmapz"`))
	client := cluster.NewClients(s.T, config).Versioned.MetacontrollerV1alpha1()
	// An answer has no warning whose lookup takes too long.
	s.eventually("a warning about a candidate that names configmapz", func() bool {
		if _, err := s.plan(client, v1alpha1.ControllerPlanSpec{Candidate: mistaken}); err != nil {
			s.T.Fatalf("planning a candidate with a mistake: %v", err)
		}
		return strings.Contains(warnings.String(), "did you mean configmaps?")
	})
}

// candidateOfOthers tries one as a user who may plan, and may not write.
func candidateOfOthers(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	jane := s.as("jane-"+s.Name, "admin")
	_, err := s.plan(jane, v1alpha1.ControllerPlanSpec{Candidate: s.candidate(s.other())})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "jane-"+s.Name) {
		s.T.Errorf("the candidate: %v", err)
	}
	if calls := len(s.Requests("/other")); calls != 0 {
		s.T.Errorf("its hook was called %d times", calls)
	}
}

// dryRun has a child that the API server refuses.
func dryRun(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	s.Idle(s.controller)
	s.pause()
	s.Patch(fixture.Things, "a", `{"spec":{"names":"one Not_A_Name"}}`)
	s.settlePaused("a")
	plans := s.planned(v1alpha1.ControllerPlanSpec{DryRun: true})
	if diff := cmp.Diff(map[string]string{"one": "Leave Same", "Not_A_Name": "Refuse RefusedByDryRun"}, actions(&plans.Parents[0])); diff != "" {
		s.T.Errorf("the plan (-want +got):\n%s", diff)
	}
	if err := plans.Parents[0].Error; !strings.Contains(err, "metadata.name") {
		s.T.Errorf("the error is %q", err)
	}
	if plans := s.planned(v1alpha1.ControllerPlanSpec{}); actions(&plans.Parents[0])["Not_A_Name"] != "Create" || plans.Parents[0].Message == "" {
		s.T.Errorf("without a dry run: %+v", plans.Parents[0])
	}
}

// relatedObjects are found by a customize hook, whose response is remembered by syncs and not by plans.
func relatedObjects(s *stage) {
	s.definition.Customize = s.Customizing(s.kind, s.inline, hook.RelatedResourceRule{APIVersion: "v1", Resource: "services", Namespace: s.Name})
	s.related()
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	s.Idle(s.controller)
	s.asks("a", "sync")
	s.pause()
	s.Parent("b", map[string]any{"names": "two", "data": "x"})
	s.settlePaused("b")
	before := s.remembered()
	// The controller that the hook would be shown is another one than that of the remembered response: it is paused.
	s.asks("a", "customize sync")
	s.asks("b", "customize sync")
	if plans := s.planned(v1alpha1.ControllerPlanSpec{}); plans.Summary.Create != 1 || plans.Summary.Leave != 1 {
		s.T.Errorf("the plan is %+v", plans)
	}
	if diff := cmp.Diff(before, s.remembered()); diff != "" {
		s.T.Errorf("what is remembered (-before +after):\n%s", diff)
	}
	jane := s.as("jane-"+s.Name, "edit")
	things := s.role("things", []string{"get"}, fixture.Things)
	s.Bind(s.T, things, things, s.Name, "jane-"+s.Name)
	s.AwaitRole(s.T, "jane-"+s.Name, things, s.Name)
	if _, err := s.requests(jane, v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "a"}); err != nil {
		s.T.Errorf("who may see the related objects: %v", err)
	}
	if !s.inline { // Its related objects may be in any namespace.
		s.givenRulesTellNothing(jane)
	}
}

// asks checks which hooks are called about a parent, and that the last one is shown the related object.
func (s *stage) asks(parent, want string) {
	s.T.Helper()
	shown, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: parent})
	if err != nil {
		s.T.Fatal(err)
	}
	var hooks []string
	for _, r := range shown.Items {
		hooks = append(hooks, r.Hook)
	}
	if got := strings.Join(hooks, " "); got != want {
		s.T.Errorf("about %s the hooks are called: %s, want %s", parent, got, want)
	}
	if last := shown.Items[len(shown.Items)-1]; !strings.Contains(string(last.Body.Raw), "example.com") {
		s.T.Errorf("the related object is not in %s", last.Body.Raw)
	}
}

// rollout stops a rolling update after the first child, which never becomes ready.
func rollout(s *stage) {
	rolling(s)
	s.run()
	s.Parent("a", map[string]any{"names": "one two three", "data": "x"})
	s.Await(fixture.ConfigMaps, "three", "to be there", cluster.Exists)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	s.Idle(s.controller)
	s.Patch(fixture.Things, "a", `{"spec":{"data":"y"}}`)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool {
		return p.Children != nil && p.Children.Total == 3 && p.Children.Outdated != nil && *p.Children.Outdated == 2
	})
	requests, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "a"})
	if err != nil || len(requests.Items) != 2 || requests.Items[0].Revision != "" || requests.Items[1].Revision == "" ||
		!strings.Contains(string(requests.Items[1].Body.Raw), `"data":"x"`) {
		s.T.Errorf("the requests half-way are %+v, error %v", requests, err)
	}
}

// responsesAreTheHooks has the hook called with the request that is shown, and nothing done with its response.
func (s *stage) responsesAreTheHooks(synced int) {
	s.T.Helper()
	called, err := s.requests(s.admin(), v1alpha1.HookRequestOptions{Namespace: s.Name, Name: "a", Call: true})
	if err != nil || len(called.Items) != 1 || called.Items[0].Response == nil {
		s.T.Fatalf("the requests are %+v, error %v", called, err)
	}
	if sent := s.Requests("/hook"); len(sent) < synced+2 {
		s.T.Errorf("the hook got %d requests, want %d", len(sent), synced+2)
	} else if diff := cmp.Diff(decode(s.T, sent[len(sent)-1].Body), decode(s.T, called.Items[0].Body.Raw)); diff != "" {
		s.T.Errorf("the request is another one (-sent +shown):\n%s", diff)
	}
	response, ok := decode(s.T, called.Items[0].Response.Raw).(map[string]any)
	if children, _ := response[s.childrenField()].([]any); !ok || len(children) != 1 {
		s.T.Errorf("the response is %s", called.Items[0].Response.Raw)
	}
}

// givenRulesTellNothing has somebody plan with rules of his own: whether there is what they select is not to be seen by whom may not get it, and
// what no hook is shown hides nothing. The hooks are of version v1, in which a parent sees the objects of its namespace.
func (s *stage) givenRulesTellNothing(as typedv1alpha1.MetacontrollerV1alpha1Interface) {
	s.T.Helper()
	ref := v1alpha1.ParentReference{Group: fixture.Group, Resource: "things", Namespace: s.Name, Name: "a"}
	given := func(hook, body string) v1alpha1.GivenResponse {
		return v1alpha1.GivenResponse{ParentReference: ref, Hook: hook, Body: runtime.RawExtension{Raw: []byte(body)}}
	}
	for rule, refused := range map[string]string{
		`{"apiVersion":"rbac.authorization.k8s.io/v1","resource":"clusterroles","names":["cluster-admin"]}`: "may not get clusterroles.rbac.authorization.k8s.io in all namespaces",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","resource":"clusterroles","names":["no-such-role"]}`:  "may not get clusterroles.rbac.authorization.k8s.io in all namespaces",
		`{"apiVersion":"v1","resource":"configmaps","names":["kube-root-ca.crt"]}`:                          "",
	} {
		plan, err := s.plan(as, v1alpha1.ControllerPlanSpec{
			Parents: &v1alpha1.ParentSelection{Namespace: s.Name, Name: "a"},
			Responses: []v1alpha1.GivenResponse{
				given("sync", fmt.Sprintf(`{%q:[]}`, s.childrenField())), given("customize", fmt.Sprintf(`{"relatedResources":[%s]}`, rule)),
			},
		})
		switch {
		case err != nil:
			s.T.Errorf("%s: %v", rule, err)
		case plan.Status.Hidden != 0 || len(plan.Status.Parents) != 1:
			s.T.Errorf("%s: she sees %+v", rule, plan.Status)
		case (plan.Status.Parents[0].Error == "") != (refused == "") || !strings.Contains(plan.Status.Parents[0].Error, refused):
			s.T.Errorf("%s: the error is %q, want %q", rule, plan.Status.Parents[0].Error, refused)
		}
	}
}
