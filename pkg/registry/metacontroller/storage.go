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

package metacontroller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/inspect"
)

// KeyRoot is the default of --etcd-prefix, the root of all keys in etcd. Below it, an object has the key
// /metacontroller.k8s.io/<resource>/[<namespace>/]<name>. It is not the root of Kubernetes, so that a server that is pointed at
// the cluster's own etcd by mistake does not write the objects of CustomResourceDefinitions.
const KeyRoot = "/metacontroller-apiserver"

// Storage is every endpoint of the group.
type Storage struct {
	// CompositeControllers are the endpoints of CompositeController.
	CompositeControllers *controller.Storage
	// DecoratorControllers are the endpoints of DecoratorController.
	DecoratorControllers *controller.Storage
	// ControllerRevisions is the endpoint of ControllerRevision.
	ControllerRevisions *controllerrevision.REST
	// Inspection are the endpoints by their paths that say what controllers do, and store nothing.
	Inspection map[string]rest.Storage
}

// NewStorage builds the stores, each with one watch cache, for objects of scheme. Inspection is what the endpoints need that store nothing.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, inspection inspect.Config) (*Storage, error) {
	composites, err := controller.Composites().NewStorage(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of compositecontrollers: %w", err)
	}
	decorators, err := controller.Decorators().NewStorage(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of decoratorcontrollers: %w", err)
	}
	revisions, err := controllerrevision.NewREST(scheme, getter)
	if err != nil {
		return nil, fmt.Errorf("building the store of controllerrevisions: %w", err)
	}
	inspector := inspect.New(inspection)
	if inspection.PlanWarnings {
		composites.Objects.Admitted = inspector.WarnOfPlans(scheme, v1alpha1.KindComposite, "compositecontrollers")
		decorators.Objects.Admitted = inspector.WarnOfPlans(scheme, v1alpha1.KindDecorator, "decoratorcontrollers")
	}
	endpoints := inspector.Subresources(v1alpha1.KindComposite, "compositecontrollers", getFrom(composites.Objects.Store.Store))
	maps.Copy(endpoints, inspector.Subresources(v1alpha1.KindDecorator, "decoratorcontrollers", getFrom(decorators.Objects.Store.Store)))
	return &Storage{
		CompositeControllers: composites, DecoratorControllers: decorators, ControllerRevisions: revisions, Inspection: endpoints,
	}, nil
}

// Standby returns the endpoints by their resources that plan candidates, also while the engine of this process waits to be elected.
func (s *Storage) Standby(inspection inspect.Config) map[string]rest.NamedCreater {
	inspection.Engine = inspection.Standby
	inspector := inspect.New(inspection)
	return map[string]rest.NamedCreater{
		"compositecontrollers": inspector.Plans(v1alpha1.KindComposite, "compositecontrollers", getFrom(s.CompositeControllers.Objects.Store.Store)),
		"decoratorcontrollers": inspector.Plans(v1alpha1.KindDecorator, "decoratorcontrollers", getFrom(s.DecoratorControllers.Objects.Store.Store)),
	}
}

// getFrom returns what reads an object of a store.
func getFrom(store *genericregistry.Store) inspect.Get {
	return func(ctx context.Context, name string) (metav1.Object, error) {
		o, err := store.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return meta.Accessor(o)
	}
}

// Resources returns the endpoints by the path under which v1alpha1 serves them.
func (s *Storage) Resources() map[string]rest.Storage {
	endpoints := map[string]rest.Storage{
		"compositecontrollers":        s.CompositeControllers.Objects,
		"compositecontrollers/status": s.CompositeControllers.Status,
		"decoratorcontrollers":        s.DecoratorControllers.Objects,
		"decoratorcontrollers/status": s.DecoratorControllers.Status,
		"controllerrevisions":         s.ControllerRevisions,
	}
	maps.Copy(endpoints, s.Inspection)
	return endpoints
}

const (
	// readableTimeout bounds CheckReadable: whether etcd answers at all is for the health checks to say.
	readableTimeout = 10 * time.Second
	// readablePage is how many objects are read at a time.
	readablePage = 500
)

// An UnreadableError means that objects are stored encrypted, and not with a key that the server was given.
type UnreadableError struct {
	// Key is that of the first such object in etcd.
	Key string
	// Err says what is wrong with it.
	Err error
}

// Error says which object, why, and what to do.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("a stored object cannot be decrypted: %s: %v; the file of --encryption-provider-config must have every key with which "+
		"objects were encrypted, until all of them are written anew. Nothing was changed", e.Key, e.Err)
}

// Unwrap returns what is wrong with the object.
func (e *UnreadableError) Unwrap() error { return e.Err }

// CheckReadable returns an *UnreadableError if a stored object is encrypted with a key that the server was not given, which would come up
// and never be ready. Transformers are those of the configuration of encryption, with which all objects are read. Nil: there is no such
// configuration, and one object of each resource is read, which costs nothing and finds that it was forgotten. An etcd that does not
// answer is no error here, and neither is what the plugin of a KMS says: it may start later than the server.
func CheckReadable(ctx context.Context, config *storagebackend.Config, transformers value.ResourceTransformers) error {
	ctx, cancel := context.WithTimeout(ctx, readableTimeout)
	defer cancel()
	err := checkReadable(ctx, config, transformers)
	if unreadable, ok := errors.AsType[*UnreadableError](err); ok {
		return unreadable
	}
	if err != nil {
		klog.FromContext(ctx).Info("Could not check that what is stored can be decrypted", "err", err)
	}
	return nil
}

func checkReadable(ctx context.Context, config *storagebackend.Config, transformers value.ResourceTransformers) (err error) {
	client, err := newEtcdClient(ctx, config.Transport)
	if err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, name := range []string{"compositecontrollers", "decoratorcontrollers", "controllerrevisions"} {
		resource := v1alpha1.Resource(name)
		transformer := identity.NewEncryptCheckTransformer()
		if transformers != nil {
			transformer = transformers.TransformerForResource(resource)
		}
		if err := readThrough(ctx, client, config.Prefix, resource, transformer, transformers != nil); err != nil {
			return err
		}
	}
	return nil
}

func newEtcdClient(ctx context.Context, t storagebackend.TransportConfig) (*clientv3.Client, error) {
	config := clientv3.Config{Context: ctx, Endpoints: t.ServerList, Logger: zap.NewNop()}
	if t.CertFile != "" || t.KeyFile != "" || t.TrustedCAFile != "" {
		files := transport.TLSInfo{CertFile: t.CertFile, KeyFile: t.KeyFile, TrustedCAFile: t.TrustedCAFile}
		var err error
		if config.TLS, err = files.ClientConfig(); err != nil {
			return nil, err
		}
	}
	return clientv3.New(config)
}

// readThrough decrypts the stored objects of a resource: all, or one.
func readThrough(ctx context.Context, client *clientv3.Client, root string, resource schema.GroupResource, transformer value.Transformer, all bool,
) error {
	prefix := path.Join("/", root, resource.Group, resource.Resource) + "/"
	limit := int64(1)
	if all {
		limit = readablePage
	}
	for key := prefix; ; {
		page, err := client.Get(ctx, key, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(limit))
		if err != nil {
			return fmt.Errorf("reading %s: %w", resource, err)
		}
		for _, kv := range page.Kvs {
			_, _, err := transformer.TransformFromStorage(ctx, kv.GetValue(), value.DefaultContext(kv.GetKey()))
			if err != nil && ofPlugin(kv.GetValue(), err) {
				return fmt.Errorf("asking the plugin of a KMS to decrypt %s: %w", kv.GetKey(), err)
			}
			if err != nil {
				return &UnreadableError{Key: string(kv.GetKey()), Err: err}
			}
			key = string(kv.GetKey()) + "\x00"
		}
		if !all || !page.More {
			return nil
		}
	}
}

// ofPlugin reports whether the error of decrypting a stored object may be the word of the plugin of a KMS, or that it has not said anything
// yet. Whatever its code, that is not known to last: a plugin whose KMS is out of its reach chooses the code itself.
func ofPlugin(stored []byte, err error) bool {
	_, answered := status.FromError(err)
	// Plugins of version 1 are asked for their version first, and that error has lost its code. Those of version 2 are asked for their status
	// before anything is decrypted: until they have answered, the transformer has no state, and says so in these words alone.
	return answered || bytes.HasPrefix(stored, []byte("k8s:enc:kms:v1:")) ||
		bytes.HasPrefix(stored, []byte("k8s:enc:kms:v2:")) && strings.HasPrefix(err.Error(), "got unexpected nil transformer")
}
