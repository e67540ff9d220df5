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

package leaderelection

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errUnreachable = errors.New("unreachable")

// leases has one Lease, in memory: what an API server does with versions and watches, at once.
type leases struct {
	mu       sync.Mutex
	lease    *coordinationv1.Lease
	version  int
	watchers map[*watch.RaceFreeFakeWatcher]struct{}
	// namespace says whether the namespace of the Lease is there.
	namespace bool
	// late is how long ago a write says at most that it is.
	late time.Duration
}

func newLeases() *leases {
	return &leases{watchers: map[*watch.RaceFreeFakeWatcher]struct{}{}, namespace: true}
}

// access is how one process reaches the Lease.
type access struct {
	coordinationclient.LeaseInterface

	*leases

	mu sync.Mutex
	// cut says that nothing is answered, blind that watches are refused.
	cut, blind bool
}

func (a *access) Leases(string) coordinationclient.LeaseInterface { return a }

func (a *access) set(cut bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut = cut
}

func (a *access) reach() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cut {
		return errUnreachable
	}
	return nil
}

func (a *access) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := a.reach(); err != nil {
		return nil, err
	}
	a.leases.mu.Lock()
	defer a.leases.mu.Unlock()
	if a.lease == nil {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "engine")
	}
	return a.lease.DeepCopy(), nil
}

func (a *access) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return a.put(l, func() error {
		if !a.namespace {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), "server")
		}
		if a.lease != nil {
			return apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), "engine")
		}
		return nil
	}, watch.Added)
}

func (a *access) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return a.put(l, func() error {
		if a.lease == nil {
			return apierrors.NewNotFound(coordinationv1.Resource("leases"), "engine")
		}
		if a.lease.ResourceVersion != l.ResourceVersion {
			return apierrors.NewConflict(coordinationv1.Resource("leases"), "engine", nil)
		}
		return nil
	}, watch.Modified)
}

func (a *access) put(l *coordinationv1.Lease, check func() error, event watch.EventType) (*coordinationv1.Lease, error) {
	if err := a.reach(); err != nil {
		return nil, err
	}
	a.leases.mu.Lock()
	defer a.leases.mu.Unlock()
	if err := check(); err != nil {
		return nil, err
	}
	a.version++
	a.late = max(a.late, time.Since(l.Spec.RenewTime.Time))
	a.lease = l.DeepCopy()
	a.lease.ResourceVersion = string(rune('a' + a.version))
	for w := range a.watchers {
		w.Action(event, a.lease.DeepCopy())
	}
	return a.lease.DeepCopy(), nil
}

func (a *access) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	if err := a.reach(); err != nil || a.blind {
		return nil, errors.Join(err, errUnreachable)
	}
	a.leases.mu.Lock()
	defer a.leases.mu.Unlock()
	w := watch.NewRaceFreeFake()
	a.watchers[w] = struct{}{}
	if a.lease != nil {
		w.Add(a.lease.DeepCopy())
	}
	context.AfterFunc(ctx, func() {
		a.leases.mu.Lock()
		defer a.leases.mu.Unlock()
		delete(a.watchers, w)
	})
	return w, nil
}

// candidate is an elector that leads again and again.
type candidate struct {
	*Elector

	access *access
	stop   context.CancelFunc
	ended  chan struct{}
	// begun and over have the times at which it was elected, and at which its terms were over.
	begun, over chan time.Duration
	// work is how long lead takes after its term.
	work time.Duration
	// causes are those of the ends of terms.
	causes chan error
}

const (
	duration = 15 * time.Second
	deadline = 10 * time.Second
	retry    = 2 * time.Second
)

func start(t *testing.T, began time.Time, l *leases, name string, edit ...func(*candidate, *Config)) *candidate {
	t.Helper()
	c := &candidate{
		access: &access{leases: l}, ended: make(chan struct{}),
		begun: make(chan time.Duration, 9), over: make(chan time.Duration, 9), causes: make(chan error, 9),
	}
	config := Config{
		Client: c.access, Namespace: "server", Name: "engine", Identity: name,
		LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry,
	}
	for _, e := range edit {
		e(c, &config)
	}
	var err error
	if c.Elector, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	go func() {
		defer close(c.ended)
		for ctx.Err() == nil {
			_ = c.Stand(ctx, func(term context.Context) {
				c.begun <- time.Since(began)
				<-term.Done()
				c.over <- time.Since(began)
				c.causes <- context.Cause(term)
				time.Sleep(c.work) //nolint:forbidigo // It is the time of a bubble.
			})
		}
	}()
	t.Cleanup(c.finish)
	return c
}

func (c *candidate) finish() {
	c.stop()
	<-c.ended
}

func TestALeaseIsHandedOver(t *testing.T) {
	for name, test := range map[string]struct {
		// first is what is done with the first of two candidates, 30 s after the start.
		first func(*candidate)
		work  time.Duration
		blind bool
		// from and to are between which times after that the second one leads.
		from, to time.Duration
		cause    error
	}{
		"at once when it is released": {first: func(c *candidate) { c.stop() }, cause: context.Canceled},
		"when all has ended that ran under it": {
			first: func(c *candidate) { c.stop() }, work: 7 * time.Second, from: 7 * time.Second, to: 7 * time.Second, cause: context.Canceled,
		},
		"when it has expired": {
			first: func(c *candidate) { c.access.set(true) }, from: duration - retry, to: duration, cause: ErrLost,
		},
		"when it is released, without a right to watch": {
			first: func(c *candidate) { c.stop() }, blind: true, to: retry, cause: context.Canceled,
		},
		"when it has expired, without a right to watch": {
			first: func(c *candidate) { c.access.set(true) }, blind: true, from: duration - retry, to: duration + retry, cause: ErrLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, l := time.Now(), newLeases()
				first := start(t, began, l, "first", func(c *candidate, _ *Config) { c.work = test.work })
				synctest.Wait()
				if at := <-first.begun; at != 0 {
					t.Errorf("a free Lease was taken after %s", at)
				}
				second := start(t, began, l, "second", func(c *candidate, _ *Config) { c.access.blind = test.blind })
				const pause = 30*time.Second + time.Millisecond
				time.Sleep(pause) //nolint:forbidigo // It is the time of a bubble.
				if len(first.over)+len(second.begun) > 0 {
					t.Fatal("the Lease went over though it was renewed")
				}
				if holder := second.Holder(); holder != "first" {
					t.Errorf("the second candidate says that the Lease is held by %q", holder)
				}
				test.first(first)
				over, at := <-first.over-pause, <-second.begun-pause
				if at < test.from || at > test.to {
					t.Errorf("the second one leads after %s, not %s to %s", at, test.from, test.to)
				}
				if over > at || errors.Is(test.cause, ErrLost) && (over < deadline-retry || over > deadline) {
					t.Errorf("the term of the first one was over after %s, and that of the second one began after %s", over, at)
				}
				if cause := <-first.causes; !errors.Is(cause, test.cause) {
					t.Errorf("the term of the first one ended with %v", cause)
				}
				if first.Fence().passes() || !second.Fence().passes() {
					t.Error("the first one may write still, or the second one may not")
				}
				first.finish()
				second.finish()
			})
		})
	}
}

// passes reports whether a write would be let through.
func (f *Fence) passes() bool {
	t := f.term.Load()
	return t != nil && t.holds()
}

func TestALeaseTellsWhenItWasTaken(t *testing.T) {
	for name, leave := range map[string]func(*candidate, *leases){
		"from one that released it": func(c *candidate, _ *leases) { c.stop() },
		"from one that was killed":  func(c *candidate, _ *leases) { c.access.set(true) },
		"from one whose Lease was deleted": func(c *candidate, l *leases) {
			c.access.set(true)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lease = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, l := time.Now(), newLeases()
				first := start(t, began, l, "first")
				<-first.begun
				second := start(t, began, l, "second")
				time.Sleep(time.Minute) //nolint:forbidigo // It is the time of a bubble.
				leave(first, l)
				taken := <-second.begun
				if acquired, renewed, late := l.times(began); acquired != taken || renewed != taken || late != 0 {
					t.Errorf("it was taken after %s, and tells %s, and that it was renewed after %s, and %s before", taken, acquired, renewed, late)
				}
				for _, write := range []string{"of the version that is known", "of another version"} {
					if write == "of another version" {
						l.touch(t)
					}
					const pause = 2*retry + time.Millisecond
					before := time.Since(began)
					time.Sleep(pause) //nolint:forbidigo // It is the time of a bubble.
					if acquired, renewed, _ := l.times(began); acquired != taken || renewed <= before {
						t.Errorf("it was taken after %s, and tells %s after a renewal %s, at %s", taken, acquired, write, renewed)
					}
				}
				first.finish()
				second.finish()
			})
		})
	}
}

// times are those that the Lease tells, and how late the latest write was.
func (l *leases) times(began time.Time) (acquired, renewed, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.Spec.AcquireTime.Sub(began), l.lease.Spec.RenewTime.Sub(began), l.late
}

// touch changes the version of the Lease, and nothing that the holder wrote.
func (l *leases) touch(t *testing.T) {
	t.Helper()
	other := &access{leases: l}
	lease, err := other.Get(t.Context(), "", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Labels = map[string]string{"touched": "true"}
	if _, err := other.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestACandidateThatWasCutOffStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, l := time.Now(), newLeases()
		first := start(t, began, l, "first")
		<-first.begun
		second := start(t, began, l, "second")
		synctest.Wait()
		first.access.set(true)
		<-second.begun
		first.access.set(false)
		time.Sleep(time.Minute) //nolint:forbidigo // It is the time of a bubble.
		if len(first.begun) > 0 || first.Fence().passes() {
			t.Error("both lead")
		}
		second.stop()
		<-first.begun
		if !first.Fence().passes() {
			t.Error("the first one leads again and may not write")
		}
		first.finish()
	})
}

func TestALeaseOfAProcessThatEndedIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, l := time.Now(), newLeases()
		first := start(t, began, l, "first")
		<-first.begun
		first.access.set(true) // As if it were killed: it renews and releases nothing.
		restarted := start(t, began, l, "again", func(_ *candidate, c *Config) { c.Former = "first" })
		if at := <-restarted.begun; at != 0 {
			t.Errorf("it waited %s", at)
		}
		first.finish()
		restarted.finish()
	})
}

func TestTheNamespaceIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeases()
		l.namespace = false
		c := start(t, time.Now(), l, "first", func(_ *candidate, c *Config) {
			c.CreateNamespace = func(context.Context) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.namespace = true
				return nil
			}
		})
		if at := <-c.begun; at != 0 {
			t.Errorf("it waited %s", at)
		}
		c.finish()
	})
}

// refusing is how a process reaches the Lease that has not all rights on it.
type refusing struct {
	*access

	get, create error
}

func (r *refusing) Leases(string) coordinationclient.LeaseInterface { return r }

func (r *refusing) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if r.get != nil {
		return nil, r.get
	}
	return r.access.Get(ctx, name, o)
}

func (r *refusing) Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if r.create != nil {
		return nil, r.create
	}
	return r.access.Create(ctx, l, o)
}

func TestACandidateTellsWhyItCannotLead(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "engine", errors.New("no RBAC policy matched"))
	for name, tc := range map[string]struct{ get, create, want error }{
		"no right to read":  {forbidden, nil, forbidden},
		"no right to write": {nil, forbidden, forbidden},
		"all rights":        {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, time.Now(), newLeases(), "first", func(x *candidate, c *Config) {
					c.Client = &refusing{x.access, tc.get, tc.create}
				})
				synctest.Wait()
				if err := c.Failure(); !errors.Is(err, tc.want) {
					t.Errorf("it says %v, want %v", err, tc.want)
				}
				if tc.want == nil {
					c.access.set(true)
					<-time.After(deadline / 2)
					if err := c.Failure(); !errors.Is(err, errUnreachable) {
						t.Errorf("cut off, it says %v", err)
					}
				}
				c.finish()
			})
		})
	}
}

func TestALeaseThatAnotherOneTookIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeases()
		c := start(t, time.Now(), l, "first")
		<-c.begun
		other, holder := &access{leases: l}, "other"
		lease, err := other.Get(t.Context(), "", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &now
		if _, err := other.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if over := <-c.over; over > retry {
			t.Errorf("it led on for %s", over)
		}
		if cause := <-c.causes; !errors.Is(cause, ErrLost) {
			t.Errorf("the term ended with %v", cause)
		}
		c.finish()
	})
}

func TestWrongTimesAreRefused(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"no duration":              func(c *Config) { c.LeaseDuration = 0 },
		"parts of seconds":         func(c *Config) { c.LeaseDuration += time.Millisecond },
		"a deadline that is late":  func(c *Config) { c.RenewDeadline = c.LeaseDuration },
		"a deadline without tries": func(c *Config) { c.RetryPeriod = c.RenewDeadline },
		"no identity":              func(c *Config) { c.Identity = "" },
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{
				Client: &access{}, Namespace: "server", Name: "engine", Identity: "first",
				LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry,
			}
			edit(&c)
			if _, err := New(c); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// transport answers requests, unless it is told to wait for the end of their contexts, before its response or within.
type transport struct{ waits, stalls bool }

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case f.waits:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case f.stalls:
		return &http.Response{StatusCode: http.StatusOK, Body: stalled{r.Context()}}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// stalled is the body of a response of which nothing comes.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (stalled) Close() error { return nil }

// send sends a request through a fence, and reads the response.
func send(ctx context.Context, f *Fence, next http.RoundTripper, method string) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://cluster/", http.NoBody)
	if err != nil {
		return err
	}
	response, err := f.Wrap(next).RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func TestAFenceLetsWritesThroughDuringATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Fence
		expect := func(when string, want error) {
			t.Helper()
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				if err := send(t.Context(), &f, transport{}, method); !errors.Is(err, want) {
					t.Errorf("%s, %s: %v", when, method, err)
				}
			}
			if err := send(t.Context(), &f, transport{}, http.MethodGet); err != nil {
				t.Errorf("%s, a read: %v", when, err)
			}
		}
		expect("before an election", ErrNotLeading)
		term := newTerm(t.Context(), 10*time.Second)
		shut := f.open(term)
		expect("before the Lease is held", ErrNotLeading)
		term.renew(time.Now(), 3)
		expect("while it is held", nil)
		time.Sleep(6 * time.Second) //nolint:forbidigo // It is the time of a bubble.
		term.renew(time.Now(), 3)
		time.Sleep(9 * time.Second) //nolint:forbidigo // It is the time of a bubble.
		expect("after a renewal", nil)
		time.Sleep(time.Second) //nolint:forbidigo // It is the time of a bubble.
		expect("at the deadline", ErrNotLeading)
		term.renew(time.Now(), 3)
		expect("after a renewal that was late", ErrNotLeading)
		if cause := context.Cause(term.over); !errors.Is(cause, ErrLost) {
			t.Errorf("the term ended with %v", cause)
		}
		shut()
	})
}

func TestAFenceLetsThroughWhatChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		method, url string
		want        error
	}{
		"a dry run":                    {http.MethodPatch, "/api/v1/namespaces/a/configmaps/b?fieldManager=c&dryRun=All", nil},
		"a deletion as a dry run":      {http.MethodDelete, "/api/v1/namespaces/a/configmaps/b?dryRun=All", nil},
		"a review of rights":           {http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil},
		"a dry run of nothing":         {http.MethodPatch, "/api/v1/namespaces/a/configmaps/b?dryRun=", ErrNotLeading},
		"a name that looks like one":   {http.MethodPost, "/api/v1/namespaces/a/configmaps/dryRun=All", ErrNotLeading},
		"a token":                      {http.MethodPost, "/api/v1/namespaces/a/serviceaccounts/b/token", ErrNotLeading},
		"a write of an object of that": {http.MethodPut, "/apis/authorization.k8s.io/v1/subjectaccessreviews/a", ErrNotLeading},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), test.method, test.url, http.NoBody)
			response, err := (&Fence{}).Wrap(transport{}).RoundTrip(r)
			if err == nil {
				err = response.Body.Close()
			}
			if !errors.Is(err, test.want) {
				t.Errorf("it ends with %v, want %v", err, test.want)
			}
		})
	}
}

func TestAFenceEndsWritesUnderWay(t *testing.T) {
	for name, next := range map[string]transport{"BeforeTheResponse": {waits: true}, "WithinTheResponse": {stalls: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f Fence
				term := newTerm(t.Context(), 10*time.Second)
				defer f.open(term)()
				term.renew(time.Now(), 0)
				began := time.Now()
				if err := send(t.Context(), &f, next, http.MethodPatch); !errors.Is(err, ErrLost) || time.Since(began) != 10*time.Second {
					t.Errorf("it ended after %s with %v", time.Since(began), err)
				}
			})
		})
	}
}

func TestATermEnds(t *testing.T) {
	for name, test := range map[string]struct {
		renew func(*term)
		want  error
	}{
		"not while it is renewed": {func(t *term) { t.renew(time.Now(), 1) }, nil},
		"with one of another":     {func(t *term) { t.renew(time.Now(), 2) }, ErrLost},
		"by the time of requests": {func(t *term) { t.renew(time.Now().Add(-10*time.Second), 1) }, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				term := newTerm(t.Context(), 10*time.Second)
				term.renew(time.Now(), 1)
				time.Sleep(5 * time.Second) //nolint:forbidigo // It is the time of a bubble.
				test.renew(term)
				synctest.Wait()
				if held := term.holds(); held != (test.want == nil) || !errors.Is(context.Cause(term.over), test.want) {
					t.Errorf("held: %t, the end: %v", held, context.Cause(term.over))
				}
				term.end(nil)
			})
		})
	}
}
