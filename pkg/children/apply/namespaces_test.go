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

package apply_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

// namespaces is an API server that takes objects into the namespaces that are there alone.
type namespaces struct {
	mu      sync.Mutex
	created sets.Set[string]
	// refused are the paths of requests for other namespaces, dryRuns those of dry runs.
	refused, dryRuns []string
}

// ServeHTTP implements http.Handler.
func (n *namespaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	segments := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	n.mu.Lock()
	defer n.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Has("dryRun") {
		n.dryRuns = append(n.dryRuns, r.URL.Path)
	}
	switch {
	case len(segments) == 1: // A Namespace, which takes longer than the rest.
		<-time.After(10 * time.Millisecond)
		n.created.Insert("new")
	case !n.created.Has(segments[1]):
		n.refused = append(n.refused, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"namespaces %q not found","code":404}`, segments[1])
		return
	}
	_, _ = io.WriteString(w, strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"u","resourceVersion":"1",`, 1))
}

// inNewNamespace is a parent without namespace whose hook returns a namespace and what is in it, last of all the namespace.
func inNewNamespace(t *testing.T) plan.Input {
	t.Helper()
	kind := func(kind, resource string, namespaced bool) children.Rule {
		return children.Rule{
			Kind:     schema.GroupVersionKind{Version: "v1", Kind: kind},
			Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespaced: namespaced,
		}
	}
	rules := children.NewRules([]children.Rule{kind("ConfigMap", "configmaps", true), kind("Namespace", "namespaces", false)})
	child := func(kind, namespace, name string) map[string]any {
		metadata := map[string]any{"name": name}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": metadata}
	}
	in := plan.Input{Parent: "p", ParentName: "Parent p", Owner: map[string]any{"uid": "p"}, Rules: rules, Now: time.Now(), Schemas: map[schema.GroupVersionKind]merge.Schema{}}
	var err error
	in.Desired, _, err = children.Validate(children.Scope{}, rules, []map[string]any{
		child("ConfigMap", "new", "a"), child("ConfigMap", "new", "b"), child("ConfigMap", "default", "c"), child("Namespace", "", "new"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestNamespacesAreWrittenBeforeWhatIsInThem(t *testing.T) {
	server := &namespaces{created: sets.New("default")}
	outcomes, err := carryOut(t.Context(), t, against(t, server, apply.Options{}), inNewNamespace(t))
	if err != nil || len(outcomes) != 4 || len(server.refused) > 0 {
		t.Errorf("%d outcomes, error %v; refused were %q", len(outcomes), err, server.refused)
	}
}

// TestWhatIsInANewNamespaceIsNotTried asks for dry runs, in which no namespace is created.
func TestWhatIsInANewNamespaceIsNotTried(t *testing.T) {
	server := &namespaces{created: sets.New("default")}
	p, err := plan.Make(inNewNamespace(t))
	if err != nil {
		t.Fatal(err)
	}
	refused, untried := against(t, server, apply.Options{}).Check(t.Context(), p)
	want := sets.New(
		children.Key{Kind: "ConfigMap", Namespace: "new", Name: "a"},
		children.Key{Kind: "ConfigMap", Namespace: "new", Name: "b"},
	)
	if len(refused) > 0 || !untried.Equal(want) || len(server.dryRuns) != 2 {
		t.Errorf("refused are %v, not tried are %v, and there were dry runs of %q", refused, untried.UnsortedList(), server.dryRuns)
	}
}
