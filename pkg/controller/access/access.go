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
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

const (
	// interval is the longest time between two reviews of the same rights, so that what is given or taken shows within it.
	interval = 28 * time.Second
	// jitter is the part of the interval by which it may be shorter, so that controllers do not ask at the same time.
	jitter = 0.25
	// retry is the time after which a review that failed is made again, and the least time between two reviews.
	retry = 5 * time.Second
	// patience is how long one review of all rights may take.
	patience = 20 * time.Second
	// valid is how long the last review counts while no other one succeeds.
	valid = 2 * time.Minute
	// lasting is how long a write counts that was refused and is not refused again: clearly longer than between two tries. A parent whose sync
	// failed is tried again within DefaultMaxDelay; one that does not settle is held back, and the release of finalizers is retried, within
	// as long.
	lasting = 3 * queue.MaxBackoff
	// maxRefused is how many different writes that were refused are remembered.
	maxRefused = 100
)

// Cluster says what service accounts may do.
type Cluster interface {
	// Exists reports whether the account is there.
	Exists(ctx context.Context, a rights.Account) (bool, error)
	// Impersonates reports whether this server may act as the account.
	Impersonates(ctx context.Context, a rights.Account) (bool, error)
	// Missing returns which of the wanted rights the account lacks, in their order.
	Missing(ctx context.Context, a rights.Account, wanted []rights.Right) ([]rights.Right, error)
}

// Config is what an Access is made of. Random may be nil.
type Config struct {
	// Account is the service account.
	Account rights.Account
	// Needs are the rights that the definition uses.
	Needs rights.Needs
	// Cluster is asked.
	Cluster Cluster
	// Random returns numbers in [0,1) for the jitter. Default: math/rand/v2.
	Random func() float64
}

// Access is what the service account of one controller may do. It is safe for concurrent use, and so is nil, which permits everything.
type Access struct {
	config Config
	reads  []rights.Right
	wake   chan struct{}

	mu sync.Mutex
	// state is that of the last review.
	state State
	// reviewed is when the last review succeeded, zero for never.
	reviewed time.Time
	// permits has the rights that were reviewed, and whether the account has them.
	permits map[rights.Right]bool
	// refused are writes that were refused and not allowed since, by when that was last.
	refused map[rights.Right]time.Time
	// paused says that nothing is written.
	paused bool
}

// New returns the access of a controller. It holds the controller until Run has reviewed it.
func New(c Config) *Access {
	if c.Random == nil {
		c.Random = rand.Float64
	}
	return &Access{
		config: c, reads: c.Needs.Reads(), wake: make(chan struct{}, 1), state: State{Account: c.Account.String(), Held: true},
		permits: map[rights.Right]bool{}, refused: map[rights.Right]time.Time{},
	}
}

// Held reports whether hooks may be shown nothing at present.
func (a *Access) Held() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.Held
}

// Pause says whether the controller is paused, and writes nothing: what was refused before then counts until it goes on.
func (a *Access) Pause(paused bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(time.Now())
	a.paused = paused
}

// Run reviews until ctx ends: what the definition needs, and the related objects of the resources that related returns. It calls changed, from its own
// goroutine, whenever something is permitted that was not before; released says that the controller was held, and is not any more.
func (a *Access) Run(ctx context.Context, related func() sets.Set[schema.GroupResource], changed func(released bool)) {
	if a == nil {
		return
	}
	for ctx.Err() == nil {
		delay, better, released := retry, false, false
		err := recovery.Call(ctx, "reviewing the rights of a service account", func() (err error) {
			better, released, err = a.review(ctx, related())
			return err
		})
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			delay = time.Duration(float64(interval) * (1 - jitter*a.config.Random()))
		} else {
			klog.FromContext(ctx).V(2).Info("Rights of the service account are not known; asking again", "account", a.config.Account, "err", err)
		}
		if better {
			_ = recovery.Call(ctx, "continuing with new rights", func() error { changed(released); return nil }) // It is logged, and counted.
		}
		a.sleep(ctx, delay)
	}
}

// sleep waits until the next review is due. One that is asked for comes earlier.
func (a *Access) sleep(ctx context.Context, delay time.Duration) {
	soon := min(retry, delay)
	select {
	case <-ctx.Done():
	case <-time.After(soon):
	}
	select {
	case <-ctx.Done():
	case <-time.After(delay - soon):
	case <-a.wake:
	}
}

// review asks for everything once. It reports whether something is permitted that was not before, and whether the controller was held and is
// not any more.
func (a *Access) review(ctx context.Context, related sets.Set[schema.GroupResource]) (better, released bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wanted := a.wanted(related)
	found := finding{}
	if found.exists, err = a.config.Cluster.Exists(ctx, a.config.Account); err == nil && found.exists {
		found.impersonates, err = a.config.Cluster.Impersonates(ctx, a.config.Account)
	}
	if err == nil && found.impersonates {
		found.missing, err = a.config.Cluster.Missing(ctx, a.config.Account, wanted)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if a.state.Problem = err; a.reviewed.IsZero() || time.Since(a.reviewed) > valid {
			a.state.Held, a.state.Known = true, false
		}
		return false, false, err
	}
	better, released = a.accept(found, wanted)
	return better, released, nil
}

// finding is what a review found.
type finding struct {
	exists, impersonates bool
	missing              []rights.Right
}

// wanted returns the rights to ask for.
func (a *Access) wanted(related sets.Set[schema.GroupResource]) []rights.Right {
	reads := readsOf(related.UnsortedList())
	slices.SortFunc(reads, rights.Right.Compare)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(time.Now())
	wanted := slices.Clone(a.reads)
	for _, right := range slices.Concat(reads, slices.SortedFunc(maps.Keys(a.refused), rights.Right.Compare)) {
		if !slices.Contains(wanted, right) {
			wanted = append(wanted, right)
		}
	}
	return wanted
}

// accept takes what a review found as the state. It is called with the lock held.
func (a *Access) accept(f finding, wanted []rights.Right) (better, released bool) {
	before, former := a.state, a.permits
	a.reviewed, a.permits = time.Now(), make(map[rights.Right]bool, len(wanted))
	a.state = State{Account: before.Account, Known: true, NotFound: !f.exists, NotImpersonated: f.exists && !f.impersonates}
	a.state.Held = !f.impersonates
	if !f.impersonates {
		return false, false // Nothing was reviewed.
	}
	for _, right := range wanted {
		if a.permits[right] = !slices.Contains(f.missing, right); a.permits[right] {
			delete(a.refused, right)
			permitted, known := former[right]
			better = better || known && !permitted
		}
	}
	for _, right := range a.reads {
		a.state.Held = a.state.Held || !a.permits[right]
	}
	a.state.Missing = f.missing
	released = before.Held && !a.state.Held
	return better || released, released
}

// NotPermittedError says that a service account lacks rights on related objects.
type NotPermittedError struct {
	// Account is the service account, as namespace/name.
	Account string
	// Missing are the rights.
	Missing []rights.Right
}

// Error implements error.
func (e *NotPermittedError) Error() string {
	return "the service account " + e.Account + " may not " + lines(e.Missing) + ", which the customize hook names as related; grant that to it"
}

// Relate says whether objects of resources may be related. The error is a *NotPermittedError if the account may not list and watch all of
// them, or one that says that the cluster could not be asked. What it says is remembered until the next review if remember is true.
func (a *Access) Relate(ctx context.Context, resources []schema.GroupResource, remember bool) error {
	if a == nil {
		return nil
	}
	wanted := readsOf(resources)
	// A review that began before this may end at any time, and knows nothing of what is found out here.
	unknown, denied := a.reviewedOf(wanted)
	if len(unknown) > 0 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		missing, err := a.config.Cluster.Missing(ctx, a.config.Account, unknown)
		if err != nil {
			return err
		}
		if remember {
			a.learn(unknown, missing)
		}
		denied = append(denied, missing...)
	}
	if len(denied) == 0 {
		return nil
	}
	missing := slices.DeleteFunc(wanted, func(right rights.Right) bool { return !slices.Contains(denied, right) })
	return &NotPermittedError{Account: a.config.Account.String(), Missing: missing}
}

// readsOf are the rights to list and watch resources.
func readsOf(resources []schema.GroupResource) []rights.Right {
	wanted := make([]rights.Right, 0, 2*len(resources))
	for _, r := range resources {
		for _, verb := range []string{rights.List, rights.Watch} {
			wanted = append(wanted, rights.Right{Verb: verb, Group: r.Group, Resource: r.Resource})
		}
	}
	return wanted
}

// Len returns how many rights are remembered. Nil remembers none.
func (a *Access) Len() int {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.permits) + len(a.refused)
}

// reviewedOf returns those of some rights that were not reviewed, and those that were missing.
func (a *Access) reviewedOf(wanted []rights.Right) (unknown, denied []rights.Right) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, right := range wanted {
		switch permitted, known := a.permits[right]; {
		case !known:
			unknown = append(unknown, right)
		case !permitted:
			denied = append(denied, right)
		}
	}
	return unknown, denied
}

// learn takes what was found out about rights beside the reviews.
func (a *Access) learn(reviewed, missing []rights.Right) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, right := range reviewed {
		if _, known := a.permits[right]; known {
			continue // A review was faster.
		}
		if a.permits[right] = !slices.Contains(missing, right); !a.permits[right] {
			a.state.Missing = append(slices.Clip(a.state.Missing), right)
		}
	}
}

// IsNotPermitted reports whether an error, or one that it wraps, says that the account lacks a right on related objects.
func IsNotPermitted(err error) bool {
	_, ok := errors.AsType[*NotPermittedError](err)
	return ok
}

// maxLines is how many resources with missing rights a text names.
const maxLines = 10

// State is what a service account may do, as far as its controller needs it.
type State struct {
	// Account is the service account, as namespace/name. Empty: the controller has none, and the rest says nothing.
	Account string
	// Known says that the cluster was asked, and not too long ago.
	Known bool
	// Held says that hooks are shown nothing.
	Held bool
	// Problem is why the last review failed, nil if it did not.
	Problem error
	// NotFound says that the account does not exist, NotImpersonated that this server may not act as it.
	NotFound, NotImpersonated bool
	// Missing are the rights that the account lacks.
	Missing []rights.Right
}

// State returns the present state. That of nil is empty.
func (a *Access) State() State {
	if a == nil {
		return State{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Lacks says which rights are missing, as in "list, watch pods; create pods in namespace team". Empty: none.
func (s *State) Lacks() string { return lines(s.Missing) }

func lines(missing []rights.Right) string {
	list := rights.Lines(missing)
	if more := len(list) - maxLines; more > 0 {
		list = append(list[:maxLines:maxLines], fmt.Sprintf("rights on %d more resources", more))
	}
	return strings.Join(list, "; ")
}

// parallel is how many reviews are made at the same time, for all controllers of the process together.
const parallel = 8

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// asked implements Cluster with requests in the server's own name.
type asked struct {
	reviewer *review.Reviewer
	self     authorizationclient.SelfSubjectAccessReviewInterface
	objects  *client.Client
}

// OfCluster returns what asks a cluster, for all controllers.
func OfCluster(reviews authorizationclient.AuthorizationV1Interface, objects *client.Client) Cluster {
	return &asked{
		reviewer: review.New(reviews.SubjectAccessReviews(), parallel), self: reviews.SelfSubjectAccessReviews(), objects: objects,
	}
}

// Exists implements Cluster. API servers authorize and impersonate accounts that do not exist, as long as roles are bound to them.
func (c *asked) Exists(ctx context.Context, a rights.Account) (bool, error) {
	_, err := c.objects.Get(ctx, client.Target{Resource: serviceAccounts, Namespace: a.Namespace, Name: a.Name})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the service account %s: %w", a, err)
	}
	return true, nil
}

// Impersonates implements Cluster.
func (c *asked) Impersonates(ctx context.Context, a rights.Account) (bool, error) {
	allowed, err := review.Own(ctx, c.self, a.Impersonate())
	if err != nil {
		return false, fmt.Errorf("asking whether the server may impersonate the service account %s: %w", a, err)
	}
	return allowed, nil
}

// Missing implements Cluster.
func (c *asked) Missing(ctx context.Context, a rights.Account, wanted []rights.Right) ([]rights.Right, error) {
	missing, err := c.reviewer.Missing(ctx, review.OfAccount(a), wanted)
	if err != nil {
		return nil, fmt.Errorf("asking what the service account %s may do: %w", a, err)
	}
	return missing, nil
}

// ownerProtection is in the message of the admission plugin OwnerReferencesPermissionEnforcement, which refuses the write of a child
// because of a right on the parent.
const ownerProtection = "blockOwnerDeletion"

// Observe takes note of how a request in the account's name ended, for [client.Identity]. A request may be refused for many reasons, such
// as a quota: the next review, which comes soon, says whether it was a right.
func (a *Access) Observe(_ context.Context, r client.Request, err error) {
	switch {
	case err == nil:
		a.succeeded(r)
	case apierrors.IsForbidden(err):
		a.refuse(a.suspects(r, err))
	}
}

// suspects returns the rights of which one may be missing.
func (a *Access) suspects(r client.Request, err error) []rights.Right {
	list := used(r)
	if !strings.Contains(err.Error(), ownerProtection) {
		return list
	}
	for _, right := range a.config.Needs.Kinds {
		if right.Subresource == rights.SubresourceFinalizers {
			right.Namespace = r.Target.Namespace
			list = append(list, right)
		}
	}
	return list
}

// used returns the rights that a request uses.
func used(r client.Request) []rights.Right {
	list := make([]rights.Right, len(r.Verbs))
	for i, verb := range r.Verbs {
		list[i] = rights.Right{
			Verb: verb, Group: r.Target.Resource.Group, Resource: r.Target.Resource.Resource, Subresource: r.Target.Subresource,
			Namespace: r.Target.Namespace,
		}
	}
	return list
}

func (a *Access) refuse(list []rights.Right) {
	a.mu.Lock()
	defer a.mu.Unlock()
	news := false
	for _, right := range list {
		if _, known := a.refused[right]; known || len(a.refused) < maxRefused {
			a.refused[right] = time.Now()
			news = news || !known
		}
	}
	if news {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// expire drops the writes that are not tried any more. While the controller is held or paused none is tried, which says nothing. It is called with
// the lock held.
func (a *Access) expire(now time.Time) {
	for right, at := range a.refused {
		switch {
		case a.state.Held || a.paused:
			a.refused[right] = now
		case now.Sub(at) > lasting:
			delete(a.refused, right)
		}
	}
}

// succeeded takes back what was missing, until the next review.
func (a *Access) succeeded(r client.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.refused) == 0 {
		return
	}
	right := used(r)[0] // Of an application only the first verb is sure: the object may have been there.
	if _, ok := a.refused[right]; ok {
		delete(a.refused, right)
		if _, known := a.permits[right]; known {
			a.permits[right] = true
		}
		a.state.Missing = slices.DeleteFunc(slices.Clone(a.state.Missing), func(m rights.Right) bool { return m == right })
	}
}
