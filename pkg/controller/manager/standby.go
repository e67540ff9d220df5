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

package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

const (
	// handover is how long the informers of a standby are held after the election: by then the controllers hold them, or wait for
	// something that they cannot wait shorter for.
	handover = time.Minute
	// standbyRetry is the time after which informers that could not be opened are tried again.
	standbyRetry = 5 * time.Second
)

// wait keeps the caches filled until this process is elected or ctx ends, and for the handover after that, until stop is called.
func (m *Manager) wait(ctx context.Context, informers []cache.SharedIndexInformer) (stop func(), err error) {
	select {
	case <-m.elected:
		return func() {}, nil
	default:
	}
	if m.elected == nil {
		return func() {}, nil
	}
	standing, end := context.WithCancel(ctx)
	put := func(d reconciler.Definition) {
		if m.selector.Matches(labels.Set(d.Meta.Labels)) {
			m.standby.put(standing, d)
		} else {
			m.standby.remove(identityOf(d))
		}
	}
	for _, informer := range informers {
		handler := m.handler(standing, put, func(d reconciler.Definition) { m.standby.remove(identityOf(d)) })
		registered, err := informer.AddEventHandler(handler)
		if err != nil {
			end()
			return m.standby.wait, fmt.Errorf("watching controller objects: %w", err)
		}
		context.AfterFunc(standing, func() { _ = informer.RemoveEventHandler(registered) }) // Its informer may have ended.
	}
	m.informers.StartWithContext(ctx)
	klog.FromContext(ctx).Info("Controller manager fills its caches, and waits for the election")
	select {
	case <-m.elected:
	case <-ctx.Done():
	}
	over := time.AfterFunc(handover, end)
	return func() {
		over.Stop()
		end()
		m.standby.wait()
	}, nil
}

// open opens the informers of a controller. They are those of the server, whatever the controller's service account may see.
func (m *Manager) open(ctx context.Context, d reconciler.Definition) (shut func(), err error) {
	d.Account = nil
	candidate, err := m.candidate(ctx, d)
	if err != nil {
		return nil, err
	}
	return candidate.Hold(ctx), nil
}

// standby holds the informers of controllers that do not run here, so that they are filled when they do. It is safe for concurrent use.
type standby struct {
	// open opens the informers of a controller, until shut is called.
	open func(ctx context.Context, d reconciler.Definition) (shut func(), err error)
	// changes calls a function whenever the kinds that the cluster serves may have changed, until cancel is called.
	changes func(changed func()) (cancel func())

	mu      sync.Mutex
	all     map[identity]*standing
	running sync.WaitGroup
}

// standing is one controller of a standby.
type standing struct {
	latest reconciler.Definition
	stop   context.CancelFunc
}

func newStandby(open func(context.Context, reconciler.Definition) (func(), error), changes func(func()) func()) *standby {
	return &standby{open: open, changes: changes, all: map[identity]*standing{}}
}

// put holds the informers of a controller until ctx ends, or it is put with another spec or removed.
func (s *standby) put(ctx context.Context, d reconciler.Definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	id := identityOf(d)
	former, ok := s.all[id]
	if ok && former.latest.Meta.UID == d.Meta.UID && former.latest.SameSpec(d) {
		return
	}
	replaced := func() {}
	if ok {
		replaced = former.stop
	}
	ctx, stop := context.WithCancel(ctx)
	s.all[id] = &standing{latest: d, stop: stop}
	s.running.Go(func() {
		defer replaced()
		s.hold(ctx, d, replaced)
	})
}

func (s *standby) remove(id identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone, ok := s.all[id]; ok {
		gone.stop()
		delete(s.all, id)
	}
}

// hold holds the informers of one controller until ctx ends, and opens them anew when other kinds are served. It calls opened once it has, so
// that those which a former definition needs too stay open.
func (s *standby) hold(ctx context.Context, d reconciler.Definition, opened func()) {
	logger := klog.FromContext(ctx).WithValues("controller", d.Meta.Name, "controllerKind", d.Kind)
	ctx = klog.NewContext(ctx, logger)
	changed := make(chan struct{}, 1)
	defer s.changes(func() { poke(changed) })()
	shut := func() {}
	defer func() { shut() }() //nolint:gocritic // It is another function by then.
	for ctx.Err() == nil {
		var next func()
		err := recovery.Call(ctx, "filling the caches of a controller", func() (err error) {
			next, err = s.open(ctx, d)
			return err
		})
		var retry <-chan time.Time
		if err == nil {
			shut() // Only now, for the same reason.
			shut = next
			opened()
		} else {
			logger.V(2).Info("The caches of a controller are not filled yet", "err", err)
			retry = time.After(standbyRetry)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-retry:
		}
	}
}

// wait returns when nothing is held any more. The context of put has ended.
func (s *standby) wait() {
	s.mu.Lock()
	s.all = map[identity]*standing{}
	s.mu.Unlock()
	s.running.Wait()
}
