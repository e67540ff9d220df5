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
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/health"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// Component is the source of every event (docs/reference/contract.md#s18.4).
const Component = "metacontroller"

// Reasons of events on parents and controller objects.
const (
	ReasonSyncError = "SyncError"
	// ReasonSyncRecovered is for a parent that was synced again after errors.
	ReasonSyncRecovered = "SyncRecovered"
	ReasonCreateError   = "CreateError"
	ReasonStarting      = "Starting"
	ReasonStarted       = "Started"
	ReasonStopping      = "Stopping"
	ReasonStopped       = "Stopped"
	ReasonPaused        = "Paused"
	ReasonResumed       = "Resumed"
	// ReasonFinalizeWaits is for a parent whose finalize hook takes long.
	ReasonFinalizeWaits = "FinalizeWaits"
	// ReasonDeletionsHeld says that spec.deletionGuard holds deletions.
	ReasonDeletionsHeld = "DeletionsHeld"
	// ReasonReleaseError says that the controller's finalizer could not be taken off an object.
	ReasonReleaseError = "ReleaseError"
)

// maxMessage is the length in bytes above which a message is cut; the API refuses notes over 1 KiB.
const maxMessage = 1000

// requestTimeout ends a request that the API server does not respond to, so that the events behind it are written.
const requestTimeout = 30 * time.Second

// normalQPS and normalBurst limit Normal events of the whole process.
const (
	normalQPS   = 5
	normalBurst = 50
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

func (o Options) withDefaults() Options {
	if o.QPS == 0 {
		o.QPS = 1. / 300
	}
	if o.Burst == 0 {
		o.Burst = 25
	}
	if o.Grace == 0 {
		o.Grace = 2 * time.Second
	}
	return o
}

// lanes is how many events are written at the same time. One lane writes one event after the other, so that an object's
// events keep their order; with only one, the failures of one controller would hold up the events of all others.
const lanes = 8

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
	o = o.withDefaults()
	r := &Recorder{
		normal: flowcontrol.NewTokenBucketPassiveRateLimiter(normalQPS, normalBurst),
		grace:  o.Grace,
	}
	for i := range r.lanes {
		r.lanes[i] = &lane{
			events: make(chan *corev1.Event, maxQueued), client: client.Events(""),
			correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
				QPS: o.QPS, BurstSize: o.Burst, SpamKeyFunc: newKinds(clock.RealClock{}).keyOf,
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
	var writing sync.WaitGroup
	for _, l := range r.lanes {
		writing.Go(func() { l.run(work, ctx.Done()) })
	}
	<-ctx.Done()
	end := time.AfterFunc(r.grace, cancel)
	defer end.Stop()
	writing.Wait()
}

// laneOf returns the lane of an object's events, always the same.
func (r *Recorder) laneOf(subject *corev1.ObjectReference) *lane {
	h := fnv.New32a()
	for _, part := range []string{string(subject.UID), subject.Namespace, subject.Name} {
		_, _ = h.Write([]byte(part)) // hashes do not fail
	}
	return r.lanes[h.Sum32()%lanes]
}

// Warning records something that went wrong with an object and what to do.
func (r *Recorder) Warning(subject *corev1.ObjectReference, reason, message string) {
	r.record(subject, corev1.EventTypeWarning, reason, message)
}

// Normal records something that happened to an object, if the process-wide budget allows.
func (r *Recorder) Normal(subject *corev1.ObjectReference, reason, message string) {
	if !r.normal.TryAccept() {
		metrics.EventDropped(metrics.OverBudget)
		return
	}
	r.record(subject, corev1.EventTypeNormal, reason, message)
}

// Lifecycle records a Normal event about a controller object itself. These are few, and always sent.
func (r *Recorder) Lifecycle(subject *corev1.ObjectReference, reason, message string) {
	r.record(subject, corev1.EventTypeNormal, reason, message)
}

func (r *Recorder) record(subject *corev1.ObjectReference, eventType, reason, message string) {
	message = health.Shorten(message, maxMessage)
	now := metav1.Now()
	namespace := subject.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	r.laneOf(subject).add(&corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: util.GenerateEventName(subject.Name, now.UnixNano())},
		InvolvedObject:      *subject,
		Type:                eventType,
		Reason:              reason,
		Message:             message,
		Source:              corev1.EventSource{Component: Component},
		ReportingController: Component,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	})
}
