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

package eventrecorder

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

const (
	// maxQueued is how many events may wait in a lane; more are dropped.
	maxQueued = 1000
	// maxTries and retryDelay are how often an event is sent that the API server did not respond to, and how long after the
	// try before. Events that come after it wait.
	maxTries   = 12
	retryDelay = 10 * time.Second
)

// lane writes the events of some objects, one after the other.
type lane struct {
	events     chan queued
	client     typedcorev1.EventInterface
	correlator *record.EventCorrelator
	// record records something else, in the lane of its subject.
	record func(note)
}

// queued is an event, with what it was made of.
type queued struct {
	note  note
	event *corev1.Event
}

// add queues an event. It never blocks.
func (l *lane) add(e queued) {
	select {
	case l.events <- e:
	default:
		metrics.EventDropped(metrics.QueueFull)
	}
}

// run writes events until stop is closed, and then those that are queued, each in one try at most, until end is closed. The rest is dropped.
func (l *lane) run(ctx context.Context, stop, end <-chan struct{}) {
	for {
		select {
		case e := <-l.events:
			l.process(ctx, e, stop)
		case <-stop:
			for len(l.events) > 0 {
				e := <-l.events
				select {
				case <-end:
					metrics.EventDropped(metrics.NotWritten)
				default:
					l.process(ctx, e, stop)
				}
			}
			return
		}
	}
}

// process writes an event and reports if that fails.
func (l *lane) process(ctx context.Context, q queued, stop <-chan struct{}) {
	e := q.event
	err := recovery.Call(ctx, "writing an event", func() error { return l.write(ctx, e, stop) })
	if err == nil {
		return
	}
	terminating := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	if terminating && q.note.instead != nil {
		l.record(q.note.moved())
		return
	}
	metrics.EventDropped(metrics.NotWritten)
	logger := klog.FromContext(ctx).WithValues("object", klog.KRef(e.InvolvedObject.Namespace, e.InvolvedObject.Name), "reason", e.Reason)
	select {
	case <-stop:
		logger.V(2).Info("Event is not written, for the server is being stopped", "cause", err.Error())
		return
	default:
	}
	// That its namespace is being deleted, or that it was written before, is ordinary.
	if apierrors.IsAlreadyExists(err) || terminating {
		logger.V(4).Info("Event is not written", "cause", err.Error())
		return
	}
	logger.Error(err, "Cannot write an event")
}

// write writes an event unless it is above the limits. Once stop is closed, it does not try again.
func (l *lane) write(ctx context.Context, e *corev1.Event, stop <-chan struct{}) error {
	result, err := l.correlator.EventCorrelate(e)
	if err != nil {
		return fmt.Errorf("combining it with the events before: %w", err)
	}
	if result.Skip {
		metrics.EventDropped(metrics.TooMany)
		return nil
	}
	for try := 1; ; try++ {
		err := l.send(ctx, result)
		if err == nil || final(err) || try == maxTries {
			return err
		}
		timer := time.NewTimer(retryDelay)
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			return err
		}
	}
}

// send creates an event or counts the one that is there, and remembers what the API server made of it.
func (l *lane) send(ctx context.Context, r *record.EventCorrelateResult) error {
	var written *corev1.Event
	var err error
	if r.Event.Count > 1 {
		written, err = l.client.PatchWithEventNamespaceWithContext(ctx, r.Event, r.Patch)
	}
	if r.Event.Count <= 1 || apierrors.IsNotFound(err) {
		r.Event.ResourceVersion = ""
		written, err = l.client.CreateWithEventNamespaceWithContext(ctx, r.Event)
	}
	if err == nil {
		l.correlator.UpdateState(written)
	}
	return err
}

// final reports whether it is no use to send the same event again: the API server refused it, or it cannot be sent.
func final(err error) bool {
	_, refused := errors.AsType[*apierrors.StatusError](err)
	_, unsendable := errors.AsType[*rest.RequestConstructionError](err)
	return refused || unsendable
}

const (
	// maxObjects is of how many objects the kinds of messages are remembered.
	maxObjects = 4096
	// maxKinds is how many kinds of messages about one object have a limit of their own. All others have one in common.
	maxKinds = 16
	// kindAge is the time after which a kind that did not occur makes room for another one.
	kindAge = 10 * time.Minute
)

// kinds gives every kind of message about an object a limit of its own, and bounds how many there are. Not safe for
// concurrent use.
type kinds struct {
	clock   clock.PassiveClock
	objects *lru.Cache
}

func newKinds(c clock.PassiveClock) *kinds { return &kinds{clock: c, objects: lru.New(maxObjects)} }

// keyOf returns the key of the limit for an event.
func (k *kinds) keyOf(e *corev1.Event) string {
	o := &e.InvolvedObject
	// Normal events must not take the places of warnings.
	object := strings.Join([]string{o.APIVersion, o.Kind, o.Namespace, o.Name, string(o.UID), e.Type}, "/")
	kind := e.Reason + "/" + normalize(e.Message)
	now := k.clock.Now()
	seen, ok := k.seen(object)
	if !ok {
		seen = map[string]time.Time{}
		k.objects.Add(object, seen)
	}
	if _, known := seen[kind]; !known && len(seen) >= maxKinds && !forgetOldest(seen, now) {
		return object
	}
	seen[kind] = now
	return object + "/" + kind
}

// seen returns when each kind of message about an object occurred last.
func (k *kinds) seen(object string) (map[string]time.Time, bool) {
	value, _ := k.objects.Get(object)
	seen, ok := value.(map[string]time.Time)
	return seen, ok
}

// forgetOldest drops the kind that did not occur for the longest time; false if all occurred recently.
func forgetOldest(seen map[string]time.Time, now time.Time) bool {
	oldest, since := "", now.Add(-kindAge)
	for kind, at := range seen {
		if !at.After(since) {
			oldest, since = kind, at
		}
	}
	delete(seen, oldest)
	return oldest != ""
}

// combined is what client-go puts before the message of an event that stands for many.
const combined = "(combined from similar events): "

// varying matches what differs between messages of one kind: UIDs, hashes, and numbers.
var varying = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b[0-9a-fA-F]{8,}\b|[0-9]+`)

// normalize returns the message without what differs between messages of one kind.
func normalize(message string) string {
	return varying.ReplaceAllString(strings.TrimPrefix(message, combined), "#")
}
