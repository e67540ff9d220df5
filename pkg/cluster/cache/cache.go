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

package cache

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// The media types of objects and lists without anything but metadata. API servers refuse a list where the first is acceptable, too.
const (
	metadataOnly     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	metadataOnlyList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// Options configure a Cache.
type Options struct {
	// Config reaches the cluster. Its QPS and burst are used as they are; a negative QPS means no limit.
	Config *rest.Config
	// KeepManagedFields keeps metadata.managedFields in the objects.
	KeepManagedFields bool
	// Managers are the prefixes of the field managers whose managedFields objects keep. Empty: of none.
	Managers []string
}

func (o Options) parsing() object.ParseOptions {
	return object.ParseOptions{KeepManagedFields: o.KeepManagedFields, Managers: o.Managers}
}

// Query says what an informer watches.
type Query struct {
	// Resource is the group, version and resource. Objects are in this version.
	Resource schema.GroupVersionResource
	// LabelSelector restricts the informer at the API server. Empty: all objects.
	LabelSelector string
	// Namespace restricts the informer to one namespace. Empty: all namespaces, or a resource without namespaces.
	Namespace string
	// Name restricts the informer to the object of that name. Empty: all objects.
	Name string
	// MetadataOnly leaves out everything but apiVersion, kind and metadata. Both are then those of PartialObjectMetadata.
	MetadataOnly bool
}

// Cache holds the informers. It is safe for concurrent use.
type Cache struct {
	full, metadata rest.Interface
	parsing        object.ParseOptions

	mu        sync.Mutex
	informers map[Query]*Informer
	ctx       context.Context // set while Run runs
	reflect   sync.WaitGroup
}

// New returns a cache without informers.
func New(o Options) (*Cache, error) {
	full, err := NewClient(o.Config, runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	metadata, err := NewClient(o.Config, metadataOnly)
	if err != nil {
		return nil, err
	}
	return &Cache{full: full, metadata: metadata, parsing: o.parsing(), informers: map[Query]*Informer{}}, nil
}

// NewClient returns a client for reading in any group and version, which accepts a media type.
func NewClient(config *rest.Config, accept string) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.ContentConfig = rest.ContentConfig{
		AcceptContentTypes:   accept,
		ContentType:          runtime.ContentTypeJSON,
		GroupVersion:         &schema.GroupVersion{Version: "v1"},
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client that watches the cluster: %w", err)
	}
	return client, nil
}

// Run lets informers watch until ctx ends, and returns when the last has ended.
func (c *Cache) Run(ctx context.Context) {
	c.mu.Lock()
	c.ctx = ctx
	for _, i := range c.informers {
		c.start(i)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.ctx = nil
	c.mu.Unlock()
	c.reflect.Wait()
}

// Acquire returns the informer for q, which watches from the first Acquire, once Run runs, to the last Release.
func (c *Cache) Acquire(q Query) *Informer {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.informers[q]
	if !ok {
		i = newInformer(c, q)
		c.informers[q] = i
		if c.ctx != nil {
			c.start(i)
		}
	}
	i.holders++
	return i
}

// Sizes calls yield for each informer, with its resource, such as deployments.apps, the number of its objects and the size of their
// JSON. Informers of one resource with different selectors are yielded each.
func (c *Cache) Sizes(yield func(resource string, objects int, bytes int64)) {
	c.mu.Lock()
	informers := slices.Collect(maps.Values(c.informers))
	c.mu.Unlock()
	for _, i := range informers {
		objects, bytes := i.store.size()
		yield(i.query.Resource.GroupResource().String(), objects, bytes)
	}
}

// release is called by the informer.
func (c *Cache) release(i *Informer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.holders--
	if i.holders > 0 {
		return
	}
	delete(c.informers, i.query)
	if i.stop != nil {
		i.stop()
	}
}

// start is called with the lock held.
func (c *Cache) start(i *Informer) {
	ctx, stop := context.WithCancel(c.ctx)
	i.stop = stop
	c.reflect.Go(func() {
		defer stop()
		for delay := backoff(); ctx.Err() == nil; {
			err := c.run(ctx, i)
			if err == nil {
				return
			}
			i.listed(err)
			select {
			case <-ctx.Done():
			case <-time.After(delay.Step()):
			}
		}
	})
}

// run lists and watches until ctx ends. The error is that of a panic.
func (c *Cache) run(ctx context.Context, i *Informer) error {
	logger := klog.FromContext(ctx)
	return recovery.Call(ctx, "watching "+i.query.Resource.String(), func() error {
		clientcache.NewReflectorWithOptions(c.listWatch(i), &object.Object{}, i, clientcache.ReflectorOptions{
			Logger:          &logger,
			Name:            i.query.Resource.String(),
			TypeDescription: i.query.Resource.String(),
			Backoff:         backoff(),
		}).RunWithContext(ctx)
		return nil
	})
}

// lister lists before it watches; docs/design/0011-list-before-watch.md says why.
type lister struct{ *clientcache.ListWatch }

// IsWatchListSemanticsUnSupported makes reflectors list, not stream the list in a watch.
func (lister) IsWatchListSemanticsUnSupported() bool { return true }

func (c *Cache) listWatch(i *Informer) lister {
	client, accept := c.full, runtime.ContentTypeJSON
	if i.query.MetadataOnly {
		client, accept = c.metadata, metadataOnlyList
	}
	path := i.query.path()
	return lister{&clientcache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			i.query.restrict(&o)
			if o.ResourceVersion == "0" {
				// Not 0: the list may be older than what was seen before, of another API server. And not in pages, since API
				// servers serve a whole list from their caches.
				o.ResourceVersion, o.Limit = "", 0
			}
			if o.ResourceVersion == "" && o.Continue == "" {
				i.listing()
			}
			list, err := c.list(ctx, client.Get().AbsPath(path...).VersionedParams(&o, metav1.ParameterCodec).SetHeader("Accept", accept))
			if ctx.Err() == nil {
				// Otherwise the informer was stopped, which is no failure.
				i.listed(err)
			}
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			i.query.restrict(&o)
			o.Watch = true
			response, err := client.Get().AbsPath(path...).VersionedParams(&o, metav1.ParameterCodec).Stream(ctx)
			i.observed(err)
			switch {
			case ctx.Err() != nil && err != nil:
				// The informer was stopped. A reflector logs all other errors.
				return nil, io.EOF
			case err != nil:
				return nil, err
			}
			events := eventReader{object.NewEventReader(response, c.parsing), ctx, i}
			undecodable := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
			return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), events, undecodable), nil
		},
	}}
}

// eventReader reads the events of a watch on a goroutine of client-go. A panic fails the watch.
type eventReader struct {
	*object.EventReader

	ctx      context.Context //nolint:containedctx // It is that of the watch.
	informer *Informer
}

// Decode implements watch.Decoder.
func (r eventReader) Decode() (kind watch.EventType, o runtime.Object, err error) {
	err = recovery.Call(r.ctx, "reading an event of a watch", func() (err error) {
		kind, o, err = r.EventReader.Decode()
		return err
	})
	if _, ok := err.(*recovery.PanicError); ok { //nolint:errorlint // Call returns it as it is; Decode must not wrap io.EOF either.
		r.informer.observed(err)
	}
	return kind, o, err
}

func (c *Cache) list(ctx context.Context, request *rest.Request) (list *object.List, err error) {
	err = recovery.Call(ctx, "reading a list", func() error {
		// To compress a long list takes an API server longer than to send it.
		response, err := request.SetHeader("Accept-Encoding", "identity").MaxRetries(0).Stream(ctx)
		if _, later := apierrors.SuggestsClientDelay(err); later || apierrors.IsTooManyRequests(err) {
			// Of a new kind, API servers ask for a second to fill their cache, and need milliseconds. After that they say when.
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			response, err = request.MaxRetries(10).Stream(ctx) // These are client-go's.
		}
		if err != nil {
			return err
		}
		defer func() { _ = response.Close() }()
		list, err = object.ReadList(response, c.parsing)
		return err
	})
	return list, err
}

func (q Query) path() []string {
	path := []string{"api", q.Resource.Version}
	if q.Resource.Group != "" {
		path = []string{"apis", q.Resource.Group, q.Resource.Version}
	}
	if q.Namespace != "" {
		path = append(path, "namespaces", q.Namespace)
	}
	return append(path, q.Resource.Resource)
}

func (q Query) restrict(o *metav1.ListOptions) {
	o.LabelSelector = q.LabelSelector
	if q.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", q.Name).String()
	}
}

// backoff is how long an informer waits after failures: at most 10 s, so that a resource that is served again is seen soon.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 10 * time.Second}
}

// ListMetadata reads the metadata of all objects of a resource from the API server, whether or not an informer watches them:
// it shows every write that ended before the call.
func (c *Cache) ListMetadata(ctx context.Context, r schema.GroupVersionResource) ([]*object.Object, error) {
	list, err := c.list(ctx, c.metadata.Get().AbsPath(Query{Resource: r}.path()...).SetHeader("Accept", metadataOnlyList))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", r.GroupResource(), err)
	}
	return list.Items, nil
}
