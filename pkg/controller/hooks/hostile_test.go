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

package hooks_test

import (
	"flag"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

var hostileWorkers = flag.Int("hostile-workers", 1, "how many calls of each hostile hook there are at the same time")

// hostile are hooks that cost as much as their author can make them.
func hostile() map[string]*v1alpha1.InlineHook {
	with := func(status string, expressions ...string) *v1alpha1.InlineHook {
		h := &v1alpha1.InlineHook{Status: &runtime.RawExtension{Raw: []byte(`{"a": ` + status + `}`)}}
		for i, expression := range expressions {
			h.Variables = append(h.Variables, v1alpha1.InlineVariable{Name: fmt.Sprintf("v%d", i), Expression: expression})
		}
		return h
	}
	doubling := []string{"'0123456789'"}
	for i := range 40 {
		doubling = append(doubling, fmt.Sprintf("variables.v%d + variables.v%d", i, i))
	}
	views := []string{"lists.range(50000)"}
	for i := range 60 {
		views = append(views, fmt.Sprintf("variables.v%d", i)+strings.Repeat(" + [1]", 40))
	}
	templates := with(`1`)
	for range 10_000 {
		templates.Children = append(templates.Children, v1alpha1.InlineTemplate{Template: runtime.RawExtension{Raw: []byte(
			`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${parent.metadata.name}"}}`,
		)}})
	}
	text := "lists.range(1000).map(i, '" + strings.Repeat("a", 100) + "').join('')"
	return map[string]*v1alpha1.InlineHook{
		"Comprehensions": with(`"${lists.range(2000).map(a, lists.range(2000).map(b, a * b))}"`),
		"Conditions":     with(`"${variables.v0 || variables.v1 || variables.v2}"`, slices.Repeat([]string{"lists.range(3000).all(a, lists.range(3000).all(b, a >= 0))"}, 3)...),
		"Doubling":       with(`"${variables.v40}"`, doubling...),
		"Replacing":      with(`"${variables.v1}"`, text, "variables.v0.replace('a', variables.v0)"),
		"Views":          with(`"${variables.v60.map(i, i).size()}"`, views...),
		"Templates":      templates,
		"Sources":        with(`"${variables.v0}"`, slices.Repeat([]string{"[" + strings.Repeat("lists.range(3).map(z, z + z),", 270) + "[]]"}, 8)...),
		"Optionals":      with(`"${variables.v0}"`, slices.Repeat([]string{"optional.of(1)" + strings.Repeat(".optMap(a,a)", 8)}, 60)...),
		"Depth":          with(strings.Repeat(`{"a": `, 5000) + `1` + strings.Repeat(`}`, 5000)),
		"Response":       with(`"${lists.range(300).map(i, variables.v0)}"`, text),
		"Values":         with(`"${lists.range(400).map(i, variables.v0)}"`, "lists.range(1000)"),
		"Joining":        with(`"${lists.range(50000).map(i, '').join(variables.v0)}"`, text),
		"Sizes":          with(`"${lists.range(50000).map(i, variables.v0.size())}"`, text),
		"Patterns":       with(`"${lists.range(3000).filter(i, ('a' + string(i)).matches('((a{0,30}){0,30})' + string(i)))}"`),
		"Joined":         with(`"`+strings.Repeat("${variables.v1}", 900)+`"`, text, "lists.range(10).map(i, variables.v0).join('')"),
		"Absent":         with(`"${lists.range(50000).map(i, variables.v0)}"`, "lists.range(40000).map(i, optional.none())"),
		"Maps":           with(`"${lists.range(2000).map(i, variables.v0.exists(k, true)).size()}"`, "lists.range(10000).transformMapEntry(i, v, {string(v): v})"),
		"Versions":       with(`"${lists.range(20000).map(i, variables.v1.isLessThan(variables.v1)).size()}"`, "lists.range(5000).map(i, 'a.a.a.a.a').join('.')", "semver('1.2.3-' + variables.v0)"),
		"Queries":        with(`"${lists.range(20000).map(i, variables.v0.getQuery().size()).size()}"`, "url('http://a/?' + lists.range(1000).map(i, 'a').join('&'))"),
		"Pieces": with(`"${variables.v1.size() + variables.v2.size() + variables.v3.size()}"`, text,
			"lists.range(45).map(i, variables.v0.split(''))", "lists.range(45).map(i, variables.v0.split(''))", "lists.range(45).map(i, variables.v0.findAll('a'))"),
		"Quantities": with(`"${lists.range(3000).map(i, quantity('1e99999999' + string(i)).add(quantity('1')))}"`),
	}
}

// heap is how many bytes of the process are objects, dead ones too.
func heap() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

// TestHostileControllersBesideAHealthyOne has five controllers with each of these hooks beside one that is called all the while.
func TestHostileControllersBesideAHealthyOne(t *testing.T) {
	const each, limit = 5, 512 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit * 9 / 10)) // As the server does it.
	budget := fairqueue.Bytes(webhook.DefaultResponseBudget)
	named := func(name string, inline *v1alpha1.InlineHook) *hooks.Set {
		return configured(t, &schemas{}, webhook.Config{ControllerName: name, ResponseBudget: budget}, inline)
	}
	healthy := named("healthy", status(`{"twice": "${parent.spec.replicas * 2}"}`))
	var took []time.Duration
	call := func() {
		began := time.Now()
		response, err := healthy.Sync.Call(t.Context(), parent, about(`{"spec":{"replicas":2}}`), wire.DecodeComposite)
		if err != nil {
			t.Fatalf("call %d of the healthy hook: %v", len(took), err)
		}
		response.Release()
		took = append(took, time.Since(began))
	}
	call()
	var (
		running  sync.WaitGroup
		left     atomic.Int32
		outcomes sync.Map
	)
	defer running.Wait()
	for name, inline := range hostile() {
		for i := range each {
			set := named(fmt.Sprintf("%s-%d", name, i), inline)
			for range *hostileWorkers {
				left.Add(1)
				running.Go(func() {
					defer left.Add(-1)
					response, err := set.Sync.Call(t.Context(), parent, about(`{"metadata":{"name":"a"},"spec":{"replicas":2}}`), wire.DecodeComposite)
					if err == nil {
						response.Release()
					}
					outcomes.Store(name, err)
				})
			}
		}
	}
	var most uint64
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for ; left.Load() > 0; <-pace.C {
		call()
		most = max(most, heap())
	}
	outcomes.Range(func(name, err any) bool {
		t.Logf("%s: %.200v", name, err)
		return true
	})
	slices.Sort(took)
	t.Logf("%d calls of the healthy hook took %s, %s at most; the heap had %d MiB at most", len(took), took[len(took)/2], took[len(took)-1], most>>20)
	if most >= limit {
		t.Errorf("the heap had %d MiB", most>>20)
	}
}
