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
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// epochScene is a cluster whose API server stores another color of widgets than it is sent. Each parent wants one widget, which is red. Its time is
// that of a bubble.
type epochScene struct {
	*scene

	mu sync.Mutex
	// color is what is stored as the color of all widgets.
	color string
	// tries are when each widget was tried, and writes how often it was written.
	tries   map[string][]time.Time
	writes  map[string]int
	version int
	// syncs counts the syncs, which take a while.
	syncs int
	takes time.Duration
	// definition is that of the controller.
	definition reconciler.Definition
}

func newEpochScene(t *testing.T) *epochScene {
	t.Helper()
	s := &epochScene{tries: map[string][]time.Time{}, writes: map[string]int{}, version: 1000, color: "green"}
	s.scene = newSceneWith(t, &rest.Config{Host: "http://cluster", QPS: -1, Transport: transport(s.serve)})
	s.defineKinds()
	return s
}

// defineKinds has the cluster's discovery run, with definitions of kinds, and returns the informer of these.
func (s *scene) defineKinds(definitions ...any) *cache.Informer {
	s.t.Helper()
	crds := cache.Query{Resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, MetadataOnly: true}
	for _, q := range []cache.Query{
		{Resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}},
		{Resource: schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}},
	} {
		if err := s.shared.Cluster.Cache.Acquire(q).Replace(nil, "1"); err != nil {
			s.t.Fatal(err)
		}
	}
	informer := s.shared.Cluster.Cache.Acquire(crds)
	if err := informer.Replace(definitions, "1"); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.shared.Cluster.Discovery.Run(ctx) })
	s.t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return informer
}

func (s *epochScene) serve(r *http.Request) (int, string) {
	var sent struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]any    `json:"metadata"`
		Spec       map[string]string `json:"spec"`
	}
	if r.Body == nil || json.NewDecoder(r.Body).Decode(&sent) != nil || sent.Kind != "Widget" {
		return http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprint(sent.Metadata["name"])
	sent.Spec["color"] = s.color
	sent.Metadata["uid"] = "uid-" + name
	if r.Method == http.MethodPatch {
		sent.Metadata["managedFields"] = []any{map[string]any{
			"manager": r.URL.Query().Get("fieldManager"), "operation": "Apply", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{
				"f:metadata": map[string]any{"f:ownerReferences": map[string]any{fmt.Sprintf(`k:{"uid":"uid-%s"}`, name[2:]): map[string]any{}}},
				"f:spec":     map[string]any{"f:color": map[string]any{}, "f:size": map[string]any{}},
			},
		}}
	}
	trial := r.URL.Query().Get("dryRun") != ""
	if trial {
		s.tries[name] = append(s.tries[name], time.Now())
	} else {
		s.writes[name]++
		s.version++
		sent.Metadata["resourceVersion"] = fmt.Sprint(s.version)
	}
	encoded, _ := json.Marshal(sent)
	if !trial {
		s.update(s.widgets, parse(s.t, string(encoded)))
	}
	return http.StatusOK, string(encoded)
}

// settle starts a controller of some parents, and returns when all is settled and nothing is counted.
func (s *epochScene) settle(parents int, change func(*reconciler.Config)) *reconciler.Controller {
	s.t.Helper()
	for i := range parents {
		if err := s.things.Add(thing(s.t, fmt.Sprint("p", i), 1, "", "")); err != nil {
			s.t.Fatal(err)
		}
	}
	s.exist(slices.Collect(s.things.All(""))...)
	c := s.start(&kind{decide: func(*reconciler.Sync) error {
		s.mu.Lock()
		s.syncs++
		takes := s.takes
		s.mu.Unlock()
		time.Sleep(takes) //nolint:forbidigo // It is the time of a bubble.
		return nil
	}, write: func(sync *reconciler.Sync) error {
		name := "w-" + sync.Parent.Name()
		sync.Observed = s.widgets.ControlledBy(sync.Parent.UID())
		sync.Decision = reconciler.Decision{Observed: sync.Observed, Desired: []children.Desired{{
			Key: children.Key{Group: widgets.Group, Kind: "Widget", Name: name}, APIVersion: "example.com/v1", Content: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
				"spec": map[string]any{"color": "red", "size": "1"},
			},
		}}}
		return sync.ReconcileChildren(s.t.Context(), "children")
	}}, func(config *reconciler.Config) {
		if change != nil {
			change(config)
		}
		s.definition = config.Definition
	})
	s.pass(5 * time.Minute)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.writes) != parents {
		s.t.Fatalf("%d widgets are written for %d parents", len(s.writes), parents)
	}
	s.syncs = 0
	clear(s.tries)
	clear(s.writes)
	return c
}

func (s *epochScene) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // It is the time of a bubble.
	synctest.Wait()
}

func (s *epochScene) store(color string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.color = color
}

// webhook has the mutating webhook of a resource changed: it is called somewhere else.
func (s *epochScene) webhook(group, resource string) {
	s.mu.Lock()
	s.version++
	version := s.version
	s.mu.Unlock()
	s.update(s.shared.Cluster.Cache.Acquire(cache.Query{Resource: schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations",
	}}), parse(s.t, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"w",`+
		`"uid":"w","resourceVersion":"%[1]d"},"webhooks":[{"clientConfig":{"url":"https://w/%[1]d"},"rules":[{"operations":["*"],`+
		`"apiGroups":[%[2]q],"apiVersions":["*"],"resources":[%[3]q]}]}]}`, version, group, resource)))
}

// counts returns the numbers of syncs, dry runs and writes, and of dry runs of the widget that was tried most.
func (s *epochScene) counts() (syncs, tries, writes, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.tries {
		tries, most = tries+len(times), max(most, len(times))
	}
	for _, n := range s.writes {
		writes += n
	}
	return s.syncs, tries, writes, most
}

// TestChildrenAreTriedOnceInAnotherEpoch has a webhook of widgets changed, of which each parent has one that is not stored as it was sent.
func TestChildrenAreTriedOnceInAnotherEpoch(t *testing.T) {
	const parents = 200
	serverSide := func(c *reconciler.Config) { c.Children[0].ServerSide = true }
	for name, tc := range map[string]struct {
		configure func(*reconciler.Config)
		// happens is what happens after the webhook changed.
		happens func(*epochScene, *reconciler.Controller)
		// syncs, tries and writes are wanted, and most of one widget.
		syncs, tries, writes, most int
	}{
		"nothing is stored in another way": {tries: parents, most: 1},
		"another color is stored": {
			happens: func(s *epochScene, _ *reconciler.Controller) { s.store("blue") },
			// The event of what is written leads to the other sync.
			syncs: 2 * parents, tries: parents, writes: parents, most: 1,
		},
		"the webhook changes again and again, for a while": {happens: func(s *epochScene, _ *reconciler.Controller) {
			for range 20 {
				s.pass(time.Second)
				s.webhook("example.com", "widgets")
			}
		}, tries: parents, most: 1},
		"the webhook changes while widgets are tried": {happens: func(s *epochScene, _ *reconciler.Controller) {
			s.pass(20 * time.Second)
			if _, tries, _, _ := s.counts(); tries == 0 || tries == parents {
				s.t.Errorf("%d widgets are tried before the change", tries)
			}
			s.webhook("example.com", "widgets")
		}, tries: 2 * parents, most: 2},
		"the controller is paused while widgets are tried": {happens: func(s *epochScene, c *reconciler.Controller) {
			s.pass(20 * time.Second)
			paused := s.definition
			paused.Paused = true
			if err := c.Redefine(s.t.Context(), paused); err != nil {
				s.t.Error(err)
			}
			_, before, _, _ := s.counts()
			s.pass(time.Minute)
			if _, tries, _, _ := s.counts(); tries > before+1 {
				s.t.Errorf("%d widgets are tried during a pause", tries-before)
			}
			if err := c.Redefine(s.t.Context(), s.definition); err != nil {
				s.t.Error(err)
			}
		}, syncs: parents, tries: parents, most: 1},
		"parents are synced for another reason": {happens: func(s *epochScene, _ *reconciler.Controller) {
			for o := range s.things.All("") {
				s.update(s.things, thing(s.t, o.Name(), 2, "", ""))
			}
		}, syncs: parents, tries: parents, most: 1},
		"some parents are being synced when it is their turn": {happens: func(s *epochScene, _ *reconciler.Controller) {
			s.mu.Lock()
			s.takes = 40 * time.Second
			s.mu.Unlock()
			for i := range 10 {
				s.update(s.things, thing(s.t, fmt.Sprint("p", i), 2, "", ""))
			}
		}, syncs: 10, tries: parents, most: 1},
		"some parents leave": {happens: func(s *epochScene, _ *reconciler.Controller) {
			s.pass(5 * time.Second)
			for i := range 10 {
				if err := s.things.Delete(thing(s.t, fmt.Sprint("p", i), 2, "", "")); err != nil {
					s.t.Error(err)
				}
			}
		}, tries: parents - 10, most: 1},
		"server-side apply, which keeps not what was sent": {configure: serverSide, syncs: parents, tries: parents, most: 1},
		"children that are not updated":                    {configure: func(c *reconciler.Config) { c.Children[0].Method = v1alpha1.ChildUpdateOnDelete }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newEpochScene(t)
				c := s.settle(parents, tc.configure)
				s.webhook("example.com", "widgets")
				if tc.happens != nil {
					tc.happens(s, c)
				}
				s.pass(5 * time.Minute)
				syncs, tries, writes, most := s.counts()
				if syncs != tc.syncs || tries != tc.tries || writes != tc.writes || most != tc.most {
					t.Errorf("%d syncs, %d dry runs, %d writes, %d dry runs of one widget", syncs, tries, writes, most)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				var all []time.Time
				for _, times := range s.tries {
					all = append(all, times...)
				}
				if len(all) > 0 {
					slices.SortFunc(all, time.Time.Compare)
					if took := all[len(all)-1].Sub(all[0]); took < 10*time.Second || took > 2*time.Minute {
						t.Errorf("the dry runs are spread over %v", took)
					}
				}
			})
		})
	}
}

// TestChildrenAreNotTriedForWhatDoesNotChangeThem has a webhook of other resources changed, each second.
func TestChildrenAreNotTriedForWhatDoesNotChangeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEpochScene(t)
		s.settle(50, nil)
		for range 300 {
			s.webhook("example.com", "things")
			s.pass(time.Second)
		}
		if syncs, tries, writes, _ := s.counts(); syncs+tries+writes > 0 {
			t.Errorf("%d syncs, %d dry runs, %d writes", syncs, tries, writes)
		}
	})
}

// TestAllSettlesWhileAWebhookChangesAllTheTime has the webhook of widgets changed each second, and the colors that it stores in between.
func TestAllSettlesWhileAWebhookChangesAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parents = 50
		s := newEpochScene(t)
		s.settle(parents, nil)
		for i := range 300 {
			if i == 100 {
				s.store("blue")
			}
			s.webhook("example.com", "widgets")
			s.pass(time.Second)
		}
		if syncs, _, writes, most := s.counts(); syncs != 2*parents || writes != parents || most > 5 {
			t.Errorf("%d syncs, %d writes, %d dry runs of one widget in 5 minutes", syncs, writes, most)
		}
	})
}

// TestAChangeOfASchemaIsNoticedWithoutAnEventOfTheParent has a field of a child stored in another way, and then its schema changed.
func TestAChangeOfASchemaIsNoticedWithoutAnEventOfTheParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEpochScene(t)
		s.settle(1, nil)
		s.store("red")
		s.changeDefinition("widgets.example.com")
		s.pass(time.Minute)
		if _, tries, writes, _ := s.counts(); tries != 1 || writes != 1 {
			t.Errorf("%d dry runs, %d writes", tries, writes)
		}
		for w := range s.widgets.All("") {
			if !strings.Contains(string(w.JSON()), `"spec":{"color":"red"`) {
				t.Errorf("the field is not written: %s", w.JSON())
			}
		}
	})
}
