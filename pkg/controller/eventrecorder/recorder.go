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
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
)

// Component is the source of every event (docs/reference/contract.md#s18.4).
const Component = "metacontroller"

// Reasons of events on parents and controller objects.
const (
	ReasonSyncError   = "SyncError"
	ReasonCreateError = "CreateError"
	ReasonStarting    = "Starting"
	ReasonStarted     = "Started"
	ReasonStopping    = "Stopping"
	ReasonStopped     = "Stopped"
	// ReasonReleaseError says that the controller's finalizer could not be taken off an object.
	ReasonReleaseError = "ReleaseError"
)

// maxMessage is the length in bytes above which a message is cut; the API refuses notes over 1 KiB.
const maxMessage = 1000

// Options configure a Recorder.
type Options struct {
	// Config reaches the cluster that holds the events.
	Config *rest.Config
	// QPS and Burst limit the events about one object: Burst at once, then QPS per second. Defaults 1/300 and 25.
	QPS   float32
	Burst int
	// NormalQPS and NormalBurst limit Normal events of the whole process. Defaults 5 and 50.
	NormalQPS   float32
	NormalBurst int
}

// lanes is how many events are written at the same time. One lane writes one event after the other, so that an object's
// events keep their order; with only one, the failures of one controller would hold up the events of all others.
const lanes = 8

// Recorder records events. It is safe for concurrent use; recording never blocks on the network.
type Recorder struct {
	lanes  [lanes]lane
	client typedcorev1.EventInterface
	normal flowcontrol.PassiveRateLimiter
}

type lane struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

// NewRecorder returns a recorder. Nothing is sent before Run. It is Run's context that ends it, not ctx: what syncs under way
// have to tell at the end is still recorded.
func NewRecorder(ctx context.Context, o Options) (*Recorder, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS = -1
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for events: %w", err)
	}
	if o.QPS == 0 {
		o.QPS = 1. / 300
	}
	if o.Burst == 0 {
		o.Burst = 25
	}
	if o.NormalQPS == 0 {
		o.NormalQPS = 5
	}
	if o.NormalBurst == 0 {
		o.NormalBurst = 50
	}
	r := &Recorder{
		client: client.Events(""),
		normal: flowcontrol.NewTokenBucketPassiveRateLimiter(o.NormalQPS, o.NormalBurst),
	}
	for i := range r.lanes {
		broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)),
			record.WithCorrelatorOptions(record.CorrelatorOptions{QPS: o.QPS, BurstSize: o.Burst}))
		r.lanes[i] = lane{broadcaster, broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Component})}
	}
	return r, nil
}

// Run sends events until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	var sending sync.WaitGroup
	for i := range r.lanes {
		sending.Go(func() { r.lanes[i].run(ctx, r.client) })
	}
	sending.Wait()
}

func (l *lane) run(ctx context.Context, client typedcorev1.EventInterface) {
	watcher := l.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client})
	<-ctx.Done()
	watcher.Stop()
	l.broadcaster.Shutdown()
}

// laneOf returns the lane of an object's events, always the same.
func (r *Recorder) laneOf(subject *corev1.ObjectReference) *lane {
	h := fnv.New32a()
	for _, part := range []string{string(subject.UID), subject.Namespace, subject.Name} {
		_, _ = h.Write([]byte(part)) // hashes do not fail
	}
	return &r.lanes[h.Sum32()%lanes]
}

// Warning records something that went wrong with an object and what to do.
func (r *Recorder) Warning(subject *corev1.ObjectReference, reason, message string) {
	r.record(subject, corev1.EventTypeWarning, reason, message)
}

// Normal records something that happened to an object, if the process-wide budget allows.
func (r *Recorder) Normal(subject *corev1.ObjectReference, reason, message string) {
	if !r.normal.TryAccept() {
		dropped.Inc()
		return
	}
	r.record(subject, corev1.EventTypeNormal, reason, message)
}

// Lifecycle records a Normal event about a controller object itself. These are few, and always sent.
func (r *Recorder) Lifecycle(subject *corev1.ObjectReference, reason, message string) {
	r.record(subject, corev1.EventTypeNormal, reason, message)
}

func (r *Recorder) record(subject *corev1.ObjectReference, eventType, reason, message string) {
	if len(message) > maxMessage {
		// A character may have been cut in two.
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	r.laneOf(subject).recorder.Event(subject, eventType, reason, message)
}
