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

package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// idle is how long a watch continues after the last use of its object.
const idle = 10 * time.Minute

// Reference names a Secret or ConfigMap.
type Reference struct {
	// Kind is Secret or ConfigMap.
	Kind string
	// Namespace and Name of the object.
	Namespace, Name string
}

// String names the object for people, as "Secret ns/name".
func (r Reference) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

func (r Reference) resource() schema.GroupVersionResource {
	resource := "configmaps"
	if r.Kind == "Secret" {
		resource = "secrets"
	}
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// Store reads Secrets and ConfigMaps. It is safe for concurrent use.
type Store struct {
	objects *cache.Cache
	clock   clock.WithTicker

	mu          sync.Mutex
	watches     map[Reference]*watched
	subscribers map[*func(Reference)]struct{}
}

// watched is one object under watch.
type watched struct {
	informer *cache.Informer
	cancel   func()

	// The following fields are guarded by the store's lock.
	used    time.Time
	decoded *object.Object
	data    map[string][]byte
}

// New returns a store. A nil clock means the real one.
func New(config *rest.Config, c clock.WithTicker) (*Store, error) {
	if c == nil {
		c = clock.RealClock{}
	}
	objects, err := cache.New(cache.Options{Config: config})
	if err != nil {
		return nil, fmt.Errorf("creating a client that reads credentials: %w", err)
	}
	return &Store{
		objects: objects, clock: c, watches: map[Reference]*watched{}, subscribers: map[*func(Reference)]struct{}{},
	}, nil
}

// Run lets the store watch until ctx ends, and returns when the last watch has ended. Before Run, reading waits.
func (s *Store) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { s.objects.Run(ctx) })
	ticker := s.clock.NewTicker(idle / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			// A panic is logged, and the next sweep tries again.
			_ = recovery.Call(ctx, "releasing Secrets and ConfigMaps that are not used", s.sweep)
		}
	}
}

// Secret returns the data of a Secret with a version that changes whenever the data may have. The data must not be modified.
// The error of a missing Secret is an apierrors NotFound. The first call for a Secret waits for the API server,
// until ctx ends; later ones return from memory.
func (s *Store) Secret(ctx context.Context, namespace, name string) (version string, data map[string][]byte, err error) {
	return s.get(ctx, Reference{Kind: "Secret", Namespace: namespace, Name: name})
}

// ConfigMap is Secret for ConfigMaps: text and binary data together.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (version string, data map[string][]byte, err error) {
	return s.get(ctx, Reference{Kind: "ConfigMap", Namespace: namespace, Name: name})
}

// Subscribe calls changed whenever an object that was read before is created, changed or deleted, until cancel is called.
// changed is called on a watch's goroutine and must not block, nor call cancel.
func (s *Store) Subscribe(changed func(Reference)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[&changed] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, &changed)
	}
}

func (s *Store) get(ctx context.Context, r Reference) (version string, data map[string][]byte, err error) {
	w := s.watch(r)
	if err := w.wait(ctx); err != nil {
		return "", nil, fmt.Errorf("reading %s: %w", r, err)
	}
	o, ok := w.informer.Get(r.Namespace, r.Name)
	if !ok {
		return "", nil, apierrors.NewNotFound(r.resource().GroupResource(), r.Namespace+"/"+r.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.decoded != o {
		if w.data, err = decode(r, o); err != nil {
			return "", nil, fmt.Errorf("reading %s: %w", r, err)
		}
		w.decoded = o
	}
	return string(o.UID()) + "/" + o.ResourceVersion(), w.data, nil
}

// wait waits for the first list of the API server.
func (w *watched) wait(ctx context.Context) error {
	failed := w.informer.Failed()
	for !w.informer.HasSynced() {
		select {
		case <-w.informer.Synced():
		case <-failed:
			if err := w.informer.Err(); err != nil {
				return err
			}
			failed = nil // It failed before, and an attempt is under way.
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// failed reports whether the first attempt to list failed, so that somebody was told that there is nothing to read.
func (w *watched) failed() bool {
	select {
	case <-w.informer.Failed():
		return true
	default:
		return false
	}
}

func decode(r Reference, o *object.Object) (map[string][]byte, error) {
	if r.Kind == "Secret" {
		var secret struct {
			Data map[string][]byte `json:"data"`
		}
		// The cause could show a part of the value.
		if json.Unmarshal(o.JSON(), &secret) != nil {
			return nil, errors.New("its data cannot be decoded")
		}
		return secret.Data, nil
	}
	var config struct {
		Data       map[string]string `json:"data"`
		BinaryData map[string][]byte `json:"binaryData"`
	}
	if err := json.Unmarshal(o.JSON(), &config); err != nil {
		return nil, fmt.Errorf("decoding its data: %w", err)
	}
	data := config.BinaryData
	if data == nil {
		data = make(map[string][]byte, len(config.Data))
	}
	for key, text := range config.Data {
		data[key] = []byte(text)
	}
	return data, nil
}

func (s *Store) watch(r Reference) *watched {
	s.mu.Lock()
	w, ok := s.watches[r]
	if !ok {
		w = &watched{informer: s.objects.Acquire(cache.Query{Resource: r.resource(), Namespace: r.Namespace, Name: r.Name})}
		s.watches[r] = w
	}
	w.used = s.clock.Now()
	s.mu.Unlock()
	if !ok {
		// The informer calls changed with a lock held that Subscribe takes, so this must not happen with ours held.
		cancel := w.informer.Subscribe(func(e cache.Event) {
			if !e.Initial || w.failed() {
				s.changed(r)
			}
		})
		s.mu.Lock()
		w.cancel = cancel
		s.mu.Unlock()
	}
	return w
}

func (s *Store) changed(r Reference) {
	s.mu.Lock()
	subscribers := slices.Collect(maps.Keys(s.subscribers))
	s.mu.Unlock()
	for _, changed := range subscribers {
		(*changed)(r)
	}
}

// sweep ends the watches that were not used for a while. The error is always nil.
func (s *Store) sweep() error {
	s.mu.Lock()
	var unused []*watched
	for r, w := range s.watches {
		// One without cancel is being created.
		if s.clock.Since(w.used) > idle && w.cancel != nil {
			unused = append(unused, w)
			delete(s.watches, r)
		}
	}
	s.mu.Unlock()
	for _, w := range unused {
		w.cancel()
		w.informer.Release()
	}
	return nil
}
