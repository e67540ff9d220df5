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

package composite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

func parsed(t testing.TB, format string, args ...any) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, format, args...), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// responses has the same status and body for each request.
type responses struct {
	status int
	body   string
}

// RoundTrip implements http.RoundTripper.
func (f responses) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: f.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(f.body)), Request: r,
	}, nil
}

// midRollout is a kind whose parents are in the middle of a rolling update when they are deleted.
type midRollout struct{ *kind }

// Decide implements reconciler.Kind.
func (m midRollout) Decide(ctx context.Context, s *reconciler.Sync) error {
	if s.Parent.Deleting() {
		return m.kind.Decide(ctx, s)
	}
	s.Rollout(true, 2, 1)
	return nil
}

// declared is a kind of children in one version, with the objects that there are.
type declared struct {
	rule    children.Rule
	objects []any
}

// rolling is a CompositeController whose children roll, over a cluster that has nothing but one parent, revisions and perhaps children.
type rolling struct {
	hooks v1alpha1.CompositeControllerHooks
	// api answers the requests to the cluster. If it is nil, nothing is found.
	api http.RoundTripper
	// hook answers the calls of hooks, and own the writes of revisions, which fail if it is nil.
	hook, own http.RoundTripper
	parent    *object.Object
	stored    []any
	children  []declared
	// decides replaces a part of the kind, unless it is nil.
	decides func(*kind) reconciler.Kind
}

// run runs the controller until the test ends. It returns the informers of parents and revisions, too.
func (r rolling) run(t *testing.T) (c *reconciler.Controller, parents, revisions *cache.Informer) {
	t.Helper()
	config := &rest.Config{Host: "http://api", Transport: r.api}
	if r.api == nil {
		config.Transport = responses{http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`}
	}
	host, err := cluster.New(cluster.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if r.own == nil {
		r.own = config.Transport
	}
	own, err := versioned.NewForConfig(&rest.Config{Host: "http://own", Transport: r.own})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := eventrecorder.NewRecorder(eventrecorder.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	shared := &reconciler.Shared{
		Options: reconciler.Options{HookTransport: r.hook}.WithDefaults(), Cluster: host, Recorder: recorder,
		Own:     reconciler.Own{Cache: host.Cache, Client: own},
		Applier: apply.New(apply.Options{Client: host.Client}), Expectations: &expectations.Registry{},
	}
	k := &kind{
		generates: true, shared: shared,
		planner:  rollout.New(rollout.Config{Rules: map[schema.GroupKind]rollout.Rule{{Kind: "Pod"}: {}}}),
		resource: discovery.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "things"}, Kind: "Thing"},
	}
	var decides reconciler.Kind = k
	if r.decides != nil {
		decides = r.decides(k)
	}
	parents = host.Cache.Acquire(cache.Query{Resource: k.resource.GroupVersionResource})
	revisions = host.Cache.Acquire(cache.Query{Resource: revisionResource})
	lists := map[*cache.Informer][]any{parents: {r.parent}, revisions: r.stored}
	var rules []children.Rule
	for _, d := range r.children {
		rules = append(rules, d.rule)
		lists[host.Cache.Acquire(cache.Query{Resource: d.rule.Resource})] = d.objects
	}
	for informer, list := range lists {
		if err := informer.Replace(list, "1"); err != nil {
			t.Fatal(err)
		}
	}
	c, err = reconciler.New(reconciler.Config{
		Dependencies: shared, Kind: decides, Selectors: related.NewSelectors(rollout.LabelControllerUID), Children: rules,
		Sources: []*reconciler.Source{{Resource: k.resource, Labels: labels.Everything(), Selected: func(*object.Object) bool { return true }}},
		Definition: reconciler.OfComposite(&v1alpha1.CompositeController{
			ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.CompositeControllerSpec{Hooks: &r.hooks},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	<-c.Started()
	return c, parents, revisions
}

// TestARolloutEndsWithTheManagementOfChildren deletes a parent in the middle of a rolling update, which its finalizers keep.
func TestARolloutEndsWithTheManagementOfChildren(t *testing.T) {
	const ours, theirs = `"metacontroller.io/compositecontroller-c"`, `"example.com/theirs"`
	hook := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/hook")}}
	for name, tc := range map[string]struct {
		reason string
		hooks  v1alpha1.CompositeControllerHooks
		// before and now are the finalizers of the parent, without and with its deletion.
		before, now string
		hook        responses
	}{
		"no finalize hook": {
			"Nobody manages its children.",
			v1alpha1.CompositeControllerHooks{Sync: hook},
			theirs, theirs,
			responses{http.StatusOK, `{"children":[]}`},
		},
		"no finalize hook, and the sync hook fails": {
			"No response is needed to know that.",
			v1alpha1.CompositeControllerHooks{Sync: hook},
			theirs, theirs,
			responses{http.StatusInternalServerError, ""},
		},
		"deletion of its dependents": {
			"The garbage collector deletes its children.",
			v1alpha1.CompositeControllerHooks{Sync: hook, Finalize: hook},
			ours, ours + `,"foregroundDeletion"`,
			responses{http.StatusOK, `{"children":[],"finalized":false}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				thing := func(version int, finalizers, metadata string) *object.Object {
					return parsed(t, `{"apiVersion":"g/v1","kind":"Thing","metadata":{"name":"a","uid":"u","resourceVersion":"%d","finalizers":[%s]%s}}`,
						version, finalizers, metadata)
				}
				c, parents, _ := rolling{
					hooks: tc.hooks, hook: tc.hook, parent: thing(1, tc.before, ""), decides: func(k *kind) reconciler.Kind { return midRollout{k} },
				}.run(t)
				<-time.After(time.Second)
				if h := c.Health(); h.Rolling != 1 || h.Outdated != 2 {
					t.Fatalf("before the deletion %d parents are rolling with %d children left, want 1 and 2", h.Rolling, h.Outdated)
				}
				if err := parents.Update(thing(2, tc.now, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`)); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
				if h := c.Health(); h.Rolling != 0 || h.Outdated != 0 {
					t.Errorf("%d parents are rolling with %d children left, want none. %s", h.Rolling, h.Outdated, tc.reason)
				}
			})
		})
	}
}
