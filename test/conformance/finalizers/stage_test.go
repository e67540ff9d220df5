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

// Package finalizers checks what is said, and can be done, when something keeps a controller's finalizer on an object. That it is there exactly as
// long as the controller finalizes the object, through edits, kills and versions that are no longer served, is what simulated histories check.
package finalizers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// TestFinalizers has one server for all.
func TestFinalizers(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"Denied", removalIsDenied},
		{"NamespacesWithRollingUpdatesGo", namespaceGoes},
		{"ChildrenThatStay", childrenStay},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
	fixture.Table[*stage]{
		Both: map[string]func(*stage){
			"ParentsThatOptOutLeaveNoChildBehind":             optOutLeavesNoChildBehind,
			"NamespacesSayWhatKeepsThem/WhoseHookWantsAChild": wantsAChildInItsNamespace,
			"NamespacesSayWhatKeepsThem/WhoseHookFails":       failsInItsNamespace,
			"RelatedKindsThatAreGone":                         relatedKindIsGone,
		},
		Webhooks: map[string]string{"ParentsThatOptOutLeaveNoChildBehind": "the hook changes a child while it is called"},
		Stage: func(t *testing.T, kind fixture.Kind, inline bool) *stage {
			s := newStage(t, e, kind, fixture.Things)
			s.inline = inline
			return s
		},
	}.Run(t)
}

// A stage is a controller with a finalize hook, which finalizes at once.
type stage struct {
	*fixture.Test

	script     *fixture.Script
	definition fixture.Definition
	finalizer  string
	// inline says that behaves makes inline hooks.
	inline bool
}

func newStage(t *testing.T, e *fixture.Environment, kind fixture.Kind, parents ...schema.GroupVersionResource) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), script: e.NewScript(kind)}
	s.script.Want()
	s.Handle("/hook", s.script)
	s.definition = fixture.Definition{Kind: kind, Parents: parents, Sync: s.At("/hook"), Finalize: s.At("/hook")}
	s.finalizer = s.Finalizer(s.definition)
	return s
}

// behaves has the script respond, or inline hooks that are given as text.
func (s *stage) behaves(respond func(*fixture.Call) (*fixture.Reply, error), sync, finalize string) {
	s.T.Helper()
	s.script.Respond(respond)
	if s.inline {
		s.definition.Sync = fixture.Inline(s.T, s.definition.Kind, sync)
		s.definition.Finalize = fixture.Inline(s.T, s.definition.Kind, finalize)
	}
}

func (s *stage) carries(o *unstructured.Unstructured) bool {
	return fixture.HasFinalizer(o, s.finalizer)
}

func (s *stage) released(o *unstructured.Unstructured) bool { return o != nil && !s.carries(o) }

// A warden is an admission webhook that refuses to have the finalizer taken off the Things of a namespace while it is closed.
type warden struct {
	finalizer string

	mu      sync.Mutex
	open    bool
	refused int
}

func (s *stage) newWarden() *warden {
	s.T.Helper()
	w := &warden{finalizer: s.finalizer}
	web := hooktest.NewServer(s.T, hooktest.WithTLS())
	web.Handle("/", w)
	hooks := s.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(s.T.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "warden." + fixture.Group,
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new(web.URL("/")), CABundle: []byte(web.CABundle())},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.Namespace}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{fixture.Group}, APIVersions: []string{"*"}, Resources: []string{fixture.Things.Resource},
				},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		if err := hooks.Delete(context.WithoutCancel(s.T.Context()), s.Name, metav1.DeleteOptions{}); err != nil {
			s.T.Errorf("deleting the webhook: %v", err)
		}
	})
	s.awaitWarden(w)
	return w
}

// awaitWarden waits until the API server calls the webhook.
func (s *stage) awaitWarden(w *warden) {
	s.T.Helper()
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": fixture.Things.GroupVersion().String(), "kind": "Thing",
		"metadata": map[string]any{"name": "probe", "finalizers": []any{s.finalizer}},
	}}
	s.Create(fixture.Things, probe)
	cluster.Eventually(s.T, s.Limit, "the webhook to refuse", func(ctx context.Context) (bool, string) {
		probe.SetFinalizers(nil)
		_, err := s.Resource(fixture.Things).Update(ctx, probe, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return false, "the update is accepted"
		}
		live := s.Get(fixture.Things, "probe")
		probe.SetResourceVersion(live.GetResourceVersion())
		return w.attempts() > 0, err.Error()
	})
	w.set(true)
	s.Patch(fixture.Things, "probe", `{"metadata":{"finalizers":null}}`)
	s.Delete(fixture.Things, "probe")
	w.set(false)
}

// set opens or closes it, and starts to count anew.
func (w *warden) set(open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open, w.refused = open, 0
}

// attempts returns how often a finalizer was tried to be taken off and stayed.
func (w *warden) attempts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// ServeHTTP answers an AdmissionReview.
func (w *warden) ServeHTTP(writer http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(writer, fmt.Sprintf("this is no review: %v", err), http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if w.finalizerOf(review.Request.OldObject.Raw) && !w.finalizerOf(review.Request.Object.Raw) {
		w.mu.Lock()
		if response.Allowed = w.open; !w.open {
			w.refused++
			response.Result = &metav1.Status{Message: "the warden is closed", Code: http.StatusForbidden}
		}
		w.mu.Unlock()
	}
	review.Request, review.Response = nil, response
	hooktest.JSON(review).ServeHTTP(writer, r)
}

func (w *warden) finalizerOf(raw []byte) bool {
	var o metav1.PartialObjectMetadata
	return json.Unmarshal(raw, &o) == nil && slices.Contains(o.Finalizers, w.finalizer)
}
