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

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

const (
	// maxMessage bounds the texts of errors in the status.
	maxMessage = 500
	// maxCondition bounds the message of a condition, which may have a command after the text of an error.
	maxCondition = 2000
	// recheckInterval is how often credentials that could not be used are read again, though no change was seen: what is not read for a
	// while is not watched.
	recheckInterval = 30 * time.Second
)

// Activity has an element after something happened that Health, Counters, Hooks or LastErrors may show, but for what only time changes.
func (c *Controller) Activity() <-chan struct{} { return c.activity }

func (c *Controller) active() { c.activity.raise() }

// Health returns how the controller is doing.
func (c *Controller) Health() State {
	s := State{
		Problem: c.Problem(), Missing: c.Missing(), Called: c.hooks.Called(), Parents: c.parents.len(), Failing: c.queue.Failing(),
		Permission: c.shared.Access.State(), Paused: c.paused.Load(), UnderWay: c.queue.UnderWay(),
		Object: c.config.Definition.KubectlName(),
	}
	if held, ok := c.guard.Held(); ok {
		s.Held = held.Summary() + held.Explain(s.Object)
	}
	select {
	case <-c.started:
		s.Started = true
		s.Unsynced, s.Rolling, s.Outdated = c.parents.left()
	default:
	}
	s.Finalizing, s.FinalizingAt = c.stuck(time.Now())
	s.Differing, s.ChangedBack = c.settling.Unsettled(time.Now(), c.parents.settling)
	s.DiffersAt, s.ChangedBackAt = loaded(&c.unsettled.differs), loaded(&c.unsettled.changedBack)
	for _, f := range c.hooks.Failing() {
		s.Hooks = append(s.Hooks, FailingHook{
			Name: string(f.Hook), Since: f.Since, Cause: f.Cause, Credentials: f.Credentials, Blocking: f.Unreachable && c.blocks(f.Hook),
		})
	}
	if s.AllFailing() {
		var first queue.Failed
		if first, s.Unserved = c.queue.LongestFailing(func(f queue.Failed) bool { return onlyUnserved(f.Err) }); first.Err != nil {
			s.Error = fmt.Sprintf("%s: %s", first.Key, events.Shorten(message(first.Err), maxMessage))
		}
	}
	return s
}

// blocks reports whether there are syncs and none can succeed without a hook. Responses of the customize hook are remembered, and only
// parents that are being deleted are finalized. Where no parent is to be synced again, those that
// needed the hook are gone or being finalized.
func (c *Controller) blocks(name hook.Name) bool {
	switch {
	case c.parents.len() == 0 || c.queue.Retrying() == 0:
		return false
	case name == hook.Finalize:
		return c.hooks.Sync == nil
	case name == hook.Customize:
		return c.queue.Counters.Syncs.Load() == 0
	default:
		return true
	}
}

// Counters returns what the controller did so far.
func (c *Controller) Counters() *v1alpha1.ControllerCounters {
	failing := c.queue.Failing()
	differing, changedBack := c.settling.Unsettled(time.Now(), c.parents.settling)
	return &v1alpha1.ControllerCounters{
		Parents: int64(c.parents.len()), Syncs: c.queue.Counters.Syncs.Load(), FailedSyncs: c.queue.Counters.Failed.Load(),
		RejectedAnswers: c.counted.rejected.Load(), Conflicts: c.counted.conflicts.Load(), Flapping: c.counted.flapping.Load(),
		Failing: int64(failing), Pending: int64(c.queue.Pending()), Synced: int64(max(0, c.parents.len()-c.parents.total().unsynced-failing)),
		Unsettled: int64(differing + changedBack),
	}
}

// loaded returns a text, shortened, empty if there is none.
func loaded(text *atomic.Pointer[string]) string {
	if s := text.Load(); s != nil {
		return events.Shorten(*s, maxMessage)
	}
	return ""
}

// Hooks returns how the calls of the hooks have gone.
func (c *Controller) Hooks() []v1alpha1.HookStatus { return c.hooks.Statuses() }

// LastErrors returns the errors of parents whose last sync failed, the latest first.
func (c *Controller) LastErrors() []v1alpha1.ParentError {
	var list []v1alpha1.ParentError
	for _, e := range c.queue.Errors() {
		list = append(list, v1alpha1.ParentError{
			Group: e.Key.Resource().Group, Resource: e.Key.Resource().Resource, Namespace: e.Key.Namespace, Name: e.Key.Name,
			Time: metav1.NewTime(e.Time.Truncate(time.Second)), Message: events.Shorten(message(e.Err), maxMessage),
		})
	}
	return list
}

// checkHooks looks, without a call, whether hooks can be called: now, when their credentials or the kinds of inline hooks change, and from time to
// time while they cannot.
func (c *Controller) checkHooks(ctx context.Context) {
	for ctx.Err() == nil {
		usable := true
		if !c.shared.Access.Held() { // Credentials must not be read now, and are looked at when they may.
			_ = recovery.Call(ctx, "checking whether hooks can be called", func() error { // It is logged.
				usable = c.hooks.Check(ctx)
				return nil
			})
			c.active()
		}
		if usable && c.hooks.Inline() {
			c.queue.RetryFailed(func(err error) bool {
				_, wrong := errors.AsType[*hooks.CompileError](err)
				return wrong
			})
		}
		var again <-chan time.Time
		if !usable {
			again = time.After(recheckInterval)
		}
		select {
		case <-ctx.Done():
		case <-c.recheck:
		case <-again:
		}
	}
}

// contextError says what was being done to the parent when an error occurred. The log has it. Events on the parent leave it out: they
// are about the parent, and begin with what is wrong.
type contextError struct {
	doing string
	err   error
}

// InContext says of an error what was being done to the parent.
func InContext(doing string, err error) error { return &contextError{doing, err} }

// Error implements error.
func (e *contextError) Error() string { return e.doing + ": " + e.err.Error() }

// Unwrap returns the error.
func (e *contextError) Unwrap() error { return e.err }

// message returns the text of an error of a sync for people who look at the parent.
func message(err error) string {
	switch e := err.(type) { //nolint:errorlint // What is wrapped has its turn.
	case *contextError:
		return message(e.err)
	case interface{ Unwrap() []error }:
		var whole, texts []string
		for _, each := range e.Unwrap() {
			whole, texts = append(whole, each.Error()), append(texts, message(each))
		}
		if err.Error() == strings.Join(whole, "\n") {
			return strings.Join(texts, "; ") // They were joined, and not made a sentence of.
		}
	}
	return err.Error()
}

// permitted is called when the service account may do what it could not do before. What was held is synced when that is over, and what was
// being finalized: nobody called the hook meanwhile, perhaps.
func (c *Controller) permitted(released bool) {
	defer c.active()
	if released {
		for _, key := range c.parents.restart() {
			c.queue.Add(key, queue.Live, history.Of(v1alpha1.SyncControllerChanged))
		}
		for _, r := range c.parents.all() {
			c.queue.Release(r.key)
		}
		c.retries.raise()
	}
	c.queue.RetryFailed(func(err error) bool { return access.IsNotPermitted(err) || forbidden(err) })
	c.recheck.raise()
}

// causes yields an error, those that it wraps and those that it joins.
func causes(err error) iter.Seq[error] {
	return func(yield func(error) bool) { eachCause(err, yield) }
}

func eachCause(err error, yield func(error) bool) bool {
	if err == nil || !yield(err) {
		return err == nil
	}
	switch e := err.(type) { //nolint:errorlint // What is wrapped has its turn.
	case interface{ Unwrap() error }:
		return eachCause(e.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(each error) bool { return !eachCause(each, yield) })
	}
	return true
}

// some reports whether something is true of an error, or of one of those that it wraps or joins.
func some(err error, is func(error) bool) bool {
	for each := range causes(err) {
		if is(each) {
			return true
		}
	}
	return false
}

// forbidden reports whether an error, or one of those that it joins, says that an API server refused a request.
func forbidden(err error) bool {
	return some(err, func(each error) bool {
		status, ok := each.(apierrors.APIStatus)
		return ok && status.Status().Code == http.StatusForbidden
	})
}

// unservedError says that a sync did what it could without a declared kind that the cluster does not serve.
type unservedError struct{ text string }

// Error implements error.
func (e *unservedError) Error() string { return e.text }

// onlyUnserved reports whether an error is an *unservedError, or joins no others.
func onlyUnserved(err error) bool {
	switch e := err.(type) { //nolint:errorlint // What is wrapped has its turn.
	case *unservedError:
		return true
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(each error) bool { return !onlyUnserved(each) })
	case interface{ Unwrap() error }:
		return onlyUnserved(e.Unwrap())
	}
	return false
}

// notices remember what was said about the definition of a controller, which only responses show. Each is said once.
type notices struct {
	labels, status, leftOut atomic.Bool
	lost                    lostFields
}

// maxLost bounds the fields that are remembered as lost. Of more, nothing is said.
const maxLost = 32

// lostFields are fields of statuses of which it was said that they are lost.
type lostFields struct {
	mu   sync.Mutex
	said map[string]bool
}

// news returns those of some fields of which nothing was said yet, and remembers them.
func (f *lostFields) news(paths []string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range paths {
		if f.said[path] || len(f.said) == maxLost {
			continue
		}
		f.said = with(f.said, path, true)
		found = append(found, path)
	}
	return found
}

// notice says what is wrong with the definition in the light of a response.
func (s *Sync) notice() {
	c, d := s.controller, s.controller.config.Definition
	if d.Kind == v1alpha1.KindDecorator && c.hooks.Finalize == nil && !c.noticed.labels.Load() {
		if names := s.sets(); len(names) > 0 && c.noticed.labels.CompareAndSwap(false, true) {
			c.shared.Recorder.Warning(d.Reference(), events.ReasonLabelsStay, fmt.Sprintf(
				"The hook sets %s of %s, and there is no finalize hook to take such labels and annotations off: they stay when an object is not "+
					"selected any more, and when the controller is deleted. Declare spec.hooks.finalize, which returns null for them, unless "+
					"they may stay", strings.Join(names, ", "), s.Parent))
		}
	}
	if d.Kind == v1alpha1.KindComposite && len(s.Decision.Status) > 0 && !s.Source.Resource.HasStatus && c.noticed.status.CompareAndSwap(false, true) {
		c.shared.Recorder.Warning(d.Reference(), events.ReasonStatusIgnored, statusIgnored(s.Source.Resource.GroupResource(), c.origin(s.Source)))
	}
}

// noticeLeftOut says that requests of a version leave out related objects. The first one of a kind stands for all.
func (s *Sync) noticeLeftOut(version v1alpha1.HookVersion) {
	c, d := s.controller, s.controller.config.Definition
	for _, g := range s.Related {
		if len(g.Objects) == 0 || !wire.LeavesOut(version, s.Key.Namespace, g.Objects[0].Namespace()) {
			continue
		}
		if c.noticed.leftOut.CompareAndSwap(false, true) {
			c.shared.Recorder.Warning(d.Reference(), events.ReasonRelatedLeftOut, fmt.Sprintf(
				"The customize hook selects objects of %s for %s, and requests of version v1 about a parent in a namespace leave out what is not in it. "+
					"Set version: v2 of the hooks, whose requests name objects as namespace/name", g.Key, s.Parent))
		}
		return
	}
}

// sets returns the labels and annotations that the response sets.
func (s *Sync) sets() (names []string) {
	for _, part := range []struct {
		noun   string
		values map[string]*string
	}{{"label", s.Decision.Labels}, {"annotation", s.Decision.Annotations}} {
		for _, name := range slices.Sorted(maps.Keys(part.values)) {
			if part.values[name] != nil {
				names = append(names, part.noun+" "+name)
			}
		}
	}
	return names[:min(len(names), 3)]
}

// noticeLost says which fields of a status that was written the parents cannot have, and returns those of this one.
func (c *Controller) noticeLost(source *Source, sent map[string]any, written *object.Object) []string {
	if sent == nil {
		return nil
	}
	lost := slices.DeleteFunc(parent.LostOfStatus(sent, written), func(path string) bool {
		return source.ReportsGeneration && path == "status."+observedGeneration // No hook returns it.
	})
	c.noticeFields(lost, func(news []string) string {
		return statusIncomplete(news, written, source.Resource.GroupResource(), c.origin(source))
	})
	return lost
}

// noticeFields says of fields of a status, each once, why they are not stored.
func (c *Controller) noticeFields(fields []string, text func(news []string) string) {
	if news := c.noticed.lost.news(fields); len(news) > 0 {
		c.shared.Recorder.Warning(c.config.Definition.Reference(), events.ReasonStatusIncomplete, text(news))
	}
}

// State is what a running controller knows of how it is doing. Package manager publishes the conditions that follow from it.
type State struct {
	// Started says that the caches are filled and parents are reconciled.
	Started bool
	// Problem says why the controller cannot list or watch its objects, nil if it can.
	Problem error
	// Missing are the declared resources that the cluster does not serve and that the controller does without.
	Missing []string
	// Hooks are the hooks of which all recent calls have failed.
	Hooks []FailingHook
	// Called says that the outcome of a call of a hook is known.
	Called bool
	// Parents is the number of parents, Failing that of those whose last sync failed, and Unserved that of those among them that could not be
	// given children of kinds that the cluster does not serve, and with which nothing else was wrong.
	Parents, Failing, Unserved int
	// Error is the error of the parent whose syncs have failed for the longest time, with its name; empty if there is none. Parents that
	// Unserved counts are left out.
	Error string
	// Unsynced is the number of parents that were not synced since the start; zero from the moment at which all were.
	Unsynced int
	// Rolling is the number of parents with a rolling update under way, and Outdated that of their children that are not on the latest
	// revision.
	Rolling, Outdated int
	// Finalizing is the number of parents for which the finalize hook has not returned "finalized": true for a minute, or whose syncs fail until
	// it does. FinalizingAt says of one of them which it is, what is wrong, and what to do.
	Finalizing   int
	FinalizingAt string
	// Differing is the number of parents about which the hook returns something else each time, and ChangedBack that of parents to which
	// another client writes what the controller wrote before. DiffersAt and ChangedBackAt say of the last one which place that is and what
	// to do.
	Differing, ChangedBack   int
	DiffersAt, ChangedBackAt string
	// Permission is what the controller's service account may do.
	Permission access.State
	// Releasing says how far the release of finalizers is, empty if none is under way.
	Releasing string
	// Paused says that the definition pauses the controller, UnderWay how many syncs, and releases of a finalizer, are under way, and Object
	// what kubectl names the controller object.
	Paused   bool
	UnderWay int
	Object   string
	// Held says which deletions are held and how to confirm them, empty if none is.
	Held string
	// SyncsFailing says that the last sync of every parent has failed, and not only for a moment.
	SyncsFailing bool
}

// FailingHook is a hook of which all recent calls have failed.
type FailingHook struct {
	// Name is that of the hook in spec.hooks.
	Name string
	// Since is when the first of these calls failed.
	Since time.Time
	// Cause is why the last of them failed, and what to do.
	Cause string
	// Credentials says that a Secret or ConfigMap is missing or cannot be used.
	Credentials bool
	// Blocking says that no sync can succeed until the hook can be called again.
	Blocking bool
}

// AllFailing reports whether the last sync of every parent has failed. Where a kind is not served, syncs do what they can and fail all the same:
// those do not count.
func (s *State) AllFailing() bool { return s.Parents > 0 && s.Failing-s.Unserved >= s.Parents }
