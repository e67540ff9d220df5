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
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// claims is a kind that claims children and does nothing with them. It notes how many children each sync observes.
type claims struct {
	*kind

	mu       sync.Mutex
	observed []int
}

// Decide implements reconciler.Kind.
func (c *claims) Decide(_ context.Context, s *reconciler.Sync) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observed = append(c.observed, len(s.Observed))
	return nil
}

// Write implements reconciler.Kind.
func (*claims) Write(context.Context, *reconciler.Sync) error { return nil }

func (c *claims) syncs() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.observed)
}

// owned is an API server with the parent, which returns an object that is written as owned by it, in the version of the request.
type owned struct {
	parent *object.Object

	mu sync.Mutex
	// writes are the requests that write.
	writes []string
}

// child returns the object w in a version, with more metadata.
func child(version, metadata string) string {
	return fmt.Sprintf(`{"apiVersion":"g/%s","kind":"Widget","metadata":{"namespace":"ns","name":"w","uid":"w","labels":{"controller-uid":"u"}%s}}`,
		version, metadata)
}

// RoundTrip implements http.RoundTripper.
func (o *owned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		if path.Base(path.Dir(r.URL.Path)) != "things" {
			return responses{http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`}.RoundTrip(r)
		}
		return responses{http.StatusOK, string(o.parent.JSON())}.RoundTrip(r)
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.Contains(r.URL.Path, "/events") {
		o.writes = append(o.writes, "event")
		return responses{http.StatusOK, string(sent)}.RoundTrip(r)
	}
	o.writes = append(o.writes, r.Method+" "+path.Base(r.URL.Path))
	body := child(strings.Split(r.URL.Path, "/")[3],
		`,"resourceVersion":"10","ownerReferences":[{"apiVersion":"g/v1","kind":"Thing","name":"a","uid":"u","controller":true}]`)
	return responses{http.StatusOK, body}.RoundTrip(r)
}

func (o *owned) sent() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.writes)
}

// TestAnOrphanOfAKindInTwoVersionsIsAdoptedOnce has rules for both versions, whose informers show the orphan. The informer of the version in
// which it is adopted shows that at once, and the other one does not before expectations.Limit.
func TestAnOrphanOfAKindInTwoVersionsIsAdoptedOnce(t *testing.T) {
	for _, versions := range [][]string{{"v1", "v1beta1"}, {"v1beta1", "v1"}} {
		t.Run(strings.Join(versions, " before "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &owned{parent: numbered(t, 1)}
				scene := rolling{hooks: syncHook, api: api, parent: api.parent}
				for _, version := range versions {
					resource := schema.GroupVersionResource{Group: "g", Version: version, Resource: "widgets"}
					scene.children = append(scene.children, declared{
						children.Rule{
							Kind: resource.GroupVersion().WithKind("Widget"), Resource: resource, Namespaced: true, Method: v1alpha1.ChildUpdateInPlace,
						},
						[]any{parsed(t, "%s", child(version, `,"resourceVersion":"1"`))},
					})
				}
				var k *claims
				scene.decides = func(of *kind) reconciler.Kind { k = &claims{kind: of}; return k }
				c, parents, _ := scene.run(t)
				synctest.Wait()
				want := []string{"PATCH w", "event"}
				if sent := api.sent(); !slices.Equal(sent, want) {
					t.Errorf("%q is sent, want %q", sent, want)
				}
				if err := parents.Update(numbered(t, 2)); err != nil {
					t.Fatal(err)
				}
				<-time.After(2 * expectations.Limit)
				if sent := api.sent(); !slices.Equal(sent, want) {
					t.Errorf("with the next sync %q was sent, want %q", sent, want)
				}
				if observed := k.syncs(); !slices.Equal(observed, []int{1, 1}) || c.Health().Failing != 0 {
					t.Errorf("the syncs observed %v children, and %d parents fail; want two with one child, and none", observed, c.Health().Failing)
				}
			})
		})
	}
}
