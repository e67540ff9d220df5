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

package status

import (
	"bytes"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
}

func TestStatus(t *testing.T) {
	// A finalize hook is given a minute, and a large fleet takes its time.
	e := fixture.SetUp(t, fixture.Options{Limit: 5 * time.Minute})
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		// Normal events of the whole process have one budget, which the others spend.
		t.Run(fmt.Sprintf("%s/AnEventTellsOfRecovery", kind), func(t *testing.T) { tellOfRecovery(&stage{Test: e.NewTest(t), kind: kind}) })
	}
	t.Run("Fleet", func(t *testing.T) { followFleet(t, e) })
	t.Run("AClientUpdatesWhatItCreated", func(t *testing.T) { updateWhatWasCreated(t, e) })
	for _, kind := range []fixture.Kind{fixture.Composite, fixture.Decorator} {
		for name, run := range map[string]func(*stage){
			"DeadHook": deadHook, "MissingSecret": missingSecret, "MissingKind": missingKind, "FailingSyncs": failingSyncs,
			"KubectlWait": kubectlWait, "HooksDoNotSeeIt": unseen, "Children": children, "Finalizing": finalizing,
			"Unsettled": unsettled, "FinalizedEarly": finalizedEarly, "Contended": contended, "Flapping": flapping, "Taken": taken,
			"Restless": restless, "RelatedToItself": relatedToItself, "Waiting": waiting,
		} {
			t.Run(fmt.Sprintf("%s/%s", kind, name), func(t *testing.T) {
				t.Parallel()
				run(&stage{Test: e.NewTest(t), kind: kind})
			})
		}
	}
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

func tellOfRecovery(s *stage) {
	var works atomic.Bool
	s.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !works.Load() {
			http.Error(w, "not yet", http.StatusInternalServerError)
			return
		}
		fine().ServeHTTP(w, r)
	}))
	s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync")})
	s.Parent("p", nil)
	s.AwaitEvent("p", corev1.EventTypeWarning, "SyncError", "not yet")
	works.Store(true)
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
	c := s.Declare(fixture.Definition{Kind: s.kind, Sync: s.At("/sync")})
	object := strings.ToLower(c.Kind) + "/" + c.Name
	s.Kubectl(s.T, "wait", "--for=condition=Ready", object, "--timeout", s.Limit.String())
	s.Kubectl(s.T, "wait", "--for=condition=Established", object, "--timeout", s.Limit.String())
	c.Patch(`{"spec":{"hooks":{"sync":{"webhook":{"url":"http://` + freeport.Address(freeport.Find(s.T)) + `/"}}}}}`)
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

// children has the hook return a field that no ConfigMap has, and then a change that OnDelete leaves undone.
func children(s *stage) {
	script := s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		child := fixture.ConfigMap(c.Parent.GetName(), map[string]any{"n": fixture.Value(c.Parent, "spec", "n")})
		child.Object["dta"] = map[string]any{"n": "1"}
		return &fixture.Reply{Children: []*hook.Object{child}}, nil
	})
	s.Handle("/sync", script)
	s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Children: []fixture.Child{{Resource: fixture.ConfigMaps}}})
	s.Parent("p", map[string]any{"n": "1"})
	s.AwaitEvent("p", corev1.EventTypeWarning, "ChildWarning", `unknown field "dta"`)
	s.Await(fixture.ConfigMaps, "p", "to be created", cluster.Exists)
	s.Patch(fixture.Things, "p", `{"spec":{"n":"2"}}`)
	s.AwaitEvent("p", corev1.EventTypeWarning, "ChildNotUpdated", "ConfigMap "+s.Namespace+"/p (data.n)")
}

// finalizing has a finalize hook that does not end, and then does.
func finalizing(s *stage) {
	var mu sync.Mutex
	done := false
	script := s.NewScript(s.kind)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		return &fixture.Reply{Finalized: done && c.Finalizing}, nil
	})
	s.Handle("/sync", script)
	c := s.Run(fixture.Definition{Kind: s.kind, Sync: s.At("/sync"), Finalize: s.At("/sync")})
	s.Parent("p", nil)
	s.Await(fixture.Things, "p", "to be kept", func(o *unstructured.Unstructured) bool { return o != nil && len(o.GetFinalizers()) > 0 })
	s.Delete(fixture.Things, "p")
	c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to be true", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
	s.AwaitEvent("p", corev1.EventTypeWarning, "FinalizeWaits", "metadata.finalizers")
	c.AwaitCondition(v1alpha1.ConditionProgressing, "to say so", is(metav1.ConditionTrue, v1alpha1.ReasonFinalizing, "for 1 parent, and"))
	mu.Lock()
	done = true
	mu.Unlock()
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
