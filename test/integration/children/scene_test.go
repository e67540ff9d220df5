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

// Package children proves on a real control plane that children of built-in kinds settle: written once, as people write
// them, they are not written again, by the process that wrote them nor by one that starts later (docs/reference/compatibility.md#d12.4, docs/reference/compatibility.md#d12.5).
//
// Each file in testdata is one manifest of one kind.
package children

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// manager is the field manager for server-side apply.
const manager = plan.LegacyManager + "/compositecontroller/test"

// scene is a parent, which is a namespace, and what syncs its children. Objects are read live instead of from a cache.
type scene struct {
	client    *client.Client
	discovery *discovery.Discovery
	applier   *apply.Applier
	records   plan.Records
	// writes is the number of requests that write, without dry runs and without conflicts, which other clients cause.
	writes *atomic.Int64
	// tried is the number of children that were tried by dry runs.
	tried int
	// noSchema has lists merged by guessing.
	noSchema bool
	// serverSide has children written by server-side apply, and manager is the field manager for it.
	serverSide bool
	manager    string

	parent *object.Object
	rules  []children.Rule
}

func newScene(t *testing.T) *scene {
	t.Helper()
	config := cluster.Shared(t).Config(t)
	config.WarningHandler = rest.NoWarnings{}
	writes := new(atomic.Int64)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, writes} })
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c = c.Knowing(plan.LegacyManager)
	s := &scene{client: c, manager: manager, writes: writes}
	s.applier = apply.New(apply.Options{Client: c})
	builtInOnce.Do(func() {
		s.rediscover(t)
		builtIn = s.discovery
	})
	s.discovery = builtIn
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if s.parent, err = c.Get(t.Context(), client.Target{Resource: namespaces, Name: cluster.Shared(t).Namespace(t)}); err != nil {
		t.Fatal(err)
	}
	return s
}

// counting counts requests that write.
type counting struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	refused := err == nil && response.StatusCode == http.StatusConflict
	if r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && !refused {
		c.writes.Add(1)
	}
	return response, err
}

// builtIn knows the kinds that are served from the start. Nothing of it is of one scene, and what it knows is long.
var (
	builtIn     *discovery.Discovery
	builtInOnce sync.Once
)

// rediscover forgets what is known of the kinds that are served.
func (s *scene) rediscover(t *testing.T) {
	t.Helper()
	config := cluster.Shared(t).Config(t)
	watched, err := cache.New(cache.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if s.discovery, err = discovery.New(config, watched); err != nil {
		t.Fatal(err)
	}
}

// load reads the manifest of a child and declares its kind. Namespaced objects before it in the file are what it cannot be
// without; they are created.
func (s *scene) load(t *testing.T, file string, method v1alpha1.ChildUpdateMethod) map[string]any {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(manifest), "\n---\n")
	last := len(documents) - 1
	for _, document := range documents[:last] {
		s.create(t, s.decode(t, document))
	}
	content := s.decode(t, documents[last])
	s.declare(t, content, method)
	return content
}

func (s *scene) create(t *testing.T, content map[string]any) {
	t.Helper()
	u := unstructured.Unstructured{Object: content}
	resource, err := s.discovery.Kind(t.Context(), u.GetAPIVersion(), u.GetKind())
	if err != nil {
		t.Fatal(err)
	}
	body, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	target := client.Target{Resource: resource.GroupVersionResource, Namespace: s.parent.Name()}
	if _, err := s.client.Create(t.Context(), target, body); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) decode(t *testing.T, manifest string) map[string]any {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(manifest, "NAMESPACE", s.parent.Name())))
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(encoded, &content); err != nil {
		t.Fatal(err)
	}
	return content
}

func (s *scene) declare(t *testing.T, content map[string]any, method v1alpha1.ChildUpdateMethod) {
	t.Helper()
	apiVersion, _ := content["apiVersion"].(string)
	kind, _ := content["kind"].(string)
	resource, err := s.discovery.Kind(t.Context(), apiVersion, kind)
	if err != nil {
		t.Fatal(err)
	}
	s.rules = append(s.rules, children.Rule{
		Kind: resource.GroupVersionKind(), Resource: resource.GroupVersionResource, Namespaced: resource.Namespaced, Method: method,
		ServerSide: s.serverSide, Force: true,
	})
	if metadata, ok := content["metadata"].(map[string]any); ok && resource.Namespaced {
		metadata["namespace"] = s.parent.Name()
	}
	if kind == "Pod" {
		s.awaitAccount(t)
	}
}

// awaitAccount waits until the namespace has the service account of Pods, without which none can be created there.
func (s *scene) awaitAccount(t *testing.T) {
	t.Helper()
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	cluster.Eventually(t, cluster.Limit, "the service account of Pods", func(ctx context.Context) (bool, string) {
		_, err := s.client.Get(ctx, client.Target{Resource: accounts, Namespace: s.parent.Name(), Name: "default"})
		return err == nil, fmt.Sprint(err)
	})
}

func (s *scene) schema(ctx context.Context, kind schema.GroupVersionKind) merge.Schema {
	if s.noSchema {
		return nil
	}
	found, err := s.discovery.Schema(ctx, kind)
	if err != nil {
		return nil
	}
	return schemaOf(found)
}

// published is what the cluster publishes about a kind.
type published struct{ *discovery.Schema }

func schemaOf(s *discovery.Schema) merge.Schema {
	if s == nil {
		return nil
	}
	return published{s}
}

func (p published) Field(name string) merge.Schema { return schemaOf(p.Schema.Field(name)) }
func (p published) Item() merge.Schema             { return schemaOf(p.Schema.Item()) }

// restart drops what the process remembers.
func (s *scene) restart() { s.records = nil }

// input reads the children and returns what a plan is made from.
func (s *scene) input(t *testing.T, known []children.Key, contents ...map[string]any) plan.Input {
	t.Helper()
	rules := children.NewRules(s.rules)
	copies := make([]map[string]any, len(contents))
	for i := range contents {
		copies[i] = clone(t, contents[i])
	}
	desired, _, err := children.Validate(children.Scope{Field: "children", Declared: "spec.childResources"}, rules, copies)
	if err != nil {
		t.Fatal(err)
	}
	in := plan.Input{
		Parent: s.parent.UID(), Owner: children.OwnerContent(s.parent), Rules: rules, Desired: desired, Manager: s.manager,
		ParentName: s.parent.String(), Now: time.Now(), Records: s.records,
		Schemas: map[schema.GroupVersionKind]merge.Schema{},
	}
	for _, d := range desired {
		known = append(known, d.Key)
	}
	for _, key := range known {
		if o := s.observe(t, rules, key); o != nil {
			in.Observed = append(in.Observed, o)
		}
	}
	missing := plan.Missing(in)
	for _, kind := range missing.Schemas {
		in.Schemas[kind] = s.schema(t.Context(), kind)
	}
	in.OtherVersions = s.applier.Read(t.Context(), missing.Versions)
	s.tried += len(plan.Missing(in).Doubts)
	in.Trials = s.applier.Try(t.Context(), in)
	return in
}

func (s *scene) observe(t *testing.T, rules children.Rules, key children.Key) *object.Object {
	t.Helper()
	rule, ok := rules.For(key.GroupKind())
	if !ok {
		t.Fatalf("%s is not declared", key)
	}
	read := s.applier.Read(t.Context(), []plan.Step{{Key: key, Resource: rule.Resource}})[key]
	if read.Err != nil {
		t.Fatal(read.Err)
	}
	o := read.Object
	if o == nil || o.Controller() == nil || o.Controller().UID != s.parent.UID() {
		return nil
	}
	return o
}

// sync makes a plan, applies it and records what came of it. A child that changed after it was observed has a stale outcome.
func (s *scene) sync(t *testing.T, in plan.Input) ([]plan.Outcome, error) {
	t.Helper()
	p, errPlan := plan.Make(in)
	if again, _ := plan.Make(in); !reflect.DeepEqual(again, p) { //nolint:govet // Both have the errors of the same facts.
		t.Errorf("two plans from one input: %+v and %+v", p, again)
	}
	outcomes, err := s.applier.Apply(t.Context(), p)
	s.records = p.Next(in.Records, outcomes, 0)
	for _, step := range p.Steps {
		if step.Reason == plan.Stale {
			outcomes = append(outcomes, plan.Outcome{Step: step, Stale: true})
		}
	}
	return outcomes, errors.Join(errPlan, err)
}

// knowledge is all that can make two syncs to the same desired state differ: what is observed, and what is remembered.
func knowledge(t *testing.T, in plan.Input) string {
	t.Helper()
	remembered, err := json.Marshal(in.Records)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range in.Observed {
		remembered = append(remembered, " "+o.ResourceVersion()...)
	}
	return string(remembered)
}

// syncs syncs until the next sync would be the same as the one before, limit times at most, and gives away what came of each.
func (s *scene) syncs(t *testing.T, limit int, contents []map[string]any, visit func(i int, outcomes []plan.Outcome)) {
	t.Helper()
	known := ""
	for i := range limit {
		in := s.input(t, nil, contents...)
		before := known
		if known = knowledge(t, in); known == before {
			return
		}
		outcomes, err := s.sync(t, in)
		if err != nil {
			t.Fatal(err)
		}
		visit(i, outcomes)
	}
}

// quiet syncs ten times at most, and fails the test for each write.
func (s *scene) quiet(t *testing.T, when string, contents ...map[string]any) {
	t.Helper()
	s.syncs(t, 10, contents, func(i int, outcomes []plan.Outcome) {
		for _, o := range outcomes {
			if o.Stale {
				continue
			}
			observed := "nothing"
			if o.Observed != nil {
				observed = string(o.Observed.JSON())
			}
			t.Errorf("%s, sync %d: %s %s because of %v\nobserved %s", when, i, o.Action, o.Key, o.Changed, observed)
		}
	})
}

func clone(t *testing.T, content map[string]any) map[string]any {
	t.Helper()
	encoded, err := utiljson.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	var result map[string]any
	if err := utiljson.Unmarshal(encoded, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {app: a}}, data: {k: v, second: "2"}}`

// declared returns a scene and a child of a declared kind.
func declared(t *testing.T, manifest string, method v1alpha1.ChildUpdateMethod) (*scene, map[string]any) {
	t.Helper()
	s := newScene(t)
	content := s.decode(t, manifest)
	s.declare(t, content, method)
	return s, content
}

// does syncs and expects one outcome.
func (s *scene) does(t *testing.T, want plan.Action, contents ...map[string]any) plan.Outcome {
	t.Helper()
	outcomes, err := s.sync(t, s.input(t, nil, contents...))
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 1 || outcomes[0].Action != want || !outcomes[0].Done {
		t.Fatalf("%+v, want %s", outcomes, want)
	}
	return outcomes[0]
}

// first is the object "a" of the kind that was declared first.
func (s *scene) first() client.Target {
	return client.Target{Resource: s.rules[0].Resource, Namespace: s.parent.Name(), Name: "a"}
}

// patchFirst has somebody else patch it.
func (s *scene) patchFirst(t *testing.T, patchType types.PatchType, patch string) {
	t.Helper()
	if _, err := s.client.Patch(t.Context(), s.first(), patchType, []byte(patch)); err != nil {
		t.Fatal(err)
	}
}

// prints returns what `kubectl get -o jsonpath` prints of an object.
func (s *scene) prints(t *testing.T, target client.Target, path string) string {
	t.Helper()
	template := jsonpath.New(path).AllowMissingKeys(true)
	if err := template.Parse(path); err != nil {
		t.Fatal(err)
	}
	found, err := s.client.Get(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	content, err := found.Decode()
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := template.Execute(&printed, content); err != nil {
		t.Fatal(err)
	}
	return printed.String()
}

func TestAVersionThatIsNotServedIsAnError(t *testing.T) {
	t.Parallel()
	s, content := declared(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {maxReplicas: 2,
		scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}`, v1alpha1.ChildUpdateInPlace)
	s.does(t, plan.Create, content)
	content["apiVersion"] = "autoscaling/v9"
	content["metadata"].(map[string]any)["name"] = "b"
	if _, err := s.sync(t, s.input(t, nil, content)); err == nil || !strings.Contains(err.Error(), "/b: ") {
		t.Errorf("error %v", err)
	}
}

func TestAChildIsAppliedInTheVersionThatTheHookReturned(t *testing.T) {
	t.Parallel()
	s, content := declared(t, `{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {maxReplicas: 2,
		targetCPUUtilizationPercentage: 50, scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}`, v1alpha1.ChildUpdateInPlace)
	s.does(t, plan.Create, content)
	target := s.first()
	target.Resource.Version = "v2"
	// Its controller writes once that there is no such Deployment. An update meanwhile would meet a conflict.
	cluster.Eventually(t, cluster.Limit, "the status of the autoscaler", func(context.Context) (bool, string) {
		status := s.prints(t, target, `{.status.conditions[*].type}`)
		return status != "", status
	})
	newer := s.decode(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a, namespace: NAMESPACE}, spec: {maxReplicas: 3,
		metrics: [{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1024Mi}}}],
		scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}`)
	s.does(t, plan.Update, newer)
	if got := s.prints(t, target, "{.spec.metrics[*].resource.name}"); got != "memory" {
		t.Errorf("metrics %s", got)
	}
	s.quiet(t, "after the change of version", newer)
	s.restart()
	s.quiet(t, "after the change of version and a restart", newer)
}

func TestHooksMayReturnWhatTheyWereSent(t *testing.T) {
	t.Parallel()
	s, content := declared(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 0, selector: {matchLabels: {a: b}},
		template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}`, v1alpha1.ChildUpdateInPlace)
	s.does(t, plan.Create, content)
	observe := func() map[string]any {
		observed, err := s.input(t, nil, content).Observed[0].Decode()
		if err != nil {
			t.Fatal(err)
		}
		return observed
	}
	// The deployment controller writes once more for each generation, and a changed annotation makes one. What it writes last of a
	// Deployment without Pods is that its ReplicaSet is available.
	rests := func(generation string) {
		cluster.Eventually(t, cluster.Limit, "the status of the Deployment", func(context.Context) (bool, string) {
			status := s.prints(t, s.first(),
				`{.status.observedGeneration} {.status.conditions[?(@.type=="Progressing")].reason}`)
			return status == generation+" NewReplicaSetAvailable", status
		})
	}
	rests("1")
	s.does(t, plan.Update, observe()) // What is recorded as applied grows once.
	rests("2")
	s.quiet(t, "after the object was returned", observe())
	returned := observe()
	returned["spec"].(map[string]any)["replicas"] = int64(1)
	s.does(t, plan.Update, returned)
}

func TestSecretsAreNotRecordedInClear(t *testing.T) {
	t.Parallel()
	s, content := declared(t, `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {password: hunter2, second: x}}`,
		v1alpha1.ChildUpdateInPlace)
	s.does(t, plan.Create, content)
	record := s.prints(t, s.first(), "{.metadata.annotations}")
	if strings.Contains(record, "hunter2") || !strings.Contains(record, "password") {
		t.Errorf("record %s", record)
	}
	content["stringData"] = map[string]any{"password": "hunter3"}
	s.does(t, plan.Update, content)
	if data := s.prints(t, s.first(), "{.data}"); data != `{"password":"aHVudGVyMw=="}` {
		t.Errorf("data %s", data)
	}
	s.quiet(t, "after a change", content)
}

func TestFieldsUnknownToTheServerAreTriedOnceAfterARestart(t *testing.T) {
	t.Parallel()
	s, content := declared(t, `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {slector: {app: web}, ports: [{port: 80, protcol: UDP}]}}`,
		v1alpha1.ChildUpdateInPlace)
	s.does(t, plan.Create, content)
	s.quiet(t, "after the create", content)
	s.restart()
	s.quiet(t, "after the restart", content)
	if s.tried != 1 {
		t.Errorf("%d dry runs, want 1", s.tried)
	}
}
