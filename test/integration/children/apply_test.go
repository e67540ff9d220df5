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

package children

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/jsonpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

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
	newer := s.decode(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a, namespace: NAMESPACE}, spec: {maxReplicas: 3,
		metrics: [{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1024Mi}}}],
		scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}`)
	s.does(t, plan.Update, newer)
	target := s.first()
	target.Resource.Version = "v2"
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
