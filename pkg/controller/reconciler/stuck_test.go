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

package reconciler_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// letGo is the command in messages about the parent a of the scene whose finalizers are those of somebody else and ours.
const letGo = `kubectl patch things.example.com a --namespace gone --type=json -p '[{"op":"test","path":"/metadata/finalizers/1",` +
	`"value":"metacontroller.io/compositecontroller-c"},{"op":"remove","path":"/metadata/finalizers/1"}]'`

// namespaceGone is an API server that serves what a test says, and creates nothing in the namespace "gone", which is being deleted.
type namespaceGone struct {
	serves map[string]string

	mu     sync.Mutex
	events []string
}

// respond is a transport.
func (g *namespaceGone) respond(r *http.Request) (int, string) {
	switch {
	case r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/namespaces/gone/"):
		return http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"it is being terminated","reason":"Forbidden",` +
			`"code":403,"details":{"causes":[{"reason":"NamespaceTerminating"}]}}`
	case strings.Contains(r.URL.Path, "/events"):
		body, _ := io.ReadAll(r.Body)
		var e corev1.Event
		if json.Unmarshal(body, &e) == nil && e.Reason != "" {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.events = append(g.events, e.Namespace+" "+e.InvolvedObject.Kind+" "+e.Reason+": "+e.Message)
		}
		return http.StatusOK, string(body)
	case g.serves[r.URL.Path] != "":
		return http.StatusOK, g.serves[r.URL.Path]
	case strings.HasPrefix(r.URL.Path, "/apis/"):
		return http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	return http.StatusOK, `{}`
}

// TestAParentThatCannotBeFinalizedSaysSoAtOnce has the namespace of a parent, and the parent in it, deleted.
func TestAParentThatCannotBeFinalizedSaysSoAtOnce(t *testing.T) {
	const deleted = `,"namespace":"gone","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[` + theirs + `,` + ours + `]`
	const gadgets = `{"relatedResources":[{"apiVersion":"example.com/v1","resource":"gadgets"}]}`
	for name, tc := range map[string]struct {
		reason string
		// finalize and customize are the responses of the hooks. One that is empty cannot be called.
		finalize, customize string
		serves              map[string]string
		// write is the error of a write.
		write error
		event string
		// condition is what the condition Progressing says, and wayOut that the event has the command.
		condition string
		wayOut    bool
	}{
		"the hook is gone": {
			reason: "It may come back, and the advice to go without it would be rash after a second.",
			event:  "SyncError: Thing gone/a: Sync error: finalize hook failed", condition: "nobody listens",
		},
		"a related kind is served in another version": {
			reason: "Only a change of the hook helps.", finalize: `{"finalized":true}`, customize: gadgets, serves: map[string]string{
				"/apis/example.com":    `{"kind":"APIGroup","apiVersion":"v1","versions":[{"version":"v2"}]}`,
				"/apis/example.com/v2": `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"gadgets","kind":"Gadget"}]}`,
			},
			event: "SyncError: Thing gone/a: Sync error: customize hook failed", condition: "it is served as example.com/v2", wayOut: true,
		},
		"a related kind is gone": {
			reason: "The finalize hook is called, and says that there is more to do.", finalize: `{"finalized":false}`, customize: gadgets,
			event: "RelatedNotServed: Thing gone/a: The cluster does not serve gadgets in example.com/v1", wayOut: true,
		},
		"the hook wants a child": {
			reason: "That will never be.", finalize: `{"finalized":false}`,
			write: errors.Join(errors.New("another child"), refused()), event: "SyncError: Thing gone/a: Sync error: another child; ",
			condition: "because it is being terminated", wayOut: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &namespaceGone{serves: tc.serves}
				s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(api.respond)})
				s.shared.Options.HookTransport = respondents{"/finalize": tc.finalize, "/customize": tc.customize}
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer running.Wait()
				defer stop()
				running.Go(func() { s.shared.Recorder.Run(ctx) })
				s.exist(thing(t, "a", 1, deleted, ""))
				k := &kind{write: func(*reconciler.Sync) error { return tc.write }}
				c := s.start(k, func(c *reconciler.Config) {
					c.Kind = calling{k}
					webhook := func(path string) *v1alpha1.Hook {
						return &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://hook.invalid" + path)}}
					}
					hooks := &v1alpha1.CompositeControllerHooks{Sync: webhook("/sync"), Finalize: webhook("/finalize")}
					if tc.customize != "" {
						hooks.Customize = webhook("/customize")
					}
					c.Definition = reconciler.OfComposite(&v1alpha1.CompositeController{
						ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.CompositeControllerSpec{Hooks: hooks},
					})
				})
				<-time.After(2 * time.Second)
				synctest.Wait()
				api.mu.Lock()
				defer api.mu.Unlock()
				events := strings.Join(api.events, "\n")
				if !strings.Contains(events, "default CompositeController "+tc.event) || strings.Contains(events, letGo) != tc.wayOut {
					t.Errorf("%s The events are %s; want one of the controller that says %q, with the way out: %t", tc.reason, events, tc.event, tc.wayOut)
				}
				h := c.Health()
				if said := strings.Contains(h.FinalizingAt, letGo) && strings.Contains(h.FinalizingAt, tc.condition); h.Finalizing != min(len(tc.condition), 1) ||
					said != (tc.condition != "") {
					t.Errorf("%s %d parents are told: %s", tc.reason, h.Finalizing, h.FinalizingAt)
				}
			})
		})
	}
}

// refused is the error of a creation in a namespace that is being deleted.
func refused() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "w", errors.New("because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// respondents are the responses of hooks by path. One that is empty cannot be called.
type respondents map[string]string

// RoundTrip implements http.RoundTripper.
func (h respondents) RoundTrip(r *http.Request) (*http.Response, error) {
	if h[r.URL.Path] == "" {
		return nil, errors.New("nobody listens")
	}
	return transport(func(*http.Request) (int, string) { return http.StatusOK, h[r.URL.Path] }).RoundTrip(r)
}
