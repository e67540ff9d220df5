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
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clientleaderelection "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	// Registers leader_election_master_status.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
	"k8s.io/klog/v2"
)

// Config says for which Lease a process is a candidate, and how.
type Config struct {
	// Client reaches the cluster. It must not share a limit with what runs under the Lease. Required.
	Client coordinationclient.LeasesGetter
	// Namespace and Name are those of the Lease. Required.
	Namespace, Name string
	// Identity is that of this process; no other one has it. Required.
	Identity string
	// Former is the identity of a process that is known to have ended: its Lease is taken at once. Empty: none.
	Former string
	// LeaseDuration, in whole seconds, is how long others wait for the holder to renew the Lease; RenewDeadline, which is less, after what
	// time without a renewal the holder ends its term; RetryPeriod the time between renewals. Required.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// CreateNamespace creates the namespace of the Lease. It is called when that does not exist. Nil: the candidate waits for it.
	CreateNamespace func(context.Context) error
}

// requestTimeout keeps a request that is not answered from costing the Lease.
func (c *Config) requestTimeout() time.Duration {
	return min(max(time.Second, c.RenewDeadline/2), 10*time.Second)
}

// Elector is a candidate for a Lease. It is safe for concurrent use.
type Elector struct {
	config   Config
	fence    Fence
	observed observed
}

// New returns an elector. It asks for nothing before Stand.
func New(c Config) (*Elector, error) {
	e := &Elector{config: c}
	e.observed.see(&resourcelock.LeaderElectionRecord{})
	if c.LeaseDuration < time.Second || c.LeaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("the duration of a Lease is in whole seconds, not %s", c.LeaseDuration)
	}
	// It says what is wrong with the rest.
	if _, err := clientleaderelection.NewLeaderElector(e.election(e.lock(nil), func(context.Context) {})); err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	return e, nil
}

// Fence returns what refuses writes while this process does not lead.
func (e *Elector) Fence() *Fence { return &e.fence }

// Holder returns the identity of the process that holds the Lease, as far as this one knows; empty if none does.
func (e *Elector) Holder() string { return e.observed.holder() }

// Failure returns why this process cannot take the Lease: what was wrong with its last read of the Lease or, if nothing was, with its last write.
func (e *Elector) Failure() error { return e.observed.failure() }

// Vacant returns for how long nobody has held the Lease, as far as this process knows; 0 while somebody does.
func (e *Elector) Vacant() time.Duration { return max(0, -e.observed.remaining()) }

// Stand waits for the Lease until ctx ends, and calls lead once while this process holds it. The context of lead ends with ctx, in which
// case the Lease is held on until lead returns, or, with the cause [ErrLost], RenewDeadline after the last renewal. Stand returns after
// lead, when the Lease is released; it may be called again then. The error says why the Lease could not be released.
func (e *Elector) Stand(ctx context.Context, lead func(term context.Context)) error {
	// The Lease outlives ctx, until lead has returned.
	campaign, withdraw := context.WithCancel(context.WithoutCancel(ctx))
	defer withdraw()
	t := newTerm(campaign, e.config.RenewDeadline)
	lock, elected := e.lock(t), make(chan struct{})
	elector, err := clientleaderelection.NewLeaderElector(e.election(lock, func(context.Context) { close(elected) }))
	if err != nil {
		return fmt.Errorf("preparing the leader election: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		defer t.end(ErrLost)
		elector.Run(campaign)
	})
	// The elector would try on, as long as again.
	context.AfterFunc(t.over, withdraw) //nolint:contextcheck // The term has a context of its own.
	select {
	case <-elected:
		e.lead(ctx, t, lead)
	case <-t.over.Done(): // It was lost before it was used.
	case <-ctx.Done():
	}
	withdraw()
	running.Wait()
	if !lock.tried {
		return nil
	}
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	if err := lock.release(releasing); err != nil {
		return fmt.Errorf("releasing the Lease %s, which others can take %s after its last renewal: %w", lock.Describe(), e.config.LeaseDuration, err)
	}
	e.observed.see(&resourcelock.LeaderElectionRecord{})
	return nil
}

// releaseLimit is how long a process that ends waits for its Lease to be released.
const releaseLimit = 2 * time.Second

// lead calls lead with a context that ends with ctx, or when the Lease is lost.
func (e *Elector) lead(ctx context.Context, t *term, lead func(context.Context)) {
	leading, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(t.over, func() { end(context.Cause(t.over)) })() //nolint:contextcheck // The term has a context of its own.
	defer e.fence.open(t)()
	if !t.holds() {
		return
	}
	lead(leading)
	if errors.Is(context.Cause(t.over), ErrLost) { //nolint:contextcheck // The term has a context of its own.
		klog.FromContext(ctx).Error(ErrLost, "This process leads no more", "lease", e.config.Namespace+"/"+e.config.Name, "holder", e.Holder())
	}
}

func (e *Elector) lock(t *term) *lock {
	return &lock{config: &e.config, term: t, observed: &e.observed, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.config.Namespace, Name: e.config.Name},
		Client:     e.config.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.config.Identity},
	}}
}

func (e *Elector) election(l *lock, elected func(context.Context)) clientleaderelection.LeaderElectionConfig {
	return clientleaderelection.LeaderElectionConfig{
		Lock: l, Name: e.config.Name,
		LeaseDuration: e.config.LeaseDuration, RenewDeadline: e.config.RenewDeadline, RetryPeriod: e.config.RetryPeriod,
		Callbacks: clientleaderelection.LeaderCallbacks{OnStartedLeading: elected, OnStoppedLeading: func() {}},
	}
}

// ErrNotLeading is why a request was not sent.
var ErrNotLeading = errors.New("this process does not lead: it does not hold the Lease, or has not renewed it in time")

// Fence lets requests that write through while this process leads, and ends those under way when the Lease is lost. Requests that change nothing
// always pass: those that read, dry runs, and reviews of rights. It is safe for concurrent use; the zero value lets nothing through that writes.
type Fence struct{ term atomic.Pointer[term] }

// Wrap puts the fence in front of a transport, as the configurations of clients want it.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return &fenced{fence: f, next: next} }

// open lets writes through while a term lasts, until shut is called.
func (f *Fence) open(t *term) (shut func()) {
	f.term.Store(t)
	return func() { f.term.CompareAndSwap(t, nil) }
}

type fenced struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f *fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return f.next.RoundTrip(r) //nolint:wrapcheck // A RoundTripper passes errors on as they are.
	}
	t := f.fence.term.Load()
	if t == nil || !t.holds() {
		if changesNothing(r) {
			return f.next.RoundTrip(r) //nolint:wrapcheck // A RoundTripper passes errors on as they are.
		}
		if r.Body != nil {
			_ = r.Body.Close() // As a RoundTripper must.
		}
		return nil, ErrNotLeading
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	ignore := context.AfterFunc(t.over, func() { cancel(context.Cause(t.over)) }) //nolint:contextcheck // The term has a context of its own.
	end := func() {
		ignore()
		cancel(nil)
	}
	response, err := f.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, reason(ctx, err)
	}
	response.Body = body{response.Body, ctx, end}
	return response, nil
}

// changesNothing reports whether a request that is no read is a dry run or a review of rights. A process that does not lead makes them for plans.
func changesNothing(r *http.Request) bool {
	return r.URL.Query().Get("dryRun") == metav1.DryRunAll ||
		r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/apis/authorization.k8s.io/")
}

// reason returns ErrLost for the error of a request that ended because the Lease was lost: it says more than that the request was canceled.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
		return cause
	}
	return err
}

// WrappedRoundTripper lets client-go reach the transport below.
func (f *fenced) WrappedRoundTripper() http.RoundTripper { return f.next }

// body is the body of a response. Closing it ends the context of its request.
type body struct {
	io.ReadCloser

	ctx context.Context //nolint:containedctx // It is that of the request, of which the body is a part.
	end func()
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = reason(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // It is the transport's own.
}
