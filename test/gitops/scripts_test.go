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

package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/health"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/engine"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// published reads a file of artifacts/gitops.
func published(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(), "artifacts", "gitops", name))
	if err != nil {
		t.Fatalf("reading a published file: %v", err)
	}
	return string(text)
}

// luaScripts are scripts of health by the kinds of objects, as resource.customizations.health has them.
type luaScripts map[string]string

// scripts are those that are published.
func scripts(t *testing.T) luaScripts {
	t.Helper()
	controllers := published(t, "health.lua")
	return luaScripts{"CompositeController": controllers, "DecoratorController": controllers, "Website": published(t, "parent-health.lua")}
}

// GetResourceHealth implements health.HealthOverride. As in Argo CD, a script sees the object as obj, and has no libraries but those for
// values.
func (s luaScripts) GetResourceHealth(o *unstructured.Unstructured) (*health.HealthStatus, error) {
	script, exists := s[o.GetKind()]
	if !exists {
		return nil, nil
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	state.SetGlobal("obj", luaValue(state, o.Object))
	if err := state.DoString(script); err != nil {
		return nil, fmt.Errorf("running the script of %s: %w", o.GetKind(), err)
	}
	returned, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script of %s returns no table", o.GetKind())
	}
	return &health.HealthStatus{
		Status:  health.HealthStatusCode(lua.LVAsString(returned.RawGetString("status"))),
		Message: lua.LVAsString(returned.RawGetString("message")),
	}, nil
}

// luaValue makes a value of Lua of a value of JSON.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, field := range v {
			table.RawSetString(key, luaValue(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, element := range v {
			table.Append(luaValue(state, element))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}

// healthChecks makes Flux's reader of the published expressions.
func healthChecks(t *testing.T) func(meta.RESTMapper) engine.StatusReader {
	t.Helper()
	var spec struct {
		HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
	}
	decode(t, published(t, "health-check-exprs.yaml"), &spec)
	reader, err := cel.NewStatusReader(spec.HealthCheckExprs)
	if err != nil {
		t.Fatalf("reading the published expressions: %v", err)
	}
	return reader
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("decoding: %v\n%s", err, text)
	}
}

// object decodes JSON as the clients of an API server do.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("decoding %s: %v", text, err)
	}
	return o
}
