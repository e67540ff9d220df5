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

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// rolling measures a rolling update of all parents at once, one child of each at a time.
func (b *bench) rolling(ctx context.Context) error {
	const name = "rolling"
	bare := func(ctx context.Context) (limits, error) {
		return b.bareAfterwards(ctx, name, b.plan.rolling, func(l *limit) (report.Times, error) { return l.update(ctx, "2", true) })
	}
	c := composite{name: name, hooks: map[string]string{hookSync: hookserver.PathSync}, method: "RollingInPlace"}
	return b.beside(ctx, bare, func(ctx context.Context) ([]report.Result, error) {
		return b.with(ctx, b.plan.rolling, c, func(m *meter) error {
			if err := m.createParents(ctx); err != nil {
				return err
			}
			return m.one(ctx, workload{name: name, run: m.update})
		})
	})
}

// bareAfterwards creates parents and children, and times what is done with them then.
func (b *bench) bareAfterwards(ctx context.Context, name string, s size, do func(l *limit) (report.Times, error)) (limits, error) {
	l, err := b.newLimit(ctx, s)
	if err != nil {
		return nil, err
	}
	if _, err := l.create(ctx); err != nil {
		return nil, err
	}
	took, err := do(l)
	if err != nil {
		return nil, err
	}
	return limits{name: took}, b.clear(ctx, l.namespace)
}

// with runs do with a controller and parents of its own, and deletes both afterwards. It returns what do has added to the meter's results.
func (b *bench) with(ctx context.Context, s size, c composite, do func(m *meter) error) ([]report.Result, error) {
	remove, err := b.controller(ctx, c)
	if err != nil {
		return nil, err
	}
	m, err := b.newMeter(ctx, s, c.name)
	if err != nil {
		return nil, err
	}
	defer m.close()
	if err := do(m); err != nil {
		return nil, err
	}
	if err := b.clear(ctx, m.namespace); err != nil {
		return nil, err
	}
	return m.results, remove(ctx)
}

// remove measures the deletion of all parents: the cluster's garbage collector removes their children.
func (b *bench) remove(ctx context.Context) error {
	return b.removal(ctx, "delete", composite{name: "delete", hooks: map[string]string{hookSync: hookserver.PathSync}, method: inPlace})
}

// finalize measures the deletion of all parents where a finalize hook has the server remove the children.
func (b *bench) finalize(ctx context.Context) error {
	hooks := map[string]string{hookSync: hookserver.PathSync, "finalize": hookserver.PathFinalize}
	return b.removal(ctx, "finalize", composite{name: "finalize", hooks: hooks, method: inPlace})
}

func (b *bench) removal(ctx context.Context, name string, c composite) error {
	// The garbage collector deletes only children of parents whose kind it knows.
	if err := b.collected(ctx); err != nil {
		return err
	}
	s, finalizer := b.plan.removed, c.hooks["finalize"] != ""
	bare := func(ctx context.Context) (limits, error) {
		return b.bareAfterwards(ctx, name, s, func(l *limit) (report.Times, error) { return l.remove(ctx, finalizer) })
	}
	return b.beside(ctx, bare, func(ctx context.Context) ([]report.Result, error) {
		return b.with(ctx, s, c, func(m *meter) error {
			if err := m.createParents(ctx); err != nil {
				return err
			}
			family := newFamily(m)
			for _, q := range []cache.Query{{Resource: parentResource}, children} {
				if err := m.watch(ctx, q, family.see); err != nil {
					return err
				}
			}
			return m.one(ctx, workload{name: name, run: m.removeParents})
		})
	})
}

// removeParents deletes all parents and waits until they and their children are gone.
func (m *meter) removeParents(ctx context.Context) error {
	m.expect(m.size.parents)
	err := each(ctx, m.size.parents, func(i int) error {
		name := parentName(i)
		m.note("family/"+name, "", 0)
		return m.client.Delete(ctx, target(m.namespace, name))
	})
	if err != nil {
		return err
	}
	return m.await(ctx, m.plan.timeout)
}

// family tells when a parent and all its children are gone.
type family struct {
	meter *meter
	mu    sync.Mutex
	left  map[string]int
}

func newFamily(m *meter) *family { return &family{meter: m, left: map[string]int{}} }

func (f *family) see(e cache.Event) {
	if e.Type != cache.Deleted {
		return
	}
	name := e.Old.Name()
	if e.Old.Kind() != "Thing" {
		name = parentOf(name)
	}
	f.mu.Lock()
	f.left[name]++
	gone := f.left[name] == 1+f.meter.size.children
	f.mu.Unlock()
	if gone {
		f.meter.is("family/"+name, "", 0)
	}
}

// slowHook measures the creation of parents whose hook takes 50 ms. The limit is the time that its calls take with as
// many workers as a controller has.
func (b *bench) slowHook(ctx context.Context) error {
	hooks := map[string]string{hookSync: hookserver.PathSync + "?delay=" + b.plan.delay.String()}
	_, err := b.with(ctx, b.plan.slow, composite{name: "slow", hooks: hooks, method: inPlace}, func(m *meter) error {
		r, err := m.measure(ctx, workload{name: "slow-hook", run: m.createParents, cached: m.size.parents * (1 + m.size.children)})
		if err != nil {
			return err
		}
		r.Limit = r.CallsPerParent * float64(r.Parents) * b.plan.delay.Seconds() / workers
		r.Ratio = r.Seconds / r.Limit
		return m.keep(r)
	})
	return err
}

// workers is the server's default for --workers.
const workers = 20

// controllers measures the start of many controllers at once, each with parents that wait for it.
func (b *bench) controllers(ctx context.Context) error {
	name := fmt.Sprintf("%d-controllers", b.plan.controllers)
	return b.beside(ctx, func(ctx context.Context) (limits, error) {
		l, err := b.newLimit(ctx, b.plan.fleet)
		if err != nil {
			return nil, err
		}
		created, err := l.create(ctx)
		if err != nil {
			return nil, err
		}
		return limits{name: created}, b.clear(ctx, l.namespace)
	}, func(ctx context.Context) ([]report.Result, error) { return b.fleet(ctx, name) })
}

func (b *bench) fleet(ctx context.Context, name string) ([]report.Result, error) {
	s, n := b.plan.fleet, b.plan.controllers
	m, err := b.newMeter(ctx, s, "")
	if err != nil {
		return nil, err
	}
	defer m.close()
	controller := func(i int) string { return fmt.Sprintf("fleet-%d", i%n) }
	if err := each(ctx, s.parents, func(i int) error {
		_, err := m.client.Create(ctx, target(m.namespace, ""), parentBody(m.namespace, parentName(i), s, controller(i), "1"))
		return err
	}); err != nil {
		return nil, err
	}
	if err := m.one(ctx, workload{name: name, cached: s.parents * (1 + s.children), run: func(ctx context.Context) error {
		m.expect(s.parents)
		for i := range s.parents {
			m.note(parentName(i), m.revision, s.children)
		}
		if err := each(ctx, n, func(i int) error {
			c := composite{name: controller(i), hooks: map[string]string{hookSync: hookserver.PathSync}, method: inPlace}
			return b.createController(ctx, compositeResource, b.compositeBody(c))
		}); err != nil {
			return err
		}
		return m.await(ctx, m.plan.timeout)
	}}); err != nil {
		return nil, err
	}
	if err := b.clear(ctx, m.namespace); err != nil {
		return nil, err
	}
	return m.results, each(ctx, n, func(i int) error { return b.deleteController(ctx, compositeResource, controller(i)) })
}

// neighbour changes the one parent of a controller again and again, alone first, and then while another controller has many parents to
// create. P50 and P99 are those of the changes meanwhile, WriteP50 and WriteP99 those alone.
func (b *bench) neighbour(ctx context.Context) error {
	hooks := map[string]string{hookSync: hookserver.PathSync}
	_, err := b.with(ctx, b.plan.crowd, composite{name: "crowd", hooks: hooks, method: inPlace}, func(m *meter) error {
		remove, err := b.controller(ctx, composite{name: "quiet", hooks: hooks, method: inPlace})
		if err != nil {
			return err
		}
		quiet, err := b.meterOf(ctx, size{1, m.size.children}, "quiet")
		if err != nil {
			return err
		}
		defer quiet.close()
		if err := quiet.createParents(ctx); err != nil {
			return err
		}
		ended := make(chan struct{})
		close(ended)
		quiet.times()
		if err := quiet.changes(ctx, b.plan.trials, ended); err != nil {
			return err
		}
		alone := quiet.times()
		r, err := m.measure(ctx, workload{name: "neighbour", cached: m.size.parents * (1 + m.size.children), run: func(ctx context.Context) error {
			crowd, ended := make(chan error, 1), make(chan struct{})
			go func() {
				defer close(ended)
				crowd <- m.createParents(ctx)
			}()
			err := quiet.changes(ctx, 1, ended)
			return errors.Join(err, <-crowd)
		}})
		if err != nil {
			return err
		}
		meanwhile := quiet.times()
		r.P50, r.P99 = report.Percentile(meanwhile, 0.5), report.Percentile(meanwhile, 0.99)
		r.WriteP50, r.WriteP99 = report.Percentile(alone, 0.5), report.Percentile(alone, 0.99)
		if err := errors.Join(b.clear(ctx, quiet.namespace), remove(ctx)); err != nil {
			return err
		}
		return m.keep(r)
	})
	return err
}

// changes changes the first parent at least so many times, one after the other, until others have ended.
func (m *meter) changes(ctx context.Context, least int, others <-chan struct{}) error {
	for n := 0; ; n++ {
		select {
		case <-others:
			if n >= least {
				return nil
			}
		default:
		}
		m.serial++
		m.revision = fmt.Sprintf("n%d", m.serial)
		m.expect(1)
		m.note(parentName(0), m.revision, m.size.children)
		patch := fmt.Appendf(nil, `{"spec":{"revision":%q}}`, m.revision)
		if _, err := m.client.Patch(ctx, target(m.namespace, parentName(0)), types.MergePatchType, patch); err != nil {
			return err
		}
		if err := m.await(ctx, m.plan.timeout); err != nil {
			return err
		}
	}
}

// decorator measures a DecoratorController for a few of many pods: its start, and a change of all pods at once.
func (b *bench) decorator(ctx context.Context) error {
	s := size{b.plan.matching, 1}
	m, err := b.newMeter(ctx, s, "")
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.watch(ctx, cache.Query{Resource: childResource, LabelSelector: "bench=attachment"}, m.seeChild); err != nil {
		return err
	}
	if err := m.createPods(ctx); err != nil {
		return err
	}
	if err := b.beside(ctx, m.bareDecorator, m.decorated); err != nil {
		return err
	}
	if err := b.deleteAll(ctx, m.pod("")); err != nil {
		return err
	}
	return b.clear(ctx, m.namespace)
}

// Workloads with pods.
const (
	workDecorator       = "decorator"
	workDecoratorChange = "decorator-change"
)

// decorated measures a DecoratorController, which is there as long as it is measured.
func (m *meter) decorated(ctx context.Context) ([]report.Result, error) {
	if err := m.one(ctx, workload{name: workDecorator, cached: m.plan.pods, run: m.decorate}); err != nil {
		return nil, err
	}
	if err := m.one(ctx, workload{name: workDecoratorChange, run: func(ctx context.Context) error {
		m.expect(m.size.parents)
		m.podRevision++
		revision := strconv.Itoa(m.podRevision)
		if err := each(ctx, m.plan.pods, func(i int) error {
			if i < m.plan.matching {
				m.note("child/"+podName(i), revision, 0)
			}
			return m.poke(ctx, i, revision)
		}); err != nil {
			return err
		}
		return m.await(ctx, m.plan.timeout)
	}}); err != nil {
		return nil, err
	}
	return m.results, m.deleteController(ctx, decoratorResource, "decorator")
}

// bareDecorator writes as many ConfigMaps as there will be attachments, and then all of them and all pods. No controller looks at them.
func (m *meter) bareDecorator(ctx context.Context) (limits, error) {
	m.podRevision++
	revision := strconv.Itoa(m.podRevision)
	name := func(i int) string { return fmt.Sprintf("bare-%d", i) }
	var created, changed, others stopwatch
	if err := created.pass(ctx, m.plan.matching, nil, func(i int) error {
		_, err := m.client.Create(ctx, childTarget(m.namespace, ""), plainBody(m.namespace, name(i), "{}", "1"))
		return err
	}); err != nil {
		return nil, err
	}
	if err := changed.pass(ctx, m.plan.matching, nil, func(i int) error {
		if err := m.poke(ctx, i, revision); err != nil {
			return err
		}
		_, err := m.client.Update(ctx, childTarget(m.namespace, name(i)), plainBody(m.namespace, name(i), "{}", "2"))
		return err
	}); err != nil {
		return nil, err
	}
	if err := others.pass(ctx, m.plan.pods-m.plan.matching, nil, func(i int) error { return m.poke(ctx, m.plan.matching+i, revision) }); err != nil {
		return nil, err
	}
	change := changed.times()
	change.Seconds += others.times().Seconds
	err := each(ctx, m.plan.matching, func(i int) error { return m.client.Delete(ctx, childTarget(m.namespace, name(i))) })
	return limits{workDecorator: created.times(), workDecoratorChange: change}, err
}

func podName(i int) string { return fmt.Sprintf("p%d-0", i) }

func (m *meter) pod(name string) client.Target {
	return client.Target{Resource: podResource, Namespace: m.namespace, Name: name}
}

// createPods creates pods that no scheduler looks at, and of which the first match the decorator.
func (m *meter) createPods(ctx context.Context) error {
	create := func(i int) error {
		_, err := m.client.Create(ctx, m.pod(""), fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d-0","namespace":%q,`+
			`"labels":{"decorated":"%t"},"annotations":{"revision":"0"}},"spec":{"schedulerName":"none","automountServiceAccountToken":false,`+
			`"containers":[{"name":"main","image":"example.com/none"}]}}`, i, m.namespace, i < m.plan.matching))
		return err
	}
	// A pod needs the service account that the cluster makes for a new namespace in its own time.
	for attempt := 0; ; attempt++ {
		err := create(0)
		if err == nil {
			break
		}
		if !apierrors.IsForbidden(err) || attempt == 100 {
			return fmt.Errorf("creating a pod: %w", err)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return each(ctx, m.plan.pods-1, func(i int) error { return create(i + 1) })
}

// poke changes an annotation of a pod that hooks read as the revision.
func (m *meter) poke(ctx context.Context, i int, revision string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"revision":%q}}}`, revision)
	_, err := m.client.Patch(ctx, m.pod(podName(i)), types.MergePatchType, patch)
	return err
}

// decorate creates the controller and waits for all attachments.
func (m *meter) decorate(ctx context.Context) error {
	m.expect(m.plan.matching)
	for i := range m.plan.matching {
		m.note("child/"+podName(i), strconv.Itoa(m.podRevision), 0)
	}
	err := m.createController(ctx, decoratorResource, fmt.Appendf(nil, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController",`+
		`"metadata":{"name":"decorator"},"spec":{"resources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{"decorated":"true"}}}],`+
		`"attachments":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"InPlace"}}],`+
		`"hooks":{"sync":{"webhook":{"url":%q}}}}}`, m.hookURL+hookserver.PathDecorate))
	if err != nil {
		return err
	}
	return m.await(ctx, m.plan.timeout)
}

// customize measures parents with related objects: their creation, and changes of one related object at a time, each of
// which concerns only the parents that select it.
func (b *bench) customize(ctx context.Context) error {
	s := b.plan.customized
	hooks := map[string]string{hookSync: hookserver.PathRelated, "customize": fmt.Sprintf("%s?related=%d", hookserver.PathCustomize, b.plan.related)}
	return b.beside(ctx, b.bareCustomize, func(ctx context.Context) ([]report.Result, error) {
		return b.with(ctx, s, composite{name: "customize", hooks: hooks, method: inPlace}, func(m *meter) error {
			if err := each(ctx, b.plan.related, func(i int) error {
				_, err := m.client.Create(ctx, childTarget(m.namespace, ""), plainBody(m.namespace, relatedName(i), fmt.Sprintf(`{"slot":"%d"}`, i), "1"))
				return err
			}); err != nil {
				return err
			}
			if err := m.one(ctx, workload{name: workCustomize, run: m.createParents, cached: s.parents*(1+s.children) + b.plan.related}); err != nil {
				return err
			}
			return m.one(ctx, workload{name: workCustomizeChange, per: b.plan.changes * b.plan.affected(), run: m.changeRelated})
		})
	})
}

// Workloads with related objects.
const (
	workCustomize       = "customize"
	workCustomizeChange = "customize-change"
)

// affected is the number of parents that select the same related object.
func (p plan) affected() int { return p.customized.parents / p.related }

func (b *bench) bareCustomize(ctx context.Context) (limits, error) {
	l, err := b.newLimit(ctx, b.plan.customized)
	if err != nil {
		return nil, err
	}
	created, err := l.create(ctx)
	if err != nil {
		return nil, err
	}
	var w stopwatch
	for i := range b.plan.changes {
		if err := l.relatedChange(ctx, &w, i); err != nil {
			return nil, err
		}
	}
	return limits{workCustomize: created, workCustomizeChange: w.times()}, b.clear(ctx, l.namespace)
}

func relatedName(i int) string { return fmt.Sprintf("related-%d", i) }

// relatedChange does the writes that a change of one related object needs.
func (l *limit) relatedChange(ctx context.Context, w *stopwatch, i int) error {
	revision := fmt.Sprintf("change-%d", i)
	return w.pass(ctx, l.plan.affected(), func() error {
		_, err := l.client.Create(ctx, childTarget(l.namespace, ""), plainBody(l.namespace, relatedName(i), "{}", revision))
		return err
	}, func(n int) error {
		parent := parentName(n)
		for c := range l.size.children {
			body := childBody(l.namespace, parent, c, revision, l.owner(parent))
			if _, err := l.client.Update(ctx, childTarget(l.namespace, childName(parent, c)), body); err != nil {
				return err
			}
		}
		return l.bareStatus(ctx, l.namespace, parent, l.size.children, revision)
	})
}

// changeRelated changes one related object after the other, and waits each time for the parents that select it.
func (m *meter) changeRelated(ctx context.Context) error {
	for i := range m.plan.changes {
		slot, revision := i%m.plan.related, fmt.Sprintf("change-%d", i)
		m.expect(m.plan.affected())
		for p := slot; p < m.size.parents; p += m.plan.related {
			m.note(parentName(p), revision, m.size.children)
		}
		patch := fmt.Appendf(nil, `{"data":{"revision":%q}}`, revision)
		if _, err := m.client.Patch(ctx, childTarget(m.namespace, relatedName(slot)), types.MergePatchType, patch); err != nil {
			return err
		}
		if err := m.await(ctx, m.plan.timeout); err != nil {
			return err
		}
	}
	return nil
}

var (
	parentResource    = schema.GroupVersionResource{Group: "bench.example.com", Version: "v1", Resource: "things"}
	childResource     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	podResource       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	compositeResource = schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "compositecontrollers"}
	decoratorResource = schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "decoratorcontrollers"}
	revisionResource  = schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "controllerrevisions"}
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.bench.example.com}
spec:
  group: bench.example.com
  names: {kind: Thing, plural: things, singular: thing}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {children: {type: integer}, revision: {type: string}}}
          status:
            type: object
            properties: {children: {type: integer}, revision: {type: string}, observedGeneration: {type: integer}}
`

const (
	// hookSync is the hook that every controller has.
	hookSync = "sync"
	// inPlace is the update strategy of all but the rolling update.
	inPlace = "InPlace"
)

// composite is a CompositeController for the parents whose label bench has its name.
type composite struct {
	name string
	// hooks are the paths by the name of the hook. Without any the sync hook is inline.
	hooks  map[string]string
	method string
}

func (b *bench) compositeBody(c composite) []byte {
	hooks := make([]string, 0, len(c.hooks)+1)
	for name, path := range c.hooks {
		hooks = append(hooks, fmt.Sprintf(`%q:{"webhook":{"url":%q}}`, name, b.hookURL+path))
	}
	if len(c.hooks) == 0 {
		hooks = append(hooks, inlineHook)
	}
	return fmt.Appendf(nil, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":%q},"spec":{`+
		`"generateSelector":true,"parentResource":{"apiVersion":"bench.example.com/v1","resource":"things","labelSelector":{"matchLabels":{"bench":%q}}},`+
		`"childResources":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":%q}}],"hooks":{%s}}}`, c.name, c.name, c.method, strings.Join(hooks, ","))
}

// controller creates a controller and waits until it runs. The function that it returns deletes it.
func (b *bench) controller(ctx context.Context, c composite) (func(context.Context) error, error) {
	if err := b.kubectlApply(ctx, string(b.compositeBody(c))); err != nil {
		return nil, err
	}
	if err := b.ready(ctx, c.name); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return b.deleteController(ctx, compositeResource, c.name) }, nil
}

func (b *bench) createController(ctx context.Context, resource schema.GroupVersionResource, body []byte) error {
	if _, err := b.client.Create(ctx, client.Target{Resource: resource}, body); err != nil {
		return fmt.Errorf("creating a controller: %w", err)
	}
	return nil
}

func (b *bench) deleteController(ctx context.Context, resource schema.GroupVersionResource, name string) error {
	if err := b.client.Delete(ctx, client.Target{Resource: resource, Name: name}); err != nil {
		return fmt.Errorf("deleting controller %s: %w", name, err)
	}
	return nil
}

func (b *bench) kubectlApply(ctx context.Context, manifests string) error {
	apply := exec.CommandContext(ctx, b.kubectl, "--kubeconfig", b.kubeFile, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(manifests)
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("applying the bench's objects: %w\n%s", err, output)
	}
	return nil
}

// ready waits until a CompositeController runs.
func (b *bench) ready(ctx context.Context, controller string) error {
	if !b.subject.Conditions() {
		return b.probe(ctx, controller)
	}
	wait := exec.CommandContext(ctx, b.kubectl, "--kubeconfig", b.kubeFile, "wait", "--for=condition=Ready", "--timeout=60s", "compositecontroller/"+controller)
	if output, err := wait.CombinedOutput(); err != nil {
		return fmt.Errorf("waiting for %s: %w\n%s", controller, err, output)
	}
	return nil
}

// probe waits until a controller without conditions syncs a parent that is there for that alone, and until that parent is gone.
func (b *bench) probe(ctx context.Context, controller string) error {
	ctx, cancel := context.WithTimeout(ctx, b.plan.timeout)
	defer cancel()
	namespace, err := b.namespace(ctx, "probe")
	if err != nil {
		return err
	}
	name := parentName(0)
	if _, err := b.client.Create(ctx, target(namespace, ""), parentBody(namespace, name, size{1, 1}, controller, "1")); err != nil {
		return fmt.Errorf("creating a parent for %s: %w", controller, err)
	}
	if err := b.poll(ctx, target(namespace, name), func(o *object.Object) bool {
		_, synced := o.Field("status", "observedGeneration")
		return synced
	}); err != nil {
		return fmt.Errorf("waiting for %s to sync a parent: %w", controller, err)
	}
	if err := b.client.Delete(ctx, target(namespace, name)); err != nil {
		return fmt.Errorf("deleting the parent for %s: %w", controller, err)
	}
	if err := b.poll(ctx, target(namespace, name), func(*object.Object) bool { return false }); !apierrors.IsNotFound(err) {
		return fmt.Errorf("waiting for the end of the parent for %s: %w", controller, err)
	}
	return b.clear(ctx, namespace)
}

// poll reads an object until it is as it is wanted, or cannot be read.
func (b *bench) poll(ctx context.Context, t client.Target, wanted func(*object.Object) bool) error {
	for {
		o, err := b.client.Get(ctx, t)
		if err != nil || wanted(o) {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
