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

package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Component is the source of every event (docs/reference/contract.md#s18.4).
const Component = "metacontroller"

// Reasons of events on parents and controller objects.
const (
	ReasonSyncError     = "SyncError"
	ReasonSyncRecovered = "SyncRecovered"
	ReasonCreateError   = "CreateError"
	ReasonStarting      = "Starting"
	ReasonStarted       = "Started"
	ReasonStopping      = "Stopping"
	ReasonStopped       = "Stopped"
	ReasonPaused        = "Paused"
	ReasonResumed       = "Resumed"
	// ReasonNotPaused is for a parent whose annotation says in no valid way that it is to be paused.
	ReasonNotPaused = "NotPaused"
	// ReasonRolledBack is for a parent that got the fields of a former revision back because a user asked for it.
	ReasonRolledBack    = "RolledBack"
	ReasonFinalizeWaits = "FinalizeWaits"
	// ReasonRelatedNotServed is for a parent that is finalized without related objects, whose kind the cluster does not serve.
	ReasonRelatedNotServed = "RelatedNotServed"
	ReasonDeletionsHeld    = "DeletionsHeld"
	// ReasonReleaseError says that the controller's finalizer could not be taken off an object.
	ReasonReleaseError = "ReleaseError"
	// ReasonFinalizeSkipped is for a parent that its controller released while it was being finalized.
	ReasonFinalizeSkipped = "FinalizeSkipped"
	// ReasonResponseDiffers is for a parent about which the hook returns something else each time.
	ReasonResponseDiffers = "ResponseDiffers"
	// ReasonParentFlapping is for a parent to which another client writes what this controller wrote before.
	ReasonParentFlapping = "ParentFlapping"
	// ReasonStatusIgnored says that the hook returns a status, which the parents cannot have.
	ReasonStatusIgnored = "StatusIgnored"
	// ReasonStatusIncomplete says that the API server keeps only a part of the status that the hook returns.
	ReasonStatusIncomplete = "StatusIncomplete"
	// ReasonRelatedLeftOut says that the customize hook selects objects which the other hooks are not shown.
	ReasonRelatedLeftOut = "RelatedLeftOut"
	// ReasonLabelsStay says that nobody takes off the labels and annotations that a decorator sets.
	ReasonLabelsStay = "LabelsStay"
)

// FinalizeSkipped is the message of [ReasonFinalizeSkipped]: controller is its kind and name, and why says what became of it.
func FinalizeSkipped(controller, why string) string {
	return fmt.Sprintf("This object was being deleted and was not finalized, since the controller %s %s. What the finalize hook would have cleaned "+
		"up stays: look for it outside of the cluster. To have objects finalized, delete them before their controller", controller, why)
}

// NoLongerFinalizes is why a controller that is there skips the finalize hook.
const NoLongerFinalizes = "does not finalize it any more: its finalize hook, or the kind of the object, was taken out of spec"

const (
	// maxMessage is the length in bytes above which a message is cut; the API refuses notes over 1 KiB.
	maxMessage = 1000
	// requestTimeout ends a request that the API server does not respond to, so that the events behind it are written.
	requestTimeout = 30 * time.Second
	// lastRequest is how long a request that is under way at the end of the grace time may take. One that is cut off may have been carried out,
	// and is an error in the log.
	lastRequest = time.Second
	// normalQPS and normalBurst limit Normal events of the whole process.
	normalQPS   = 5
	normalBurst = 50
	// lanes is how many events are written at the same time. One lane writes one event after the other, so that an object's
	// events keep their order; with only one, the failures of one controller would hold up the events of all others.
	lanes = 8
	// maxQueued is how many events may wait in a lane; more are dropped.
	maxQueued = 1000
	// maxTries and retryDelay are how often an event is sent that the API server did not respond to, and how long after the
	// try before. Events that come after it wait.
	maxTries   = 12
	retryDelay = 10 * time.Second
)

// Options configure a Recorder.
type Options struct {
	// Config reaches the cluster that holds the events.
	Config *rest.Config
	// QPS and Burst limit the events of one kind of message about one object: Burst at once, then QPS per second. Defaults
	// 1/300 and 25.
	QPS   float32
	Burst int
	// Grace is how long the events that are waiting may take to be written after Run's context ended. Default 2 s.
	Grace time.Duration
}

// Recorder records events. It is safe for concurrent use; recording never blocks on the network.
type Recorder struct {
	lanes  [lanes]*lane
	normal flowcontrol.PassiveRateLimiter
	grace  time.Duration
}

// NewRecorder returns a recorder and starts nothing. Events may be recorded at once; they are written by Run.
func NewRecorder(o Options) (*Recorder, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS = -1
	config.Timeout = requestTimeout
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for events: %w", err)
	}
	r := &Recorder{normal: flowcontrol.NewTokenBucketPassiveRateLimiter(normalQPS, normalBurst), grace: cmp.Or(o.Grace, 2*time.Second)}
	for i := range r.lanes {
		r.lanes[i] = &lane{
			notes: make(chan *note, maxQueued), client: client.Events(""), record: r.record,
			correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
				QPS: cmp.Or(o.QPS, 1./300), BurstSize: cmp.Or(o.Burst, 25), SpamKeyFunc: newKinds(clock.RealClock{}).keyOf,
			}),
		}
	}
	return r, nil
}

// Run writes events until ctx ends, and then those that are waiting, within the grace time. It returns when nothing that it
// started runs any more.
func (r *Recorder) Run(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	taking, end := context.WithCancel(work)
	defer end()
	var writing sync.WaitGroup
	for _, l := range r.lanes {
		writing.Go(func() { l.run(work, ctx, taking) })
	}
	<-ctx.Done()
	defer time.AfterFunc(r.grace, end).Stop()
	defer time.AfterFunc(r.grace+lastRequest, cancel).Stop()
	writing.Wait()
}

// Warning records something that went wrong with an object and what to do.
func (r *Recorder) Warning(subject *corev1.ObjectReference, reason, message string) {
	r.record(note{subject: subject, eventType: corev1.EventTypeWarning, reason: reason, message: message})
}

// Lifecycle records a Normal event about a controller object itself. These are few, and always sent.
func (r *Recorder) Lifecycle(subject *corev1.ObjectReference, reason, message string) {
	r.record(note{subject: subject, eventType: corev1.EventTypeNormal, reason: reason, message: message})
}

// WarningOfParent is Warning about a parent of a controller object, on which it is recorded if it cannot be on the parent.
func (r *Recorder) WarningOfParent(subject, object *corev1.ObjectReference, reason, message string) {
	r.record(note{subject: subject, instead: object, eventType: corev1.EventTypeWarning, reason: reason, message: message})
}

// Of returns a recorder of what one controller has to say about its parents. The name is qualified, as in
// metacontroller.io/compositecontroller-name, and object is the controller object.
func (r *Recorder) Of(controller string, object *corev1.ObjectReference) *Controller {
	return &Controller{recorder: r, name: controller, object: object}
}

// Controller records events that name the controller that they come from. It is safe for concurrent use.
type Controller struct {
	recorder *Recorder
	name     string
	object   *corev1.ObjectReference
}

// Warning records something that went wrong with a parent and what to do. Related is the child that it is about, nil if there is none or
// are several. In a namespace that is being deleted there can be no event: it is recorded on the controller object then.
func (c *Controller) Warning(subject, related *corev1.ObjectReference, reason, message string) {
	c.recorder.record(note{
		subject: subject, related: related, instead: c.object, controller: c.name, eventType: corev1.EventTypeWarning, reason: reason, message: message,
	})
}

// NormalAlways records a Normal event on a parent beside the budget of Normal events. It is for what follows a Warning, or the request of a
// user, such as that the parent was synced again: there is one such event for each of those at most, and without it the Warning would
// stay the last event of the parent.
func (c *Controller) NormalAlways(subject *corev1.ObjectReference, reason, message string) {
	c.recorder.record(note{subject: subject, controller: c.name, eventType: corev1.EventTypeNormal, reason: reason, message: message})
}

// Normal records something that happened to a parent, if the process-wide budget allows. Related is as for Warning.
func (c *Controller) Normal(subject, related *corev1.ObjectReference, reason, message string) {
	if !c.recorder.normal.TryAccept() {
		metrics.EventDropped(metrics.OverBudget)
		return
	}
	c.recorder.record(note{
		subject: subject, related: related, controller: c.name, eventType: corev1.EventTypeNormal, reason: reason, message: message,
	})
}

// note is what an event is made of.
type note struct {
	at               metav1.Time
	subject, related *corev1.ObjectReference
	// instead is on what it is recorded if it cannot be on the subject, because the namespace of that is being deleted; nil for nothing.
	instead                                *corev1.ObjectReference
	controller, eventType, reason, message string
}

// moved returns what is recorded instead of a note whose event was refused.
func (n note) moved() note {
	where := strings.TrimPrefix(n.subject.Namespace+"/"+n.subject.Name, "/")
	n.message = fmt.Sprintf("%s %s: %s", n.subject.Kind, where, n.message)
	n.subject, n.related, n.instead = n.instead, n.subject, nil
	return n
}

func (n note) event() *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(n.subject.Namespace, metav1.NamespaceDefault), Name: util.GenerateEventName(n.subject.Name, n.at.UnixNano()),
		},
		InvolvedObject: *n.subject, Related: n.related, Type: n.eventType, Reason: n.reason, Message: Shorten(n.message, maxMessage),
		Source: corev1.EventSource{Component: Component}, ReportingController: cmp.Or(n.controller, Component),
		FirstTimestamp: n.at, LastTimestamp: n.at, Count: 1,
	}
}

// record queues a note in the lane of its subject, always the same. It never blocks.
func (r *Recorder) record(n note) {
	n.at = metav1.Now()
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, n.subject.UID, n.subject.Namespace, n.subject.Name) // Hashes do not fail.
	select {
	case r.lanes[h.Sum32()%lanes].notes <- &n:
	default:
		metrics.EventDropped(metrics.QueueFull)
	}
}

// lane writes the events of some objects, one after the other.
type lane struct {
	notes      chan *note
	client     typedcorev1.EventInterface
	correlator *record.EventCorrelator
	// record records something else, in the lane of its subject.
	record func(note)
}

// run writes events until stop ends, and then those that are queued, each in one try at most, until end does. The rest is dropped.
func (l *lane) run(ctx, stop, end context.Context) {
	for stop.Err() == nil {
		select {
		case n := <-l.notes:
			l.process(ctx, stop, n)
		case <-stop.Done():
		}
	}
	for len(l.notes) > 0 {
		if n := <-l.notes; end.Err() == nil {
			l.process(ctx, stop, n)
		} else {
			metrics.EventDropped(metrics.NotWritten)
		}
	}
}

// process writes an event and reports if that fails.
func (l *lane) process(ctx, stop context.Context, n *note) {
	err := recovery.Call(ctx, "writing an event", func() error { return l.write(ctx, stop, n.event()) })
	if err == nil {
		return
	}
	terminating := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	if terminating && n.instead != nil {
		l.record(n.moved())
		return
	}
	metrics.EventDropped(metrics.NotWritten)
	logger := klog.FromContext(ctx).WithValues("object", klog.KRef(n.subject.Namespace, n.subject.Name), "reason", n.reason)
	switch {
	case stop.Err() != nil:
		logger.V(2).Info("Event is not written, for the server is being stopped", "cause", err.Error())
	case apierrors.IsAlreadyExists(err) || terminating: // Both are ordinary: it was written before.
		logger.V(4).Info("Event is not written", "cause", err.Error())
	default:
		logger.Error(err, "Cannot write an event")
	}
}

// write writes an event unless it is above the limits. Once stop has ended, it does not try again.
func (l *lane) write(ctx, stop context.Context, e *corev1.Event) error {
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
		select {
		case <-time.After(retryDelay):
		case <-stop.Done():
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
	value, _ := k.objects.Get(object)
	seen, ok := value.(map[string]time.Time) // When each kind of message about the object occurred last.
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

// Shorten returns the beginning of a text that people read in a status or an event, with an ellipsis if the text has more than limit
// bytes. No character is cut in two.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
