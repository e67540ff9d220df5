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
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const historyDeployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 0, selector: {matchLabels: {a: b}},
	template: {metadata: {labels: {a: b}}, spec: {tolerations: [{key: mine, operator: Exists}], containers: [{name: a, image: a, args: [x],
	env: [{name: E, value: "1"}], ports: [{containerPort: 80}], resources: {requests: {cpu: 1000m}}}]}}}}`

// edits are what another client does to the Deployment, and hooks what the hook desires next, as JSON patches.
var edits = []string{
	`[{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"theirs","operator":"Exists"}}]`,
	`[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"theirs"}]`,
	`[{"op":"replace","path":"/spec/template/spec/containers/0/env/0/value","value":"theirs"}]`,
	`[{"op":"add","path":"/spec/template/spec/containers/0/env/-","value":{"name":"THEIRS","value":"1"}}]`,
	`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"theirs"}]`,
	`[{"op":"replace","path":"/spec/template/spec/containers/0/resources/requests/cpu","value":"2"}]`,
	`[{"op":"remove","path":"/spec/template/spec/tolerations"}]`,
	`[{"op":"add","path":"/metadata/labels","value":{"their":"label"}}]`,
}

// TestHistoriesOfADeploymentConverge interleaves edits of another client, changes of the desired state and restarts, on the API
// server. In the end the Deployment is, where something is desired, what the API server makes of a new one.
func TestHistoriesOfADeploymentConverge(t *testing.T) {
	for seed := range uint64(6) {
		for _, serverSide := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, server-side %t", seed, serverSide), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, 1))
				s := newScene(t)
				s.serverSide = serverSide
				content := s.decode(t, historyDeployment)
				s.declare(t, content, v1alpha1.ChildUpdateInPlace)
				s.settle(t, content)
				template := content["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
				container := template["containers"].([]any)[0].(map[string]any)
				for i := range 12 {
					s.editChild(t, edits[random.IntN(len(edits))])
					switch random.IntN(4) {
					case 0:
						container["image"] = fmt.Sprint("image-", i)
					case 1:
						container["args"] = []any{fmt.Sprint("arg-", i)}
					case 2:
						template["tolerations"] = []any{map[string]any{"key": fmt.Sprint("mine-", i), "operator": "Exists"}}
					case 3:
						s.restart()
					}
					if random.IntN(2) == 0 {
						s.settle(t, content)
					}
				}
				s.settle(t, content)
				s.quiet(t, "after its history", content)
				s.isLikeNew(t, content)
			})
		}
	}
}

// settle syncs until nothing is written.
func (s *scene) settle(t *testing.T, content map[string]any) {
	t.Helper()
	for range 20 {
		outcomes, err := s.sync(t, s.input(t, nil, content))
		if err != nil {
			t.Fatal(err)
		}
		if len(outcomes) == 0 {
			return
		}
	}
	t.Fatal("it is written for ever")
}

// editChild has another client patch the Deployment; a patch that does not fit changes nothing.
func (s *scene) editChild(t *testing.T, patch string) {
	t.Helper()
	if _, err := s.client.Patch(t.Context(), s.first(), types.JSONPatchType, []byte(patch)); err != nil && !strings.Contains(err.Error(), "the server rejected our request") {
		t.Log(err)
	}
}

// isLikeNew compares the child, where something is desired, with what the API server would make of a new one.
func (s *scene) isLikeNew(t *testing.T, content map[string]any) {
	t.Helper()
	differences := func(o *object.Object) string {
		decoded, err := o.Decode()
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		_, err = merge.Objects(decoded, content, content, s.schema(t.Context(), s.rules[0].Kind), func(d merge.Difference) bool {
			list = append(list, fmt.Sprint(d.Path, " ", d.Observed))
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(list, "\n")
	}
	body, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	target := client.Target{Resource: s.rules[0].Resource, Namespace: s.parent.Name()}
	fresh, err := s.client.TryCreate(t.Context(), target, []byte(strings.Replace(string(body), `"metadata":{"name":"a"`, `"metadata":{"name":"b"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	is, want := differences(s.input(t, nil, content).Observed[0]), strings.ReplaceAll(differences(fresh), "metadata.name b", "")
	if is != strings.TrimSpace(want) {
		t.Errorf("it is\n%s\nand a new one would be\n%s", is, want)
	}
}
