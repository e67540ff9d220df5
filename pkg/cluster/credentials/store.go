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
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// idle is how long a watch goes on after the last use of what it watches.
const idle = 10 * time.Minute

// reference names a Secret or ConfigMap.
type reference struct{ resource, namespace, name string }

// Store reads Secrets and ConfigMaps. It is safe for concurrent use.
type Store struct {
	client rest.Interface
	clock  clock.WithTicker

	mu      sync.Mutex
	ctx     context.Context // set while Run runs
	watches map[reference]*watched
	running sync.WaitGroup
}

// watched is one object under watch.
type watched struct {
	informer cache.SharedIndexInformer
	store    cache.Store
	stop     context.CancelFunc
	used     time.Time
}

// New returns a store. A nil clock means the real one.
func New(config *rest.Config, c clock.WithTicker) (*Store, error) {
	if c == nil {
		c = clock.RealClock{}
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.ContentConfig = rest.ContentConfig{
		GroupVersion:         &corev1.SchemeGroupVersion,
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client that reads credentials: %w", err)
	}
	return &Store{client: client, clock: c, watches: map[reference]*watched{}}, nil
}

// Run lets the store watch until ctx ends, and returns when the last watch has ended.
func (s *Store) Run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	ticker := s.clock.NewTicker(idle / 2)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C():
			s.sweep()
		}
	}
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.running.Wait()
}

// Secret returns the data of a Secret with a version that changes whenever the data may have. The error of a Secret that
// is not there is an apierrors NotFound. The first call for a Secret waits for the API server, until ctx ends.
func (s *Store) Secret(ctx context.Context, namespace, name string) (version string, data map[string][]byte, err error) {
	found, err := s.get(ctx, reference{"secrets", namespace, name})
	if err != nil {
		return "", nil, err
	}
	secret, ok := found.(*corev1.Secret)
	if !ok {
		return "", nil, fmt.Errorf("reading Secret %s/%s: got a %T", namespace, name, found)
	}
	return string(secret.UID) + "/" + secret.ResourceVersion, secret.Data, nil
}

// ConfigMap is Secret for ConfigMaps: text and binary data together.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (version string, data map[string][]byte, err error) {
	found, err := s.get(ctx, reference{"configmaps", namespace, name})
	if err != nil {
		return "", nil, err
	}
	config, ok := found.(*corev1.ConfigMap)
	if !ok {
		return "", nil, fmt.Errorf("reading ConfigMap %s/%s: got a %T", namespace, name, found)
	}
	data = maps.Clone(config.BinaryData)
	if data == nil {
		data = make(map[string][]byte, len(config.Data))
	}
	for key, text := range config.Data {
		data[key] = []byte(text)
	}
	return string(config.UID) + "/" + config.ResourceVersion, data, nil
}

func (s *Store) get(ctx context.Context, r reference) (any, error) {
	w, err := s.watch(r)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.informer.HasSyncedChecker().Done():
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s %s/%s: %w (may the server list and watch it?)", r.resource, r.namespace, r.name, ctx.Err())
	}
	found, ok, err := w.store.GetByKey(r.namespace + "/" + r.name)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", r.resource, r.namespace, r.name, err)
	}
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: r.resource}, r.namespace+"/"+r.name)
	}
	return found, nil
}

func (s *Store) watch(r reference) (*watched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.watches[r]; ok {
		w.used = s.clock.Now()
		return w, nil
	}
	if s.ctx == nil {
		return nil, fmt.Errorf("reading %s %s/%s: the server is not running", r.resource, r.namespace, r.name)
	}
	source := cache.NewListWatchFromClient(s.client, r.resource, r.namespace, fields.OneTermEqualSelector("metadata.name", r.name))
	informer := cache.NewSharedIndexInformer(source, expected(r), 0, cache.Indexers{})
	ctx, stop := context.WithCancel(s.ctx)
	w := &watched{informer: informer, store: informer.GetStore(), stop: stop, used: s.clock.Now()}
	s.watches[r] = w
	s.running.Go(func() {
		defer stop()
		informer.RunWithContext(ctx)
	})
	return w, nil
}

// expected returns an empty object of what a reference names.
func expected(r reference) runtime.Object {
	if r.resource == "secrets" {
		return &corev1.Secret{}
	}
	return &corev1.ConfigMap{}
}

// sweep ends the watches that nobody used for a while.
func (s *Store) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, w := range s.watches {
		if s.clock.Since(w.used) > idle {
			w.stop()
			delete(s.watches, r)
		}
	}
}
