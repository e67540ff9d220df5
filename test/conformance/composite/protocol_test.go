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
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testRequests looks at the requests that a real server sends; that every body is right to the byte is tested with the
// golden bodies of package wire.
func testRequests(t *testing.T, s *fixture.Environment) {
	for version, key := range map[v1alpha1.HookVersion]string{v1alpha1.HookVersionV1: "child", v1alpha1.HookVersionV2: "NS/child"} {
		t.Run(string(version), func(t *testing.T) {
			st := newStage(t, s)
			st.script.Want(fixture.ConfigMap("child", map[string]any{"a": "1"}))
			st.run(func(spec *v1alpha1.CompositeControllerSpec) {
				spec.Hooks.Sync.Version = &version
				spec.ChildResources = append(spec.ChildResources, fixture.Child{Resource: fixture.Deployments, Method: v1alpha1.ChildUpdateInPlace}.OfComposite())
			})
			st.Parent("p", map[string]any{})
			want := strings.ReplaceAll(key, "NS", st.Namespace)
			var body map[string]any
			cluster.Eventually(t, limit, "a request that shows the child as "+want, func(context.Context) (bool, string) {
				requests := st.Requests("/sync")
				if len(requests) == 0 {
					return false, "no request"
				}
				last := requests[len(requests)-1]
				if err := json.Unmarshal(last.Body, &body); err != nil {
					return false, err.Error()
				}
				_, shown, err := unstructured.NestedMap(body, "children", "ConfigMap.v1", want)
				return shown, fmt.Sprint(string(last.Body), err)
			})
			if got := slices.Sorted(maps.Keys(body)); !slices.Equal(got, []string{"children", "controller", "finalizing", "parent", "related"}) {
				t.Errorf("the request has the keys %v", got)
			}
			if deployments, ok, _ := unstructured.NestedMap(body, "children", "Deployment.apps/v1"); !ok || len(deployments) != 0 {
				t.Errorf("a declared kind without children is shown as %v, want an empty object", deployments)
			}
			if _, ok, _ := unstructured.NestedSlice(body, "parent", "metadata", "managedFields"); ok {
				t.Error("the parent is sent with managedFields")
			}
			if status, ok, _ := unstructured.NestedMap(body, "controller", "status"); !ok || len(status) != 0 {
				t.Errorf("the controller is sent with the status %v, want an empty object", status)
			}
		})
	}
}

func testStrictness(t *testing.T, s *fixture.Environment) {
	const body = `{"status":{"ok":"yes"},"children":[],"surprise":1}`
	for version, refused := range map[v1alpha1.HookVersion]bool{v1alpha1.HookVersionV1: false, v1alpha1.HookVersionV2: true} {
		t.Run(string(version), func(t *testing.T) {
			st := newStage(t, s)
			st.Handle("/sync", hooktest.Body("application/json", body))
			st.run(func(spec *v1alpha1.CompositeControllerSpec) { spec.Hooks.Sync.Version = &version })
			st.Parent("p", map[string]any{})
			if refused {
				st.AwaitEvent("p", "Warning", "SyncError", "surprise")
				return
			}
			st.Await(fixture.Things, "p", "to get its status", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "ok") == "yes" })
		})
	}
}

func testEtag(t *testing.T, s *fixture.Environment) {
	for _, code := range []int{http.StatusNotModified, http.StatusPreconditionFailed} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			st := newStage(t, s)
			st.Handle("/sync", hooktest.Tagged(`"one"`, code, map[string]any{
				"status": map[string]any{"response": "tagged"}, "children": []any{fixture.ConfigMap("child", nil).Object},
			}))
			st.run(func(spec *v1alpha1.CompositeControllerSpec) {
				enabled := true
				spec.Hooks.Sync.Webhook.Etag = &v1alpha1.WebhookEtagConfig{Enabled: &enabled}
			})
			st.Parent("p", map[string]any{})
			st.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
			cluster.Eventually(t, limit, "a request with the tag", func(context.Context) (bool, string) {
				requests := st.Requests("/sync")
				return len(requests) > 1 && requests[len(requests)-1].Header.Get("If-None-Match") == `"one"`, fmt.Sprint(len(requests))
			})
			// The response without a body stands for the former one: the child must not be deleted.
			st.Delete(fixture.ConfigMaps, "child")
			st.Await(fixture.ConfigMaps, "child", "to be created again", cluster.Exists)
		})
	}
}

func testStatusCode(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.Handle("/sync", hooktest.Status(http.StatusTeapot, "short and stout"))
	st.run(nil)
	st.Parent("p", map[string]any{})
	st.AwaitEvent("p", "Warning", "SyncError", "unsupported status code: 418 body: short and stout")
}

func testTLS(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s, hooktest.WithTLS(), hooktest.WithClientCertificates())
	stranger := hooktest.NewServer(t, hooktest.WithTLS())
	var authorization string
	st.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		hooktest.JSON(map[string]any{"status": map[string]any{"token": authorization}, "children": []any{}}).ServeHTTP(w, r)
	}))
	certificate, key := st.Hook.ClientCertificate()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Data: map[string][]byte{
		"tls.crt": certificate, "tls.key": key, "ca.crt": []byte(stranger.CABundle()), "token": []byte(" one \n"),
	}}
	secrets := s.Kube.CoreV1().Secrets(st.Namespace)
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	st.run(func(spec *v1alpha1.CompositeControllerSpec) {
		url, second := st.Hook.URL("/sync"), int32(1)
		spec.Hooks.Sync.Webhook.URL = &url
		spec.ResyncPeriodSeconds = &second
		reference := v1alpha1.SecretReference{Namespace: st.Namespace, Name: "hook"}
		spec.EndpointConfigs = []v1alpha1.EndpointConfig{
			{Host: "elsewhere.example.com"},
			{Host: strings.ToUpper(st.Hook.Host()), WebhookSecurity: v1alpha1.WebhookSecurity{
				CABundle:      &v1alpha1.CABundle{SecretRef: &v1alpha1.CABundleReference{Namespace: st.Namespace, Name: "hook"}},
				ClientTLS:     &v1alpha1.ClientTLS{SecretRef: reference},
				Authorization: &v1alpha1.WebhookAuthorization{SecretRef: v1alpha1.SecretKeyReference{Namespace: st.Namespace, Name: "hook", Key: "token"}},
			}},
		}
	})
	st.Parent("p", map[string]any{})
	// The bundle is a stranger's: the event says what to do. With the right one it works from the next call on.
	st.AwaitEvent("p", "Warning", "SyncError", "caBundle")
	secret.Data["ca.crt"] = []byte(st.Hook.CABundle())
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	st.Await(fixture.Things, "p", "to be synced with the token", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "token") == "Bearer one" })
	secret.Data["token"] = []byte("two")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	st.Await(fixture.Things, "p", "to be synced with the new token", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "token") == "Bearer two" })
}

// testOperations looks at the metrics of docs/reference/contract.md#s19.2 and the probes.
func testOperations(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Respond(func(*fixture.Call) (*fixture.Reply, error) { return &fixture.Reply{}, nil })
	st.run(nil)
	st.Parent("p", map[string]any{})
	st.awaitCalls(1)
	for _, probe := range []string{"/healthz", "/livez", "/readyz"} {
		if code, err := s.Server.Get(t.Context(), probe); err != nil || code != http.StatusOK {
			t.Errorf("%s responds %d, %v", probe, code, err)
		}
	}
	cluster.Eventually(t, limit, "the hook's metrics", func(ctx context.Context) (bool, string) {
		text, err := s.Server.Read(ctx, "/metrics")
		if err != nil {
			return false, err.Error()
		}
		for _, name := range []string{
			"metacontroller_sync_requests_total", "metacontroller_sync_request_duration_histogram_seconds", "metacontroller_sync_in_flight_requests",
		} {
			if !strings.Contains(text, name+"{") && !strings.Contains(text, name+"_count{") {
				return false, "no " + name
			}
		}
		return strings.Contains(text, `controller_name="`+st.Name+`"`), "no series of the controller"
	})
}
