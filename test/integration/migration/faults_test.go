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

package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/migration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

const door = "v1alpha1." + migration.Group

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// TestMovesLookAgainAtWhatOthersDo has others change in the middle of a move what the move has looked at or done before.
func TestMovesLookAgainAtWhatOthersDo(t *testing.T) {
	s := newScene(t, "testdata/definitions.yaml", "restless")
	s.install("1")
	s.populate()
	s.askForAnotherLease()
	s.goBackWithoutTheServer()
	s.startMetacontrollerMeanwhile()
	s.rehearseRemovals()
	s.nameOtherWorkloads()
	s.addAFieldMeanwhile()
	s.goBackInSpiteOfDeletions()
	s.runTwice()
	s.changeMindWhileFinishing()
	s.moved()
	if err := s.run(migration.Finish, s.config(), nil); err != nil {
		t.Fatal(err)
	}
}

// moved moves unless this server serves the group.
func (s *scene) moved() {
	s.Helper()
	if !s.local() {
		return
	}
	if err := s.run(migration.Forward, s.config(), nil); err != nil {
		s.Fatal(err)
	}
}

// expectError looks for words in an error.
func (s *scene) expectError(err error, what string, words ...string) {
	s.Helper()
	s.Logf("%s: %v", what, err)
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			s.Errorf("%s ends with %v, without %q", what, err, w)
		}
	}
}

// askForAnotherLease has a move take a Lease that is not that of the server.
func (s *scene) askForAnotherLease() {
	s.Helper()
	o := s.options(s.config(), nil)
	o.Lease = "another"
	s.expectError(migration.Forward(s.Context(), o), "a move with another Lease", "has Lease metacontroller/metacontroller-apiserver", "--leader-elect-resource-name")
	if output, err := s.plane.TryKubectl(s.Context(), "", "get", "lease", "another", "--namespace", namespace); err == nil {
		s.Errorf("it was taken: %s", output)
	}
}

// goBackWithoutTheServer goes back before controllers ran here, while the server cannot be reached. Only what it has copied is left.
func (s *scene) goBackWithoutTheServer() {
	s.Helper()
	s.plane.Kubectl(s.T, "delete", "apiservice", door)
	o := s.options(s.config(), nil)
	o.Port, o.Timeout = 1, 2*time.Second
	s.expectError(migration.Back(s.Context(), o), "the way back without the server", "empty: ", "--ca-file")
	if err := s.run(migration.Back, s.config(), nil); err != nil || !s.local() || s.replicas() != "1" {
		s.Errorf("with the server it ends with %v, the definitions serve the group: %t, and Metacontroller has %s replicas", err, s.local(), s.replicas())
	}
}

// counting counts what is put behind the door, but for dry runs.
type counting struct {
	http.RoundTripper

	puts *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, migration.DoorPath) && !r.URL.Query().Has("dryRun") {
		c.puts.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// startMetacontrollerMeanwhile has somebody start Metacontroller again before the switch. The move that goes on stops it, and copies nothing again.
func (s *scene) startMetacontrollerMeanwhile() {
	s.Helper()
	err := s.run(migration.Forward, s.config(), map[string]func(){"delta": func() {
		s.plane.Kubectl(s.T, "scale", "statefulset", s.workload, "--namespace", namespace, "--replicas=1")
	}})
	s.expectError(err, "a move while Metacontroller runs again", "started Metacontroller again", "restless")
	if !s.local() {
		s.Fatal("two engines run")
	}
	var puts atomic.Int64
	config := s.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &puts} })
	before := s.all()
	err = s.run(migration.Forward, config, map[string]func(){"switch": func() { s.remove("web", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, "") }})
	if err != nil || s.local() || s.replicas() != "0" {
		s.Fatalf("run again it ends with %v, the definitions serve the group: %t, and Metacontroller has %s replicas", err, s.local(), s.replicas())
	}
	if n := puts.Load(); n > 0 {
		s.Errorf("%d of %d objects were put again, which were there", n, len(before))
	}
}

// remove has the server remove an object from its store.
func (s *scene) remove(name string, o metav1.DeleteOptions, query string) {
	s.Helper()
	found, err := s.Dynamic.Resource(composites).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	o.Preconditions = &metav1.Preconditions{UID: new(found.GetUID())}
	body, err := json.Marshal(o)
	if err != nil {
		s.Fatal(err)
	}
	request := s.Kube.Discovery().RESTClient().Delete().AbsPath(migration.DoorPath, "compositecontrollers", name).Body(body)
	if query != "" {
		request = request.Param("dryRun", query)
	}
	if _, err := request.DoRaw(s.Context()); err != nil {
		s.Errorf("a removal in a dry run ends with %v", err)
	}
}

// rehearseRemovals removes an object in a dry run while controllers run.
func (s *scene) rehearseRemovals() {
	s.Helper()
	s.moved()
	s.remove("web", metav1.DeleteOptions{}, metav1.DryRunAll)
	if _, err := s.Dynamic.Resource(composites).Get(s.Context(), "web", metav1.GetOptions{}); err != nil {
		s.Errorf("after a removal in a dry run: %v", err)
	}
}

// nameOtherWorkloads goes back with another Metacontroller than that which was stopped, and while there is none.
func (s *scene) nameOtherWorkloads() {
	s.Helper()
	s.moved()
	o := s.options(s.config(), nil)
	o.Metacontroller.Name = "other"
	s.expectError(migration.Back(s.Context(), o), "the way back to another Metacontroller", "StatefulSet/metacontroller/restless")
	s.plane.Kubectl(s.T, "delete", "statefulset", s.workload, "--namespace", namespace)
	s.expectError(s.run(migration.Back, s.config(), nil), "the way back to none", "check: there is neither a StatefulSet nor a Deployment metacontroller/restless")
	if s.local() {
		s.Fatal("the definitions serve the group, and nothing runs")
	}
	s.install("0")
}

// addAFieldMeanwhile has somebody write what the definitions drop, after it was looked for and before nobody may write. Then this server goes on.
func (s *scene) addAFieldMeanwhile() {
	s.Helper()
	s.moved()
	pause := func(value string) {
		patch := []byte(`{"spec":{"paused":` + value + `}}`)
		// The server may see that a freeze has ended some moments after it has seen the freeze.
		cluster.Eventually(s.T, cluster.Limit, "somebody to write", func(ctx context.Context) (bool, string) {
			_, err := s.Dynamic.Resource(decorators).Patch(ctx, "notes", types.MergePatchType, patch, metav1.PatchOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	err := s.run(migration.Back, s.config(), map[string]func(){"freeze": func() { pause("true") }})
	s.expectError(err, "the way back with a field that came late", "cannot have 1 values")
	if s.local() {
		s.Fatal("the field is lost")
	}
	if err := s.run(migration.Forward, s.config(), nil); err != nil {
		s.Error(err)
	}
	pause("null")
}

// goBackInSpiteOfDeletions goes back while an object is being deleted, loses the way to the server on it, and starts no Metacontroller.
func (s *scene) goBackInSpiteOfDeletions() {
	s.Helper()
	s.moved()
	s.plane.Kubectl(s.T, "delete", "compositecontroller", "gone", "--wait=false")
	finalizing := s.composite("finalizing")
	hooks := finalizing.Object["spec"].(map[string]any)["hooks"].(map[string]any)
	hooks["finalize"] = hooks["sync"]
	s.create(composites, finalizing)
	cluster.Eventually(s.T, cluster.Limit, "the engine to hold a controller that finalizes", func(ctx context.Context) (bool, string) {
		o, err := s.Dynamic.Resource(composites).Get(ctx, "finalizing", metav1.GetOptions{})
		return err == nil && len(o.GetFinalizers()) > 0, fmt.Sprint(err)
	})
	o, printed := s.options(s.config(), nil), &bytes.Buffer{}
	o.CABundle, o.Metacontroller = nil, types.NamespacedName{}
	lose := func() { s.plane.Kubectl(s.T, "delete", "apiservice", door) }
	o.Out = steps{io.MultiWriter(s.Output(), printed), map[string]func(){"empty": lose, "clear": lose}}
	s.expectError(migration.Back(s.Context(), o), "the way back without a way to the server", "empty: ", "--ca-file")
	holder := s.plane.Kubectl(s.T, "get", "lease", "metacontroller-apiserver", "--namespace", namespace, "--output=jsonpath={.spec.holderIdentity}")
	if holder != "metacontroller-apiserver-migrate" {
		s.Errorf("%s may run controllers, beside Metacontroller", holder)
	}
	o = s.options(s.config(), nil)
	o.Metacontroller, o.Out = types.NamespacedName{}, io.MultiWriter(s.Output(), printed)
	if err := migration.Back(s.Context(), o); err != nil || !s.local() || s.replicas() != "0" {
		s.Fatalf("run again it ends with %v, the definitions serve the group: %t, and Metacontroller has %s replicas", err, s.local(), s.replicas())
	}
	for _, want := range []string{
		"  Start StatefulSet/metacontroller/restless with 1 replicas yourself", "take finalizer metacontroller.k8s.io/parents off",
		"\n  CompositeController finalizing\n",
	} {
		if !strings.Contains(printed.String(), want) {
			s.Errorf("it does not say %q", want)
		}
	}
	gone, err := s.Dynamic.Resource(composites).Get(s.Context(), "gone", metav1.GetOptions{})
	if err != nil || gone.GetDeletionTimestamp() == nil || !slices.Contains(gone.GetFinalizers(), user) {
		s.Errorf("the object that is being deleted is %v, %v", gone, err)
	}
	s.plane.Kubectl(s.T, "scale", "statefulset", s.workload, "--namespace", namespace, "--replicas=1")
}

// runTwice runs the command while another run is under way.
func (s *scene) runTwice() {
	s.Helper()
	err := s.run(migration.Forward, s.config(), map[string]func(){"copy": func() {
		s.expectError(s.run(migration.Back, s.config(), nil), "the way back at the same time", "another run of the command is under way")
	}})
	if err != nil {
		s.Error(err)
	}
}

// changeMindWhileFinishing goes back from --finish, which has deleted nothing yet.
func (s *scene) changeMindWhileFinishing() {
	s.Helper()
	s.moved()
	ctx, kill := context.WithCancel(s.Context())
	defer kill()
	stop := func(_ context.Context, o migration.Options) error { return migration.Finish(ctx, o) }
	s.expectError(s.run(stop, s.config(), map[string]func(){"detach": kill}), "finishing that is killed", "canceled")
	if err := s.run(migration.Back, s.config(), nil); err != nil || !s.local() {
		s.Fatalf("the way back ends with %v, and the definitions serve the group: %t", err, s.local())
	}
	definition, err := s.Dynamic.Resource(definitions).Get(s.Context(), "compositecontrollers.metacontroller.k8s.io", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions"); len(versions) != 1 {
		s.Errorf("the definition has the versions %v", versions)
	}
}
