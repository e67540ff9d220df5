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

// Package status breaks what a controller needs, and mends it, while kubectl and a client look at its status.
package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// A stage is one test of a controller of either kind.
type stage struct {
	*fixture.Test

	kind fixture.Kind
	// inline says that behaves makes inline hooks.
	inline bool
}

// behaves returns hooks that respond, or do what they do and are given as text.
func (s *stage) behaves(respond func(*fixture.Call) (*fixture.Reply, error), sync, finalize string) fixture.Definition {
	s.T.Helper()
	if s.inline {
		return fixture.Definition{Kind: s.kind, Sync: fixture.Inline(s.T, s.kind, sync), Finalize: fixture.Inline(s.T, s.kind, finalize)}
	}
	script := s.NewScript(s.kind)
	script.Respond(respond)
	s.Handle("/sync", script)
	return fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Finalize: s.At("/sync")}
}

func TestStatus(t *testing.T) {
	// A finalize hook is given a minute.
	e := fixture.SetUp(t, fixture.Options{Limit: 5 * time.Minute})
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		// Normal events of the whole process have one budget, which the others spend.
		t.Run(fmt.Sprintf("%s/AnEventTellsOfRecovery", kind), func(t *testing.T) { tellOfRecovery(&stage{Test: e.NewTest(t), kind: kind}) })
		t.Run(fmt.Sprintf("%s/AnEventTellsOfRecovery/Inline", kind), func(t *testing.T) {
			tellOfRecovery(&stage{Test: e.NewTest(t), kind: kind, inline: true})
		})
	}
	t.Run("AClientUpdatesWhatItCreated", func(t *testing.T) { updateWhatWasCreated(t, e) })
	// One supervisor writes the status of both kinds, which differ in what their syncs write.
	fixture.Table[*stage]{
		Both: map[string]func(*stage){
			"KubectlWait": kubectlWait, "HooksDoNotSeeIt": unseen, "Synced": synced, "Finalizing": finalizing, "Contended": contended, "Taken": taken,
		},
		Webhooks: map[string]string{"HooksDoNotSeeIt": "what the hook is shown is read from what comes over the network"},
		Composites: map[string]func(*stage){
			"DeadHook": deadHook, "MissingSecret": missingSecret, "MissingKind": missingKind, "FailingSyncs": failingSyncs,
			"Unsettled": unsettled, "FinalizedEarly": finalizedEarly, "Flapping": flapping,
			"Restless": restless, "Replaced": replaced, "ContendedRollout": contendedRollout, "RelatedToItself": relatedToItself, "Waiting": waiting,
		},
		Stage: func(t *testing.T, kind fixture.Kind, inline bool) *stage {
			return &stage{Test: e.NewTest(t), kind: kind, inline: inline}
		},
	}.Run(t)
}

// is matches a condition of the controller's generation, with parts of its message.
func is(status metav1.ConditionStatus, reason string, parts ...string) func(metav1.Condition) bool {
	return func(c metav1.Condition) bool {
		return c.Status == status && c.Reason == reason && c.ObservedGeneration > 0 &&
			!slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(c.Message, part) })
	}
}

// fine responds to sync hooks of both kinds.
func fine() http.Handler {
	return hooktest.JSON(map[string]any{"children": []any{}, "attachments": []any{}, "status": map[string]any{"done": "yes"}})
}

// fails0 is an inline hook that fails as long as spec.n is 0.
const fails0 = `status: {done: "${parent.spec.n == '0' ? {'': ''}['not yet'] : 'yes'}"}`

func tellOfRecovery(s *stage) {
	var works atomic.Bool
	s.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !works.Load() {
			http.Error(w, "not yet", http.StatusInternalServerError)
			return
		}
		fine().ServeHTTP(w, r)
	}))
	d := fixture.Definition{Kind: s.kind, Sync: s.At("/sync")}
	if s.inline {
		d.Sync = fixture.Inline(s.T, s.kind, fails0)
	}
	s.Run(d)
	s.Parent("p", map[string]any{"n": "0"})
	s.AwaitEvent("p", corev1.EventTypeWarning, "SyncError", "not yet")
	if works.Store(true); s.inline {
		s.Patch(fixture.Things, "p", `{"spec":{"n":"1"}}`)
	}
	s.AwaitEvent("p", corev1.EventTypeNormal, "SyncRecovered", "again")
}

// deadHook has nobody listen at the hook's address, and then the hook.
func deadHook(s *stage) {
	address := freeport.Address(freeport.Find(s.T))
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://" + address + "/sync")}}})
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to say that nothing is known", is(metav1.ConditionUnknown, v1alpha1.ReasonNotCalled))
	s.Parent("p", nil)
	for _, condition := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionHooksHealthy} {
		c.AwaitCondition(condition, "to name hook and cause", is(metav1.ConditionFalse, v1alpha1.ReasonHookFailing,
			"The sync hook fails since 20", "http://"+address+"/sync", "connection refused"))
	}
	c.AwaitCounters("a failing parent", func(n *v1alpha1.ControllerCounters) bool { return n.Failing == 1 && n.Parents == 1 })
	c.AwaitStatus("the hook and the error", func(status *v1alpha1.ControllerStatus) bool {
		return len(status.Hooks) == 1 && status.Hooks[0].Name == "sync" && status.Hooks[0].Calls > 0 && status.Hooks[0].LastSuccessTime == nil &&
			strings.Contains(status.Hooks[0].LastFailure, "connection refused") && len(status.LastErrors) == 1 &&
			status.LastErrors[0].Name == "p" && status.LastErrors[0].Namespace == s.Namespace && status.LastErrors[0].Resource == "things"
	})
	s.serve(address, fine())
	s.Patch(fixture.Things, "p", `{"spec":{"n":"1"}}`)
	c.AwaitReady()
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
	c.AwaitCounters("a healthy parent", func(n *v1alpha1.ControllerCounters) bool { return n.Failing == 0 })
	c.AwaitStatus("the success", func(status *v1alpha1.ControllerStatus) bool {
		return len(status.LastErrors) == 0 && status.Hooks[0].LastSuccessTime != nil && status.Hooks[0].P99Milliseconds != nil
	})
}

// missingSecret names the Secret before there is a parent. With one, no sync can succeed until the Secret is there.
func missingSecret(s *stage) {
	s.Handle("/sync", fine())
	sync := s.At("/sync")
	sync.Webhook.WebhookSecurity = v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{
		SecretRef: v1alpha1.SecretReference{Namespace: s.Namespace, Name: "login"},
	}}
	c := s.Declare(fixture.Definition{Kind: s.kind, Sync: sync})
	missing := is(metav1.ConditionFalse, v1alpha1.ReasonCredentialsMissing, "sync hook cannot be called since", "Secret "+s.Namespace+"/login")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to name the Secret", missing)
	s.Parent("p", nil)
	c.AwaitCondition(v1alpha1.ConditionReady, "to name the Secret", missing)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"}, StringData: map[string]string{"username": "u", "password": "p"}}
	if _, err := s.Kube.CoreV1().Secrets(s.Namespace).Create(s.T.Context(), secret, metav1.CreateOptions{}); err != nil {
		s.T.Fatal(err)
	}
	c.AwaitReady()
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
}

// missingKind names the kind of the parents, which comes later.
func missingKind(s *stage) {
	s.Handle("/sync", fine())
	kind := cluster.CustomResource{Kind: "Later", Resource: schema.GroupVersionResource{
		Group: strings.ToLower(string(s.kind)) + ".later.example.com", Version: "v1", Resource: "laters",
	}}
	c := s.Declare(fixture.Definition{Kind: s.kind, Parents: []schema.GroupVersionResource{kind.Resource}, Sync: s.At("/sync")})
	c.AwaitCondition(v1alpha1.ConditionEstablished, "to name the kind", is(metav1.ConditionFalse, v1alpha1.ReasonResourceNotFound, "laters"))
	c.AwaitCondition(v1alpha1.ConditionReady, "to name the kind", is(metav1.ConditionFalse, v1alpha1.ReasonResourceNotFound, "laters"))
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to be unknown", is(metav1.ConditionUnknown, v1alpha1.ReasonNotRunning))
	s.Cluster.Define(s.T, kind)
	c.AwaitReady()
	c.AwaitCondition(v1alpha1.ConditionEstablished, "to be true", is(metav1.ConditionTrue, v1alpha1.ReasonEstablished))
}

// failingSyncs has the hook return a child that may not be: first for all parents, then for all but one.
func failingSyncs(s *stage) {
	script := s.NewScript(s.kind)
	good := map[string]bool{}
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if good[c.Parent.GetName()] {
			return &fixture.Reply{}, nil
		}
		return nil, errors.New("the hook does not like " + c.Parent.GetName())
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync")})
	for n := range 12 {
		s.Parent(fmt.Sprint("p", n), nil)
	}
	c.AwaitCondition(v1alpha1.ConditionReady, "to say that all fail", is(metav1.ConditionFalse, v1alpha1.ReasonHookFailing, "every parent", "does not like"))
	c.AwaitStatus("ten errors", func(status *v1alpha1.ControllerStatus) bool {
		return len(status.LastErrors) == 10 && status.Counters.Failing == 12 && strings.Contains(status.LastErrors[0].Message, "does not like")
	})
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if c.Parent.GetName() == "p0" {
			return &fixture.Reply{}, nil
		}
		return nil, errors.New("the hook does not like " + c.Parent.GetName())
	})
	s.Patch(fixture.Things, "p0", `{"spec":{"n":"1"}}`)
	c.AwaitReady()
	c.AwaitCounters("the others", func(n *v1alpha1.ControllerCounters) bool { return n.Failing == 11 })
}

// kubectlWait waits as people do, right after the creation.
func kubectlWait(s *stage) {
	s.Handle("/sync", fine())
	d, dead := fixture.Definition{Kind: s.kind, Sync: s.At("/sync")}, `{"webhook":{"url":"http://`+freeport.Address(freeport.Find(s.T))+`/"}}`
	if s.inline {
		d.Sync, dead = fixture.Inline(s.T, s.kind, `status: {done: "yes"}`), `{"inline":{"status":{"done":"${{'': ''}['done']}"}}}`
	}
	c := s.Declare(d)
	object := strings.ToLower(c.Kind) + "/" + c.Name
	s.Kubectl(s.T, "wait", "--for=condition=Ready", object, "--timeout", s.Limit.String())
	s.Kubectl(s.T, "wait", "--for=condition=Established", object, "--timeout", s.Limit.String())
	c.Patch(`{"spec":{"hooks":{"sync":` + dead + `}}}`)
	s.Kubectl(s.T, "wait", "--for=condition=Ready", object, "--timeout", s.Limit.String())
	s.Parent("p", nil)
	s.Kubectl(s.T, "wait", "--for=condition=HooksHealthy=false", object, "--timeout", s.Limit.String())
	s.Kubectl(s.T, "wait", "--for=condition=Ready=false", object, "--timeout", s.Limit.String())
}

// unseen has the status change: no hook is called for it, and none is shown it.
func unseen(s *stage) {
	s.Handle("/sync", fine())
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync")})
	s.Parent("p", nil)
	s.Settle()
	before := s.Requests("/sync")
	// Another client writes the status, and the server writes it back.
	object := strings.ToLower(c.Kind) + "/" + c.Name
	s.Kubectl(s.T, "patch", object, "--subresource=status", "--type=json", "-p", `[{"op":"replace","path":"/status/conditions/0/reason","value":"Other"}]`)
	c.AwaitStatus("its own reasons again", func(status *v1alpha1.ControllerStatus) bool { return status.Conditions[0].Reason != "Other" })
	s.Settle()
	if after := s.Requests("/sync"); len(after) != len(before) {
		s.T.Errorf("the hook was called %d times while nothing but the status changed", len(after)-len(before))
	}
	s.Patch(fixture.Things, "p", `{"spec":{"n":"1"}}`)
	s.Settle()
	after := s.Requests("/sync")
	if len(after) == len(before) {
		s.T.Fatal("the hook was not called after a change of the parent")
	}
	shown := func(r hooktest.Request) []byte {
		var body struct {
			Controller json.RawMessage `json:"controller"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			s.T.Fatal(err)
		}
		return body.Controller
	}
	if first, last := shown(before[0]), shown(after[len(after)-1]); !bytes.Equal(first, last) || !bytes.Contains(first, []byte(c.Name)) {
		s.T.Errorf("the hook was shown the controller as\n%s\nand, after its status changed, as\n%s", first, last)
	}
}

// finalizing has a finalize hook that does not end, and then does.
func finalizing(s *stage) {
	c := s.Run(s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Finalized: c.Finalizing && fixture.Value(c.Parent, "spec", "n") == "1"}, nil
	}, `{}`, `finalized: "parent.?spec.?n.orValue('') == '1'"`))
	s.Parent("p", nil)
	s.Await(fixture.Things, "p", "to be kept", func(o *unstructured.Unstructured) bool { return o != nil && len(o.GetFinalizers()) > 0 })
	s.Delete(fixture.Things, "p")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to be true", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
	s.AwaitEvent("p", corev1.EventTypeWarning, "FinalizeWaits", "metadata.finalizers")
	c.AwaitCondition(v1alpha1.ConditionProgressing, "to say so", is(metav1.ConditionTrue, v1alpha1.ReasonFinalizing, "for 1 parent, and"))
	s.Patch(fixture.Things, "p", `{"spec":{"n":"1"}}`)
	s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
	c.AwaitCondition(v1alpha1.ConditionProgressing, "to settle", is(metav1.ConditionFalse, v1alpha1.ReasonSettled))
}

// serve serves at an address until the test ends.
func (s *stage) serve(address string, handler http.Handler) {
	s.T.Helper()
	listener, err := new(net.ListenConfig).Listen(s.T.Context(), "tcp", address)
	if err != nil {
		s.T.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	if err := server.Listener.Close(); err != nil {
		s.T.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	s.T.Cleanup(server.Close)
}

// often is how often another client looks for something to write: writes are counted for a minute.
const often = 50 * time.Millisecond

// unsettled has a hook that counts its calls in the status, and then does not.
func unsettled(s *stage) {
	var mu sync.Mutex
	calls, counting := 0, true
	script := s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; !counting {
			calls = 0
		}
		return &fixture.Reply{Status: map[string]any{"calls": calls, "n": fixture.Value(c.Parent, "spec", "n")}}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync")})
	s.Parent("p", map[string]any{"n": "1"})
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "status.calls differs in each response of the hook (a number, then another number)")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to say so", is(metav1.ConditionFalse, v1alpha1.ReasonResponsesDiffer, "1 parent does not settle", "status.calls"))
	c.AwaitCounters("the parent", func(n *v1alpha1.ControllerCounters) bool { return n.Unsettled == 1 })
	if n := script.Calls("p"); n > 50 {
		s.T.Errorf("the hook was called %d times", n)
	}
	// A change of the parent is not held back, however long the pauses are by now.
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.Await(fixture.Things, "p", "to show the change", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "n") == "2" })
	mu.Lock()
	counting = false
	mu.Unlock()
	s.Patch(fixture.Things, "p", `{"spec":{"n":"3"}}`)
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
	c.AwaitCounters("no parent", func(n *v1alpha1.ControllerCounters) bool { return n.Unsettled == 0 })
}

// finalizedEarly has one function for the sync and the finalize hook, which says that it is done whenever there is nothing to delete.
func finalizedEarly(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Finalized: fixture.Value(c.Parent, "spec", "n") == "1", Status: map[string]any{}}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Finalize: s.At("/sync")})
	s.Parent("p", map[string]any{"n": "1"})
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", `"finalized": true is in each response of the hook`)
	if n := script.Calls("p"); n > 50 {
		s.T.Errorf("the hook was called %d times", n)
	}
	// It is the controller itself that takes the finalizer off.
	for _, e := range s.Events("p") {
		if e.Reason == "ParentFlapping" {
			s.T.Errorf("another client is blamed: %s", e.Message)
		}
	}
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
	s.Patch(fixture.Things, "p", `{"spec":{"n":"1"}}`)
	s.Delete(fixture.Things, "p")
	s.Await(fixture.Things, "p", "to be gone", cluster.Gone)
}

// restless has a hook that puts a time into a Deployment, whose own controller writes its status after each change.
func restless(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		labels := map[string]any{"app": "stamped"}
		return &fixture.Reply{Children: []*hook.Object{{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "stamped", "labels": map[string]any{fixture.Label: s.Name}},
			"spec": map[string]any{
				"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
				"template": map[string]any{
					"metadata": map[string]any{"labels": labels, "annotations": map[string]any{"time": time.Now().Format(time.RFC3339Nano)}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
				},
			},
		}}}}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{
		{Resource: fixture.Deployments, Method: v1alpha1.ChildUpdateInPlace},
	}})
	s.Parent("p", nil)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "spec.template.metadata.annotations.time of Deployment")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to say so", is(metav1.ConditionFalse, v1alpha1.ReasonResponsesDiffer, "annotations.time"))
	script.Want()
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
}

// replaced has a hook that puts a time into a child that is recreated, from which another client takes a finalizer as soon as it is deleted.
func replaced(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		child := fixture.ConfigMap("stamped", map[string]any{"time": time.Now().Format(time.RFC3339Nano)})
		child.SetLabels(map[string]string{fixture.Label: s.Name})
		child.SetFinalizers([]string{"test.example.com/keep"})
		return &fixture.Reply{Children: []*hook.Object{child}}, nil
	})
	s.Handle("/sync", script)
	deletions, err := s.Resource(fixture.ConfigMaps).Watch(s.T.Context(), metav1.ListOptions{LabelSelector: fixture.Label + "=" + s.Name})
	if err != nil {
		s.T.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range deletions.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == watch.Modified && o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) > 0 {
				s.Patch(fixture.ConfigMaps, o.GetName(), `{"metadata":{"finalizers":null}}`)
			}
		}
	}()
	s.T.Cleanup(func() { deletions.Stop(); <-done })
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{
		{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateRecreate},
	}})
	s.Parent("p", nil)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "data.time of ConfigMap")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to say so", is(metav1.ConditionFalse, v1alpha1.ReasonResponsesDiffer, "data.time"))
	if n := script.Calls("p"); n > 100 {
		s.T.Errorf("the hook was called %d times", n)
	}
	script.Want()
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.Await(fixture.ConfigMaps, "stamped", "to be gone", cluster.Gone)
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
}

// counting is a script that counts its calls in the status once it is told to.
func counting(s *stage, children func(*fixture.Call) []*hook.Object) (script *fixture.Script, count *atomic.Bool) {
	count = new(atomic.Bool)
	var calls atomic.Int64
	script = s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		reply := &fixture.Reply{Status: map[string]any{"calls": int64(0)}, Children: children(c)}
		if count.Load() {
			reply.Status["calls"] = calls.Add(1)
		}
		return reply, nil
	})
	s.Handle("/sync", script)
	return script, count
}

// relatedToItself has a customize hook that selects the parent's own kind, so that each write of the parent is a change of a related object.
func relatedToItself(s *stage) {
	script, count := counting(s, func(*fixture.Call) []*hook.Object { return nil })
	count.Store(true)
	s.Hook.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{
			{APIVersion: fixture.Things.GroupVersion().String(), Resource: fixture.Things.Resource},
		}}, nil
	}))
	s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Customize: s.At("/customize")})
	s.Parent("p", nil)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "status.calls differs in each response")
	if n := script.Calls("p"); n > 50 {
		s.T.Errorf("the hook was called %d times", n)
	}
}

// waiting has a rolling update wait for a child that does not become ready, while the status is another one each time.
func waiting(s *stage) {
	if s.kind != fixture.Composite {
		s.T.Skip("only children of CompositeControllers roll")
	}
	script, count := counting(s, func(c *fixture.Call) []*hook.Object {
		n := fixture.Value(c.Parent, "spec", "n")
		return []*hook.Object{fixture.ConfigMap("one", map[string]any{"n": n}), fixture.ConfigMap("two", map[string]any{"n": n})}
	})
	s.Run(fixture.Definition{
		Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateRollingInPlace}},
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) {
			spec.ChildResources[0].UpdateStrategy.StatusChecks.Conditions = []v1alpha1.StatusConditionCheck{{Type: "Never", Status: new("True")}}
		},
	})
	s.Parent("p", map[string]any{"n": "1"})
	s.Await(fixture.ConfigMaps, "two", "to be created", cluster.Exists)
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.Await(fixture.Things, "p", "to wait", func(o *unstructured.Unstructured) bool {
		return strings.Contains(fixture.Value(o, "status", "conditions"), "RolloutWaiting")
	})
	before := script.Calls("p")
	count.Store(true)
	s.Patch(fixture.Things, "p", `{"metadata":{"labels":{"look":"again"}}}`)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ResponseDiffers", "status.calls differs in each response")
	if n := script.Calls("p") - before; n > 100 {
		s.T.Errorf("the hook was called %d times", n)
	}
}

// flapping has another client change a child back again and again.
func flapping(s *stage) {
	script := s.NewScript(s.kind)
	script.Want(fixture.ConfigMap("child", map[string]any{"k": "wanted"}))
	s.Handle("/sync", script)
	s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{
		{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace},
	}})
	s.Parent("p", nil)
	s.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
	cluster.EventuallyEvery(s.T, often, s.Limit, "an event that names who changes the child", func(ctx context.Context) (bool, string) {
		_, err := s.Kube.CoreV1().ConfigMaps(s.Namespace).Patch(ctx, "child", types.MergePatchType, []byte(`{"data":{"k":"other"}}`),
			metav1.PatchOptions{FieldManager: "meddler"})
		if err != nil {
			return false, err.Error()
		}
		events := s.Events("p")
		return slices.ContainsFunc(events, func(e corev1.Event) bool {
			return e.Reason == "ChildFlapping" && strings.Contains(e.Message, `keeps changing back at data.k after every write`) &&
				strings.Contains(e.Message, `The field manager "meddler" sets this field`) && e.Related != nil && e.Related.Name == "child"
		}), fmt.Sprint(events)
	})
}

// taken has another client delete a child after each creation.
func taken(s *stage) {
	d := s.behaves(func(c *fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("child", map[string]any{"k": fixture.Value(c.Parent, "spec", "k")})}}, nil
	}, `children: [{template: {apiVersion: v1, kind: ConfigMap, metadata: {name: child}, data: {k: "${parent.spec.k}"}}}]`, `{}`)
	d.Finalize, d.Children = nil, []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}}
	c := s.Run(d)
	s.Parent("p", map[string]any{"k": "1"})
	s.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
	deletions, last := 0, types.UID("")
	cluster.EventuallyEvery(s.T, often, s.Limit, "an event that says that somebody deletes the child", func(context.Context) (bool, string) {
		if child := s.Get(fixture.ConfigMaps, "child"); child != nil && child.GetUID() != last {
			s.Delete(fixture.ConfigMaps, "child")
			deletions, last = deletions+1, child.GetUID()
		}
		events := s.Events("p")
		return slices.ContainsFunc(events, func(e corev1.Event) bool {
			return e.Reason == "ChildFlapping" && strings.Contains(e.Message, "is deleted after every creation by somebody else")
		}), fmt.Sprintf("%d deletions, %v", deletions, events)
	})
	// The creations are counted from the first one of a minute on. On a busy machine a minute may end before there were enough.
	if deletions < 12 || deletions >= 40 {
		s.T.Errorf("the child was left alone after %d deletions, want one of the first creation and 11 more", deletions)
	}
	c.AwaitCounters("the child", func(n *v1alpha1.ControllerCounters) bool { return n.Flapping == 1 })
	if child := s.Get(fixture.ConfigMaps, "child"); child != nil {
		s.T.Errorf("a child that is left alone was created at %v", child.GetCreationTimestamp())
	}
	// What the hook wants is another child now: it is created at once.
	s.Patch(fixture.Things, "p", `{"spec":{"k":"2"}}`)
	s.Await(fixture.ConfigMaps, "child", "to be created as it is wanted now", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "data", "k") == "2"
	})
}

// contended has another client write the status of a parent again and again.
func contended(s *stage) {
	d := s.behaves(func(*fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Status: map[string]any{"phase": "wanted"}}, nil
	}, `status: {phase: wanted}`, `{}`)
	d.Finalize = nil
	c := s.Run(d)
	s.Parent("p", nil)
	things := s.Resource(fixture.Things)
	cluster.EventuallyEvery(s.T, often, s.Limit, "an event that names who writes the status", func(ctx context.Context) (bool, string) {
		_, err := things.Patch(ctx, "p", types.MergePatchType, []byte(`{"status":{"phase":"other"}}`),
			metav1.PatchOptions{FieldManager: "meddler"}, "status")
		if err != nil {
			return false, err.Error()
		}
		events := s.Events("p")
		return slices.ContainsFunc(events, func(e corev1.Event) bool {
			return e.Reason == "ParentFlapping" && strings.Contains(e.Message, "status.phase keeps changing back after every write (a text, then another text)") &&
				strings.Contains(e.Message, `The field manager "meddler" writes it`)
		}), fmt.Sprint(events)
	})
	c.AwaitCondition(v1alpha1.ConditionProgressing, "to say so", is(metav1.ConditionTrue, v1alpha1.ReasonChangedBack, "1 parent does not settle", "status.phase"))
	// Nobody writes any more: the parent is as the hook wants it, and in a minute nothing is known against it.
	c.AwaitCondition(v1alpha1.ConditionProgressing, "to settle", is(metav1.ConditionFalse, v1alpha1.ReasonSettled))
	s.Await(fixture.Things, "p", "to be as wanted", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "phase") == "wanted" })
}

// contendedRollout has another client replace the status again and again, without the condition that the engine keeps of a rollout.
func contendedRollout(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Status: map[string]any{"phase": "wanted"}}, nil
	})
	s.Handle("/sync", script)
	s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{
		{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateRollingInPlace},
	}})
	s.Parent("p", nil)
	updated := func(o *unstructured.Unstructured) bool {
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		return err == nil && len(conditions) > 0
	}
	s.Await(fixture.Things, "p", "to have the condition", updated)
	things, rounds := s.Resource(fixture.Things), 0
	// The condition has another time in each second.
	cluster.EventuallyEvery(s.T, 6*often, s.Limit, "an event that names who writes the status", func(ctx context.Context) (bool, string) {
		if o := s.Get(fixture.Things, "p"); updated(o) {
			o.Object["status"] = map[string]any{"phase": "other"}
			if _, err := things.UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: "meddler"}); err != nil {
				return false, err.Error()
			}
			rounds++
		}
		events := s.Events("p")
		return slices.ContainsFunc(events, func(e corev1.Event) bool { return e.Reason == "ParentFlapping" }), fmt.Sprintf("%d rounds, %v", rounds, events)
	})
	if rounds > 30 {
		s.T.Errorf("the parent was held back after %d rounds", rounds)
	}
}

// updateWhatWasCreated updates controllers in the version in which they were created, as programs do that were written for
// objects without a status.
func updateWhatWasCreated(t *testing.T, e *fixture.Environment) {
	s := e.NewTest(t)
	s.Handle("/sync", fine())
	client := e.Versioned.MetacontrollerV1alpha1().CompositeControllers()
	timely := 0
	for n := range 15 {
		d := fixture.Definition{Kind: fixture.Composite, Sync: s.At("/sync")}
		began := time.Now()
		created, err := client.Create(t.Context(), &v1alpha1.CompositeController{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(s.Name, "-", n)}, Spec: s.CompositeSpec(d),
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		created.Labels = map[string]string{"a": "b"}
		_, err = client.Update(t.Context(), created, metav1.UpdateOptions{})
		switch slow := time.Since(began) > 500*time.Millisecond; {
		case err == nil:
			timely++
		case !apierrors.IsConflict(err) || !slow:
			t.Errorf("updating controller %d: %v", n, err)
		}
		if err := client.Delete(t.Context(), created.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	if timely == 0 {
		t.Error("every update was a conflict")
	}
	cluster.Eventually(t, s.Limit, "the controllers to be gone", func(context.Context) (bool, string) {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		left := slices.DeleteFunc(list.Items, func(c v1alpha1.CompositeController) bool { return !strings.HasPrefix(c.Name, s.Name+"-") })
		return len(left) == 0, fmt.Sprintf("%d are left", len(left))
	})
}
