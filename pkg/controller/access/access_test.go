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

package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	alice = rights.Account{Namespace: "team", Name: "alice"}
	bob   = rights.Account{Namespace: "team", Name: "bob"}

	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	listPods    = rights.Right{Verb: rights.List, Resource: "pods"}
	watchPods   = rights.Right{Verb: rights.Watch, Resource: "pods"}
	createPods  = rights.Right{Verb: rights.Create, Resource: "pods", Namespace: "ns"}
	patchPods   = rights.Right{Verb: rights.Patch, Resource: "pods", Namespace: "ns"}
	readSecret  = rights.Right{Verb: rights.Watch, Resource: "secrets", Namespace: "ns", Name: "token"}
	finalize    = rights.Right{Verb: rights.Update, Group: "example.com", Resource: "foos", Subresource: rights.SubresourceFinalizers}
	listSecrets = rights.Right{Verb: rights.List, Resource: "secrets"}
	forbidden   = apierrors.NewForbidden(pods.GroupResource(), "a", errors.New("no"))
	secrets     = []schema.GroupResource{{Resource: "secrets"}}
)

func needs() rights.Needs {
	return rights.Needs{
		Kinds: []rights.Right{listPods, watchPods, {Verb: rights.Create, Resource: "pods"}, finalize}, Credentials: []rights.Right{readSecret},
	}
}

// cluster permits everything that a test does not take away.
type cluster struct {
	mu sync.Mutex
	// gone says that there is no account, and inviolate that the server may not act as it.
	gone, inviolate bool
	denied          map[rights.Account][]rights.Right
	err             error
	// reviews counts the calls of Missing, and asked is what the last one was about.
	reviews int
	asked   []rights.Right
	// askedAt and changed are when reviews began, and when they were told to have changed something.
	askedAt, changed []time.Duration
	// released counts how many times that ended a hold.
	released int
	begin    time.Time
	// related are the resources that parents have named.
	related sets.Set[schema.GroupResource]
}

func (c *cluster) Exists(context.Context, rights.Account) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.askedAt = append(c.askedAt, time.Since(c.begin))
	return !c.gone, c.err
}

func (c *cluster) Impersonates(context.Context, rights.Account) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.inviolate, c.err
}

func (c *cluster) Missing(_ context.Context, a rights.Account, wanted []rights.Right) ([]rights.Right, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reviews++
	c.asked = slices.Clone(wanted)
	var missing []rights.Right
	for _, right := range wanted {
		if slices.Contains(c.denied[a], right) {
			missing = append(missing, right)
		}
	}
	return missing, c.err
}

func (c *cluster) set(change func(*cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// take takes rights from an account, and give gives all back.
func (c *cluster) take(a rights.Account, list ...rights.Right) {
	c.set(func(c *cluster) { c.denied[a] = append(c.denied[a], list...) })
}

func (c *cluster) give(a rights.Account) { c.set(func(c *cluster) { c.denied[a] = nil }) }

// scene runs the access of alice in a bubble of virtual time.
type scene struct {
	*cluster
	*Access

	t *testing.T
	// passing is closed when time passes first: what a test says before is there from the start.
	passing chan struct{}
}

func run(t *testing.T, test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.Access = s.start(alice)
		test(s)
	})
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return &scene{t: t, passing: make(chan struct{}), cluster: &cluster{denied: map[rights.Account][]rights.Right{}, begin: time.Now()}}
}

func (s *scene) start(a rights.Account) *Access {
	access := s.access(a)
	s.run(access)
	return access
}

func (s *scene) access(a rights.Account) *Access {
	return New(Config{Account: a, Needs: needs(), Cluster: s.cluster})
}

func (s *scene) run(access *Access) {
	go func() {
		select {
		case <-s.passing:
		case <-s.t.Context().Done():
		}
		related := func() sets.Set[schema.GroupResource] {
			s.cluster.mu.Lock()
			defer s.cluster.mu.Unlock()
			return s.related.Clone()
		}
		access.Run(s.t.Context(), related, func(released bool) {
			s.set(func(c *cluster) {
				if c.changed = append(c.changed, time.Since(c.begin)); released {
					c.released++
				}
			})
		})
	}()
}

// pass lets time pass.
func (s *scene) pass(d time.Duration) {
	select {
	case <-s.passing:
	default:
		close(s.passing)
	}
	time.Sleep(d) //nolint:forbidigo // It is the time of the bubble.
	synctest.Wait()
}

// shows checks whether the controller is held, and what is said to be missing.
func (s *scene) shows(held bool, lacks string) {
	s.t.Helper()
	state := s.State()
	if state.Held != held || s.Held() != held || state.Lacks() != lacks {
		s.t.Errorf("held %v, lacks %q; want %v, %q", state.Held, state.Lacks(), held, lacks)
	}
}

// half is what a change takes at most until it shows.
const half = 30 * time.Second

func TestNothingIsServedBeforeTheFirstReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.Access = s.access(alice)
		s.shows(true, "")
		if s.State().Known {
			t.Error("it is known what was not asked for")
		}
		s.run(s.Access)
		s.pass(0)
		s.shows(false, "")
		if want := []rights.Right{listPods, watchPods, readSecret}; !slices.Equal(s.asked, want) {
			t.Errorf("asked for %v, want %v", s.asked, want)
		}
		if len(s.changed) != 1 {
			t.Errorf("the start was told %d times", len(s.changed))
		}
	})
}

func TestRightsThatAreTakenAndGivenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		taken rights.Right
		lacks string
	}{
		"of a kind":       {watchPods, "watch pods"},
		"on a credential": {readSecret, "watch secrets ns/token"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *scene) {
				s.pass(0)
				s.take(alice, tc.taken)
				s.pass(half)
				s.shows(true, tc.lacks)
				s.give(alice)
				s.pass(half)
				s.shows(false, "")
				if len(s.changed) != 2 || s.changed[1]-half > half || s.released != 2 {
					t.Errorf("told at %v, the end of a hold %d times", s.changed, s.released)
				}
			})
		})
	}
}

func TestAnAccountThatIsDeletedAndCreatedAgain(t *testing.T) {
	run(t, func(s *scene) {
		s.pass(0)
		s.set(func(c *cluster) { c.gone = true })
		s.pass(half)
		if s.shows(true, ""); !s.State().NotFound {
			t.Error("it does not say that there is no account")
		}
		s.set(func(c *cluster) { c.gone = false })
		s.pass(half)
		if s.shows(false, ""); s.State().NotFound {
			t.Error("it says still that there is no account")
		}
	})
}

func TestAServerThatMayNotActAsTheAccount(t *testing.T) {
	run(t, func(s *scene) {
		s.set(func(c *cluster) { c.inviolate = true })
		s.pass(0)
		if s.shows(true, ""); !s.State().NotImpersonated || s.reviews > 0 {
			t.Errorf("not impersonated: %v, after %d reviews of what it may do", s.State().NotImpersonated, s.reviews)
		}
		s.set(func(c *cluster) { c.inviolate = false })
		s.pass(half)
		s.shows(false, "")
	})
}

// A cluster that does not respond for a while is no reason to stop, and one that never does is none to go on.
func TestAClusterThatDoesNotRespond(t *testing.T) {
	run(t, func(s *scene) {
		s.pass(0)
		s.set(func(c *cluster) { c.err = errors.New("no response") })
		s.pass(half)
		if s.shows(false, ""); s.State().Problem == nil || !s.State().Known {
			t.Errorf("problem %v, known %v", s.State().Problem, s.State().Known)
		}
		s.pass(valid + half)
		if s.shows(true, ""); s.State().Known {
			t.Error("it is known what was asked for long ago")
		}
		s.set(func(c *cluster) { c.err = nil })
		s.pass(retry)
		if s.shows(false, ""); s.State().Problem != nil {
			t.Errorf("problem %v", s.State().Problem)
		}
	})
}

func TestAStartWithoutResponse(t *testing.T) {
	run(t, func(s *scene) {
		s.set(func(c *cluster) { c.err = errors.New("no response") })
		s.pass(half)
		if s.shows(true, ""); s.State().Known || s.State().Problem == nil {
			t.Errorf("known %v, problem %v", s.State().Known, s.State().Problem)
		}
	})
}

// Two controllers with different accounts share the caches, and see them each by its own rights.
func TestTwoAccountsOnOneKind(t *testing.T) {
	run(t, func(s *scene) {
		of := s.start(bob)
		s.take(bob, listPods)
		s.pass(0)
		s.shows(false, "")
		if !of.Held() {
			t.Error("bob sees what he may not list")
		}
		s.give(bob)
		s.take(alice, listPods)
		s.pass(half)
		s.shows(true, "list pods")
		if of.Held() {
			t.Error("bob does not see what he may list")
		}
	})
}

func TestRelatedObjects(t *testing.T) {
	run(t, func(s *scene) {
		s.take(alice, listSecrets)
		s.pass(0)
		s.set(func(c *cluster) { c.related = sets.New(secrets...) })
		err := s.Relate(s.t.Context(), secrets, true)
		const want = "the service account team/alice may not list secrets, which the customize hook names as related; grant that to it"
		if !IsNotPermitted(err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		// The others are served on.
		s.shows(false, "list secrets")
		asked := s.reviews
		if err := s.Relate(s.t.Context(), secrets, true); !IsNotPermitted(err) || s.reviews != asked {
			t.Errorf("got %v after %d more reviews", err, s.reviews-asked)
		}
		told := len(s.changed)
		s.give(alice)
		s.pass(half)
		if err := s.Relate(s.t.Context(), secrets, true); err != nil || len(s.changed) == told {
			t.Errorf("the right is there again, and got %v, told %d times", err, len(s.changed)-told)
		}
		s.take(alice, listSecrets)
		s.pass(half)
		if err := s.Relate(s.t.Context(), secrets, true); !IsNotPermitted(err) {
			t.Errorf("the right was taken, and got %v", err)
		}
		s.set(func(c *cluster) { c.related = nil })
		if err := s.Relate(s.t.Context(), nil, true); err != nil {
			t.Errorf("nothing is related any more, and got %v", err)
		}
		s.pass(half)
		s.shows(false, "")
		if err := s.Relate(s.t.Context(), secrets, false); !IsNotPermitted(err) {
			t.Errorf("the right is missing, and got %v", err)
		}
		s.shows(false, "") // Nothing is remembered of a question that is no parent's.
		s.set(func(c *cluster) { c.err = errors.New("no response") })
		if err := s.Relate(s.t.Context(), secrets, true); err == nil || IsNotPermitted(err) {
			t.Errorf("the cluster does not respond, and got %v", err)
		}
	})
}

// TestAReviewThatBeganBeforeAParentNamedAResourcePermitsNothing has reviews end all the time that did not ask for the rights on it.
func TestAReviewThatBeganBeforeAParentNamedAResourcePermitsNothing(t *testing.T) {
	c := &cluster{denied: map[rights.Account][]rights.Right{alice: {listSecrets}}}
	a := New(Config{Account: alice, Needs: needs(), Cluster: c})
	done := make(chan struct{})
	var reviewing sync.WaitGroup
	for range 8 {
		reviewing.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					a.mu.Lock()
					a.accept(finding{exists: true, impersonates: true}, a.reads)
					a.mu.Unlock()
				}
			}
		})
	}
	defer reviewing.Wait()
	defer close(done)
	for n := range 10_000 {
		if err := a.Relate(t.Context(), secrets, true); !IsNotPermitted(err) {
			t.Fatalf("at attempt %d: got %v", n, err)
		}
	}
}

func TestNoAccountIsNoLimit(t *testing.T) {
	var none *Access
	none.Run(t.Context(), nil, func(bool) { t.Error("something changed") })
	if err := none.Relate(t.Context(), secrets, true); err != nil || none.Held() || none.State().Account != "" {
		t.Errorf("held %v, %v", none.Held(), err)
	}
}

func TestALongListIsCut(t *testing.T) {
	var s State
	for i := range 15 {
		s.Missing = append(s.Missing, rights.Right{Verb: "list", Resource: strings.Repeat("x", i+1)})
	}
	if got := s.Lacks(); !strings.HasSuffix(got, "; rights on 5 more resources") {
		t.Errorf("got %s", got)
	}
}

// reviews is an API server that has the account alice, lets her list and not watch, and lets the server act as her.
func reviews(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/serviceaccounts/alice"):
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"alice","namespace":"team","uid":"u"}}`)
	case strings.HasSuffix(path, "/serviceaccounts/bob"):
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"name":"bob"},"code":404}`)
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if json.NewDecoder(r.Body).Decode(&review) == nil {
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = a.Verb == "impersonate" && a.Resource == "serviceaccounts" && a.Namespace == "team" && a.Name == "alice"
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		if json.NewDecoder(r.Body).Decode(&review) == nil {
			s := review.Spec
			review.Status.Allowed = s.User == alice.User() && slices.Equal(s.Groups, alice.Groups()) && s.ResourceAttributes.Verb == rights.List
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

func TestWhatAClusterSays(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(reviews))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	authorization, err := authorizationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c := OfCluster(authorization, objects)
	for account, exists := range map[rights.Account]bool{alice: true, bob: false} {
		if got, err := c.Exists(t.Context(), account); err != nil || got != exists {
			t.Errorf("%s exists: %v, %v", account, got, err)
		}
		if got, err := c.Impersonates(t.Context(), account); err != nil || got != exists {
			t.Errorf("%s is impersonated: %v, %v", account, got, err)
		}
	}
	if _, err := c.Exists(t.Context(), rights.Account{Namespace: "team", Name: "carol"}); err == nil {
		t.Error("the server may not read the account, and there is no error")
	}
	for account, want := range map[rights.Account][]rights.Right{alice: {watchPods}, bob: {listPods, watchPods}} {
		got, err := c.Missing(t.Context(), account, []rights.Right{listPods, watchPods})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s lacks %v, %v; want %v", account, got, err, want)
		}
	}
	server.Close()
	if _, err := c.Missing(t.Context(), alice, []rights.Right{listPods}); err == nil || !strings.Contains(err.Error(), "team/alice") {
		t.Errorf("there is no server, and got %v", err)
	}
	if _, err := c.Impersonates(t.Context(), alice); err == nil {
		t.Error("there is no server, and no error")
	}
}

func TestWritesThatAreRefused(t *testing.T) {
	create := client.Request{Verbs: []string{"create"}, Target: client.Target{Resource: pods, Namespace: "ns"}}
	application := client.Request{Verbs: []string{"patch", "create"}, Target: client.Target{Resource: pods, Namespace: "ns", Name: "a"}}
	blocking := apierrors.NewForbidden(pods.GroupResource(), "a", errors.New("cannot set blockOwnerDeletion if an ownerReference refers to"))
	inNamespace := finalize
	inNamespace.Namespace = "ns"
	for name, tc := range map[string]struct {
		request client.Request
		err     error
		taken   rights.Right
		lacks   string
	}{
		"for want of a right":             {create, forbidden, createPods, "create pods in namespace ns"},
		"by a quota":                      {create, forbidden, rights.Right{}, ""},
		"an application":                  {application, forbidden, patchPods, "patch pods in namespace ns"},
		"an application that creates":     {application, forbidden, createPods, "create pods in namespace ns"},
		"for want of a right on parents":  {create, blocking, inNamespace, "update foos.example.com/finalizers in namespace ns"},
		"by another error than forbidden": {create, apierrors.NewConflict(pods.GroupResource(), "a", nil), createPods, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *scene) {
				s.take(alice, tc.taken)
				s.pass(0)
				s.Observe(s.t.Context(), tc.request, tc.err)
				s.pass(retry)
				s.shows(false, tc.lacks)
				if tc.lacks == "" {
					return
				}
				told := len(s.changed)
				s.give(alice)
				s.pass(half)
				if s.shows(false, ""); len(s.changed) == told || s.released != 1 {
					t.Errorf("told %d times that the right is there again; the end of a hold %d times, want that of the start", len(s.changed)-told, s.released)
				}
			})
		})
	}
	t.Run("until one succeeds", func(t *testing.T) {
		run(t, func(s *scene) {
			s.take(alice, createPods)
			s.pass(0)
			s.Observe(s.t.Context(), create, forbidden)
			s.pass(retry)
			s.Observe(s.t.Context(), application, nil) // The object may have been there.
			s.shows(false, "create pods in namespace ns")
			s.Observe(s.t.Context(), create, nil)
			s.shows(false, "")
		})
	})
	t.Run("very many", func(t *testing.T) {
		run(t, func(s *scene) {
			s.pass(0)
			before := len(s.askedAt)
			for range 100 {
				s.Observe(s.t.Context(), create, forbidden)
				s.pass(time.Second / 10)
			}
			if n := len(s.askedAt) - before; n > 3 {
				t.Errorf("%d reviews within ten seconds", n)
			}
			for i := range 2 * maxRefused {
				one := create
				one.Target.Namespace = "ns" + strings.Repeat("x", i)
				s.Observe(s.t.Context(), one, forbidden)
			}
			s.pass(retry)
			if n := len(s.asked); n != maxRefused+3 {
				t.Errorf("asked for %d rights", n)
			}
		})
	})
}

// A hook that asked for too much by mistake, and was corrected, leaves nobody a right to grant.
func TestWritesThatAreWantedNoMore(t *testing.T) {
	create := client.Request{Verbs: []string{"create"}, Target: client.Target{Resource: pods, Namespace: "ns"}}
	const lacks = "create pods in namespace ns"
	// again is the longest time between two tries of a parent that fails.
	const again = 5 * time.Minute
	for name, tc := range map[string]struct {
		reason string
		// meanwhile happens after the first refusal, and held and lacks are what shows then.
		meanwhile func(s *scene)
		held      bool
		lacks     string
	}{
		"not tried any more": {
			"Nobody needs the right.", func(s *scene) { s.pass(time.Hour) }, false, "",
		},
		"tried after every back-off": {
			"The right is needed still.", func(s *scene) {
				for range 12 {
					s.pass(again)
					s.shows(false, lacks)
					s.Observe(s.t.Context(), create, forbidden)
				}
			}, false, lacks,
		},
		"tried late": {
			"A sync may have to wait for its turn.", func(s *scene) { s.pass(2 * again) }, false, lacks,
		},
		"not tried because the controller is held": {
			"The parents are tried when the controller goes on, and the right is to be given with those that it waits for.",
			func(s *scene) {
				s.take(alice, listPods)
				s.pass(time.Hour)
			}, true, "list pods; " + lacks,
		},
		"not tried because the controller is paused": {
			"It is tried when the pause ends, and the right may be given until then.", func(s *scene) {
				s.Pause(true)
				s.pass(time.Hour)
			}, false, lacks,
		},
		"tried soon after a pause": {
			"It has had no time to be tried before.", func(s *scene) {
				s.Pause(true)
				s.pass(time.Hour)
				s.Pause(false)
				s.pass(again)
			}, false, lacks,
		},
		"not tried any more after a pause": {
			"Nobody needs the right.", func(s *scene) {
				s.Pause(true)
				s.pass(time.Hour)
				s.Pause(false)
				s.pass(time.Hour)
			}, false, "",
		},
		"tried soon after the controller was held": {
			"It has had no time to be tried before.", func(s *scene) {
				s.take(alice, listPods)
				s.pass(time.Hour)
				s.set(func(c *cluster) { c.denied[alice] = []rights.Right{createPods} })
				s.pass(again)
			}, false, lacks,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *scene) {
				s.take(alice, createPods)
				s.pass(0)
				s.Observe(s.t.Context(), create, forbidden)
				s.pass(half)
				s.shows(false, lacks)
				tc.meanwhile(s)
				if state := s.State(); state.Held != tc.held || state.Lacks() != tc.lacks {
					t.Errorf("%s Held %v, lacks %q; want %v, %q", tc.reason, state.Held, state.Lacks(), tc.held, tc.lacks)
				}
			})
		})
	}
	t.Run("so many that others do not show", func(t *testing.T) {
		run(t, func(s *scene) {
			s.take(alice, createPods)
			s.pass(0)
			for i := range maxRefused {
				one := create
				one.Target.Namespace = "gone" + strings.Repeat("x", i)
				s.take(alice, rights.Right{Verb: rights.Create, Resource: "pods", Namespace: one.Target.Namespace})
				s.Observe(s.t.Context(), one, forbidden)
			}
			s.pass(time.Hour)
			s.Observe(s.t.Context(), create, forbidden)
			s.pass(half)
			s.shows(false, lacks)
		})
	})
}
