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

// Package migration moves controllers from definitions of Metacontroller's form to the server, back and there again on a real control plane: killed
// after every so many requests, the last of which may have had its effect. There Metacontroller is a StatefulSet whose Pods do nothing.
//
// And it has engines run on both sides of moves, in the middle of rollouts: what stands for the Pods is a program outside of the cluster.
// METACONTROLLER_PEER names the binary of a Metacontroller that runs before this program does.
//
// Before anything stops, the server says what it would change: the audit log of the kube-apiserver shows that it writes nothing for that.
package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/migration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m, cluster.Audit)) }

const (
	// user is a finalizer of a user's.
	user       = "example.com/user"
	namespace  = "metacontroller"
	apiService = "v1alpha1.metacontroller.k8s.io"
	// many is with how many controllers it is measured how long nothing is reconciled.
	many = 100
)

// each is how many parents each of them has: 10,000 in all with FAULTS_LONG=1.
func each() int {
	if os.Getenv("FAULTS_LONG") != "" {
		return 100
	}
	return 1
}

var (
	things     = schema.GroupVersionResource{Group: "migration.example.com", Version: "v1", Resource: "things"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	composites = v1alpha1.SchemeGroupVersion.WithResource("compositecontrollers")
	decorators = v1alpha1.SchemeGroupVersion.WithResource("decoratorcontrollers")
	revisions  = v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions")
)

// scene is a cluster with definitions, and a server beside them.
type scene struct {
	*testing.T
	*cluster.Clients

	plane     *cluster.Cluster
	server    *server.Server
	authority []byte
	hook      *httptest.Server
	namespace string
	// workload is the StatefulSet of Metacontroller.
	workload string

	mu sync.Mutex
	// called is when each controller has called its hook first since it was cleared.
	called map[string]time.Time
}

// newScene makes a scene with the definitions in a file, and a server with variables in its environment.
func newScene(t *testing.T, file, workload string, env ...string) *scene {
	t.Helper()
	s := &scene{T: t, plane: cluster.Shared(t), workload: workload, called: map[string]time.Time{}}
	s.Clients = cluster.NewClients(t, s.plane.Config(t))
	s.hook = httptest.NewServer(http.HandlerFunc(s.sync))
	t.Cleanup(s.hook.Close)
	var args []string
	if each() == 1 { // Ten thousand children that are created at once may keep a Lease from being renewed for seconds.
		args = []string{"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms"}
	}
	s.server = server.Start(t, s.plane, server.Options{Env: env, Args: args})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
		defer cancel()
		if err := registration.Unregister(ctx, s.plane.Config(t), t.Output()); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	var err error
	if s.authority, err = os.ReadFile(servingcert.FilesIn(servingcert.Directory(s.server.DataDir())).CAFile); err != nil {
		t.Fatal(err)
	}
	// What is registered is to be the way to the server alone, as register --beside-definitions makes it.
	s.plane.Kubectl(t, "delete", "apiservice", apiService)
	definitions, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.plane.DefineManifests(t, string(definitions))
	s.plane.AwaitServed(t, cluster.Limit, v1alpha1.SchemeGroupVersion)
	s.plane.Define(t, cluster.CustomResource{Resource: things, Kind: "Thing"})
	s.namespace = s.plane.Namespace(t)
	return s
}

// sync is the hook of all controllers: each has one ConfigMap for each parent.
func (s *scene) sync(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Parent unstructured.Unstructured  `json:"parent"`
		Object *unstructured.Unstructured `json:"object"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	if _, ok := s.called[r.URL.Path]; !ok {
		s.called[r.URL.Path] = time.Now()
	}
	s.mu.Unlock()
	name, from, field := request.Parent.GetName(), request.Parent.GetName(), "children"
	switch {
	case request.Object != nil:
		name, from, field = request.Object.GetName()+"-note", request.Object.GetName(), "attachments"
	case r.URL.Path == "/edited":
		from = "edited"
	}
	_, _ = fmt.Fprintf(w, `{"status":{},%q:[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"from":%q}}]}`, field, name, from)
}

// composite is a CompositeController of the things with the label app: name.
func (s *scene) composite(name string) *unstructured.Unstructured {
	return object("CompositeController", "", name, map[string]any{"spec": map[string]any{
		"generateSelector": true,
		"parentResource": map[string]any{
			"apiVersion": things.GroupVersion().String(), "resource": things.Resource,
			"labelSelector": map[string]any{"matchLabels": map[string]any{"app": name}},
		},
		"childResources": []any{map[string]any{"apiVersion": "v1", "resource": "configmaps", "updateStrategy": map[string]any{"method": "InPlace"}}},
		"hooks":          map[string]any{"sync": map[string]any{"version": "v1", "webhook": map[string]any{"url": s.hook.URL + "/" + name}}},
	}})
}

func object(kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: content}
	o.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func (s *scene) create(r schema.GroupVersionResource, o *unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	created, err := s.Dynamic.Resource(r).Namespace(o.GetNamespace()).Create(s.Context(), o, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return created
}

// thing creates a parent of the controller app.
func (s *scene) thing(app, name string) *unstructured.Unstructured {
	s.Helper()
	o := object("Thing", s.namespace, name, map[string]any{"spec": map[string]any{}})
	o.SetAPIVersion(things.GroupVersion().String())
	o.SetLabels(map[string]string{"app": app})
	return s.create(things, o)
}

// populate creates objects of all kinds, with all that a copy may lose.
func (s *scene) populate() {
	s.Helper()
	for _, name := range []string{"web", "gone"} {
		o := s.composite(name)
		o.SetFinalizers([]string{user})
		o.SetLabels(map[string]string{"team": "web"})
		o = s.create(composites, o)
		_ = unstructured.SetNestedField(o.Object, int64(120), "spec", "resyncPeriodSeconds")
		o, err := s.Dynamic.Resource(composites).Update(s.Context(), o, metav1.UpdateOptions{}) // It has another generation than the first.
		if err != nil {
			s.Fatal(err)
		}
		o.Object["status"] = map[string]any{"observedGeneration": o.GetGeneration()}
		if _, err := s.Dynamic.Resource(composites).UpdateStatus(s.Context(), o, metav1.UpdateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	s.create(decorators, object("DecoratorController", "", "notes", map[string]any{"spec": map[string]any{
		"resources": []any{map[string]any{
			"apiVersion": things.GroupVersion().String(), "resource": things.Resource,
			"labelSelector": map[string]any{"matchLabels": map[string]any{"app": "notes"}},
		}},
		"hooks": map[string]any{"sync": map[string]any{"version": "v1", "webhook": map[string]any{"url": s.hook.URL + "/notes"}}},
	}}))
	s.thing("web", "web")
	for name, owner := range map[string]*unstructured.Unstructured{"things-1": s.thing("unselected", "deleted"), "things-2": s.thing("unselected", "kept")} {
		o := object("ControllerRevision", s.namespace, name, map[string]any{
			"parentPatch": map[string]any{"spec": map[string]any{"image": name}},
			"children":    []any{map[string]any{"apiGroup": "", "kind": "ConfigMap", "names": []any{"a", "b"}}},
		})
		o.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
		}})
		s.create(revisions, o)
	}
}

// install applies Metacontroller's StatefulSet, whose Pods do nothing.
func (s *scene) install(replicas string) {
	s.Helper()
	s.plane.Apply(s.T, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s, namespace: metacontroller}
spec:
  replicas: %[2]s
  serviceName: ""
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: metacontroller, image: example.com/metacontroller}]}
`, s.workload, replicas))
}

// all returns the objects of the group as the cluster serves them, without what is the store's own.
func (s *scene) all() map[string]any {
	s.Helper()
	all := map[string]any{}
	for _, r := range []schema.GroupVersionResource{composites, decorators, revisions} {
		var list *unstructured.UnstructuredList
		cluster.Eventually(s.T, cluster.Limit, "the objects", func(ctx context.Context) (done bool, seen string) {
			var err error
			list, err = s.Dynamic.Resource(r).List(ctx, metav1.ListOptions{}) // The store may take its time while ten thousand children are created.
			return err == nil, fmt.Sprint(err)
		})
		for i := range list.Items {
			o := &list.Items[i]
			unstructured.RemoveNestedField(o.Object, "metadata", "resourceVersion")
			unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
			if status, _, _ := unstructured.NestedMap(o.Object, "status"); len(status) == 0 {
				delete(o.Object, "status")
			}
			delete(o.Object, "kind")
			delete(o.Object, "apiVersion")
			all[r.Resource+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
		}
	}
	return all
}

// steps is where the command prints. It calls what belongs to a step before the step begins.
type steps struct {
	io.Writer

	on map[string]func()
}

func (w steps) Write(line []byte) (int, error) {
	if name, _, ok := strings.Cut(string(line), ": "); ok && w.on[name] != nil {
		w.on[name]()
	}
	return w.Writer.Write(line)
}

type direction func(ctx context.Context, o migration.Options) error

// run runs the command in a direction, with functions that are called before steps begin.
func (s *scene) run(d direction, config *rest.Config, on map[string]func()) error {
	return d(s.Context(), s.options(config, on))
}

func (s *scene) options(config *rest.Config, on map[string]func()) migration.Options {
	return migration.Options{
		Config: config, CABundle: s.authority, Lease: "metacontroller-apiserver", Timeout: cluster.Limit,
		Service: types.NamespacedName{Namespace: namespace, Name: "metacontroller-apiserver"}, Port: s.server.Port(),
		Metacontroller: types.NamespacedName{Namespace: namespace, Name: s.workload}, Out: steps{s.Output(), on}, SkipPlan: true,
	}
}

// refuseWhatIsNotReached has the kube-apiserver reach no server: what was done for that is undone at once, and the way back needs no server.
func (s *scene) refuseWhatIsNotReached() {
	s.Helper()
	o := s.options(s.config(), nil)
	o.Service.Name = "nothing"
	if err := migration.Forward(s.Context(), o); err == nil || !strings.Contains(err.Error(), "there is no Service metacontroller/nothing") {
		s.Errorf("without a Service, the move ends with %v", err)
	}
	o = s.options(s.config(), nil)
	o.Port, o.Timeout = 1, 2*time.Second
	if err := migration.Forward(s.Context(), o); err == nil || !strings.Contains(err.Error(), "to reach this server") {
		s.Errorf("with a port at which nobody listens, the move ends with %v", err)
	}
	if output, err := s.plane.TryKubectl(s.Context(), "", "get", "apiservice", door); err == nil {
		s.Errorf("the APIService is there still, so that no namespace can be deleted:\n%s", output)
	}
	if err := migration.Back(s.Context(), o); err != nil {
		s.Errorf("the way back ends with %v", err)
	}
	if output, err := s.plane.TryKubectl(s.Context(), "", "get", "configmap", migration.ConfigMapName, "--namespace", namespace); err == nil {
		s.Errorf("the state is there still:\n%s", output)
	}
}

// killing lets requests pass until there were as many as it allows. The last one has its effect, and its answer is lost.
type killing struct {
	http.RoundTripper

	left *atomic.Int64
	kill context.CancelFunc
}

var errKilled = errors.New("killed")

func (k killing) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/leases/"+migration.ConfigMapName) || r.URL.Query().Has("watch") {
		return k.RoundTripper.RoundTrip(r) // It is released, so that the next run does not wait until it has expired.
	}
	left := k.left.Add(-1)
	if left < 0 {
		return nil, errKilled
	}
	response, err := k.RoundTripper.RoundTrip(r)
	if left == 0 {
		k.kill()
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errKilled
	}
	return response, err
}

// runKilled runs the command again and again, each time killed after a few more requests, until it ends by itself.
func (s *scene) runKilled(d direction, on map[string]func()) {
	s.Helper()
	for times, requests := 0, int64(5); ; times, requests = times+1, requests+2 {
		ctx, kill := context.WithCancel(s.Context())
		left := &atomic.Int64{}
		left.Store(requests)
		config := rest.CopyConfig(s.plane.Config(s.T))
		config.QPS = -1
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return killing{next, left, kill} })
		err := s.run(func(_ context.Context, o migration.Options) error { return d(ctx, o) }, config, on)
		killed := ctx.Err() != nil
		kill()
		switch {
		case err == nil && !killed:
			s.Logf("it was killed %d times", times)
			if err := s.run(d, s.config(), nil); err != nil { // As after one that was killed when it had done all.
				s.Errorf("run again when it has ended: %v", err)
			}
			return
		case !killed:
			s.Fatal(err)
		}
	}
}

func (s *scene) config() *rest.Config {
	config := rest.CopyConfig(s.plane.Config(s.T))
	config.QPS = -1
	return config
}

// local reports whether the definitions serve the group.
func (s *scene) local() bool {
	s.Helper()
	return s.plane.Kubectl(s.T, "get", "apiservice", apiService, "--output=jsonpath={.spec.service.name}") == ""
}

func (s *scene) replicas() string {
	s.Helper()
	return s.plane.Kubectl(s.T, "get", "statefulset", s.workload, "--namespace", namespace, "--output=jsonpath={.spec.replicas}")
}

// child returns the UID of a child, once it is there.
func (s *scene) child(name string) types.UID {
	s.Helper()
	var uid types.UID
	cluster.Eventually(s.T, cluster.Limit, "the child "+name, func(ctx context.Context) (bool, string) {
		o, err := s.Dynamic.Resource(configMaps).Namespace(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			uid = o.GetUID()
		}
		return err == nil, fmt.Sprint(err)
	})
	return uid
}

func TestControllersMoveToTheServerAndBack(t *testing.T) {
	s := newScene(t, "testdata/definitions.yaml", "old")
	s.install("1")
	s.populate()
	s.refuseWhatIsNotReached()
	s.refuseWhatChanged()
	before := s.all()
	s.runKilled(migration.Back, nil) // It undoes what was done before the switch.
	if !s.local() || s.replicas() != "1" {
		t.Errorf("the definitions serve the group: %t, and Metacontroller has %s replicas", s.local(), s.replicas())
	}
	version := s.version()
	same := sync.OnceFunc(func() { // When it thaws again, controllers run.
		if diff := cmp.Diff(before, s.all()); diff != "" {
			t.Errorf("the objects are others after the move (-before +after):\n%s", diff)
		}
		if len(s.called) > 0 {
			t.Errorf("controllers run during the move: %v", s.called)
		}
	})
	s.runKilled(migration.Forward, map[string]func(){"thaw": same})
	if s.local() || s.replicas() != "0" {
		t.Errorf("the definitions serve the group: %t, and Metacontroller has %s replicas", s.local(), s.replicas())
	}
	child := s.child("web")
	s.watchFrom(version)
	s.knockAtTheDoor()
	s.changeThere()
	changed := s.all()
	s.runKilled(migration.Back, nil)
	s.comparedBack(changed)
	if !s.local() || s.replicas() != "1" {
		t.Errorf("the definitions serve the group: %t, and Metacontroller has %s replicas", s.local(), s.replicas())
	}
	s.measure()
	if s.child("web") != child {
		t.Error("the child was created again")
	}
	after := s.all()
	s.runKilled(migration.Finish, nil)
	s.finished(after, child)
}

// refuseWhatChanged has the objects changed between the copy and the switch, and looks at how others are kept from that.
func (s *scene) refuseWhatChanged() {
	s.Helper()
	label := func(manager string) error {
		_, err := s.Dynamic.Resource(composites).Patch(s.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"late":"yes"}}}`),
			metav1.PatchOptions{FieldManager: manager})
		return err
	}
	err := s.run(migration.Forward, s.config(), map[string]func(){"switch": func() {
		if err := label("kubectl"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "metacontroller-apiserver migrate") {
			s.Errorf("a write during the move ends with %v", err)
		}
		if err := label("metacontroller-apiserver-migrate"); err != nil { // The freeze takes it for the move's own.
			s.Error(err)
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "they were changed since they were copied") {
		s.Errorf("with an object that changed, the move ends with %v", err)
	}
	if !s.local() {
		s.Error("the server serves objects that are not the latest")
	}
	if err := s.run(migration.Finish, s.config(), nil); err == nil {
		s.Error("the definitions are deleted while they serve the group")
	}
}

// version is that of the list of CompositeControllers.
func (s *scene) version() string {
	s.Helper()
	list, err := s.Dynamic.Resource(composites).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return list.GetResourceVersion()
}

// watchFrom goes on with a watch that began before the move, as each client does when its connection has ended.
func (s *scene) watchFrom(version string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	watching, err := s.Dynamic.Resource(composites).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err == nil {
		defer watching.Stop()
		s.create(composites, s.composite("watched"))
		event := <-watching.ResultChan()
		err = apierrors.FromObject(event.Object)
		s.plane.Kubectl(s.T, "delete", "compositecontroller", "watched")
	}
	if !apierrors.IsResourceExpired(err) {
		s.Errorf("a watch that goes on at version %s, while the server is at %s, is not told to list again: %v", version, s.version(), err)
	}
}

// knockAtTheDoor looks at who may write objects as they are, and when.
func (s *scene) knockAtTheDoor() {
	s.Helper()
	door := composites
	door.Group = migration.Group
	o, err := s.Dynamic.Resource(composites).Get(s.Context(), "web", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.Dynamic.Resource(door).Update(s.Context(), o, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		s.Errorf("while controllers run, a write ends with %v", err)
	}
	o.SetUID("another")
	if _, err := s.Dynamic.Resource(door).Update(s.Context(), o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsConflict(err) {
		s.Errorf("a write of another object of the name ends with %v", err)
	}
	const editor = "migration-editor"
	s.plane.Bind(s.T, editor, "admin", "", editor)
	config := s.config()
	config.Impersonate.UserName = editor
	editing := cluster.NewClients(s.T, config).Dynamic.Resource(door)
	if _, err := editing.List(s.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		s.Errorf("a user with ClusterRole admin reads behind the door: %v", err)
	}
	s.plane.Apply(s.T, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: migration-all-but-escalate},
		rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list, create, update, patch, delete]}]}`)
	s.plane.Bind(s.T, "migration-more", "migration-all-but-escalate", "", editor)
	cluster.Eventually(s.T, cluster.Limit, "the user to read behind the door", func(ctx context.Context) (bool, string) {
		_, err := editing.List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	if _, err := editing.Update(s.Context(), o, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "escalate") {
		s.Errorf("a user without the verb escalate writes behind the door: %v", err)
	}
}

// changeThere changes, creates and deletes objects while the server has them.
func (s *scene) changeThere() {
	s.Helper()
	patch := func(r schema.GroupVersionResource, name, text string) {
		if _, err := s.Dynamic.Resource(r).Patch(s.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	patch(composites, "web", `{"metadata":{"labels":{"team":"other"}},"spec":{"resyncPeriodSeconds":60}}`)
	patch(decorators, "notes", `{"spec":{"paused":true,"resyncPeriodSeconds":100000}}`)
	// The definitions of DecoratorControllers drop the one, and take no such number.
	if err := s.run(migration.Back, s.config(), nil); err == nil || !strings.Contains(err.Error(), "cannot have 2 values") || s.local() {
		s.Errorf("with a field that the definitions drop, the way back ends with %v", err)
	}
	patch(decorators, "notes", `{"spec":{"paused":null,"resyncPeriodSeconds":90}}`)
	patch(composites, "gone", `{"metadata":{"finalizers":null}}`)
	s.plane.Kubectl(s.T, "delete", "compositecontroller", "gone")
	s.create(composites, s.composite("new"))
}

// comparedBack compares what the definitions have with what the server had.
func (s *scene) comparedBack(want map[string]any) {
	s.Helper()
	own := func(all map[string]any) map[string]any {
		for key, o := range all {
			metadata := o.(map[string]any)["metadata"].(map[string]any)
			delete(metadata, "generation") // The definitions count it up for what was changed meanwhile.
			if strings.HasSuffix(key, "/new") {
				delete(metadata, "uid")
				delete(metadata, "annotations")
				delete(metadata, "creationTimestamp")
			}
			delete(o.(map[string]any), "status") // The engine goes on writing it until it is stopped.
		}
		return all
	}
	if diff := cmp.Diff(own(want), own(s.all())); diff != "" {
		s.Errorf("the definitions have other objects than the server had (-server +definitions):\n%s", diff)
	}
}

// measure moves many controllers, and says for how long none of them was reconciled.
func (s *scene) measure() {
	s.Helper()
	for i := range many {
		name := fmt.Sprintf("many-%d", i)
		for j := range each() {
			s.thing(name, fmt.Sprintf("%s-%d", name, j))
		}
		s.create(composites, s.composite(name))
	}
	var began, planned, stopped time.Time
	o := s.options(s.config(), map[string]func(){
		"plan":   func() { began = time.Now() },
		"freeze": func() { planned = time.Now() },
		"stop": func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.called) // The plan has called them.
			stopped = time.Now()
		},
	})
	o.SkipPlan, o.AllowChanges, o.PlanTimeout = false, true, 10*cluster.Limit // They have no children yet.
	if err := migration.Forward(s.Context(), o); err != nil {
		s.Fatal(err)
	}
	s.Logf("with %d controllers of %d parents each, which would all get children, the plan took %s", many, each(), planned.Sub(began).Round(time.Millisecond))
	cluster.Eventually(s.T, cluster.Limit, "all controllers to call their hooks", func(context.Context) (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.called) > many, fmt.Sprint(len(s.called))
	})
	cluster.Eventually(s.T, 5*cluster.Limit, "all children", func(ctx context.Context) (bool, string) {
		list, err := s.Dynamic.Resource(configMaps).Namespace(s.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || list.GetRemainingItemCount() == nil {
			return false, fmt.Sprint(err)
		}
		return *list.GetRemainingItemCount() >= int64(many*each()), fmt.Sprint(*list.GetRemainingItemCount())
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	first, last := time.Time{}, time.Time{}
	for _, at := range s.called {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	s.Logf("with %d controllers of %d parents each, the first hook was called %s after Metacontroller was stopped, and the last controller called its first after %s",
		many, each(), first.Sub(stopped).Round(time.Millisecond), last.Sub(stopped).Round(time.Millisecond))
}

// finished looks at what is left when the definitions are gone.
func (s *scene) finished(before map[string]any, child types.UID) {
	s.Helper()
	if found := s.plane.Kubectl(s.T, "get", "crd", "--output=name"); strings.Contains(found, "metacontroller.k8s.io") {
		s.Errorf("there are definitions: %s", found)
	}
	if found := s.plane.Kubectl(s.T, "get", "apiservice", "--output=name"); strings.Contains(found, "migration.metacontroller") || strings.Contains(found, "hidden") {
		s.Errorf("there are APIServices of the move: %s", found)
	}
	uids := func(all map[string]any) map[string]any {
		found := map[string]any{}
		for key, o := range all {
			found[key], _, _ = unstructured.NestedString(o.(map[string]any), "metadata", "uid")
		}
		return found
	}
	if diff := cmp.Diff(uids(before), uids(s.all())); diff != "" {
		s.Errorf("the objects changed with the definitions (-before +after):\n%s", diff)
	}
	if s.child("web") != child {
		s.Error("the child was created again")
	}
	if list, err := s.Dynamic.Resource(things).Namespace(s.namespace).List(s.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != many*each()+3 {
		s.Errorf("there are %d parents, and the error is %v", len(list.Items), err)
	}
	s.collected()
}

// collected has the garbage collector, which knew the former objects, collect the revision of one parent. It leaves that of another one.
func (s *scene) collected() {
	s.Helper()
	if err := s.Dynamic.Resource(things).Namespace(s.namespace).Delete(s.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	there := s.Dynamic.Resource(revisions).Namespace(s.namespace)
	cluster.Eventually(s.T, cluster.Limit, "the revision of a deleted parent to be collected", func(ctx context.Context) (bool, string) {
		_, err := there.Get(ctx, "things-1", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	if _, err := there.Get(s.Context(), "things-2", metav1.GetOptions{}); err != nil {
		s.Errorf("the revision of a parent that is there: %v", err)
	}
}
