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

package registration

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// keepInterval is the pause between two looks at the authority of a server that has registered itself.
const keepInterval = 10 * time.Second

// Self describes a server inside of the cluster that registers itself, once it serves.
type Self struct {
	// Config reaches the cluster, as a user who may read and write the APIService, and read Owner.
	Config *rest.Config
	// ServiceNamespace and ServiceName are those of the Service at which the kube-apiserver reaches the server.
	ServiceNamespace, ServiceName string
	// Owner is a ClusterRole with which the registration goes, so that removing the manifests of an installation removes what is not in
	// them. Empty: the registration stays until it is deleted.
	Owner string
	// Authority returns the certificate authority of the server, PEM. It may change, and it may be several certificates. Those that the
	// registration trusts besides are left in it until they expire: they may be those of other replicas, or Trust may be about to add or to
	// remove them. To make room for its own, the server leaves out those that have been there longest.
	Authority func(ctx context.Context) ([]byte, error)
	// Missing is told, after each look at which the cluster said so, whether there is no registration of this server. Nil: nobody is told.
	Missing func(missing bool)
	// Hidden is told, after each look at which the cluster said so, how many CustomResourceDefinitions of the group there are while this server
	// is registered. Nil: nobody is told.
	Hidden func(definitions int)
	// Clock tells when to look again. Nil means the clock of the machine.
	Clock clock.WithTicker
}

// Run registers the server, and then keeps the authority of the registration current, until ctx ends. What does not succeed is logged,
// and tried again: a registration of CustomResourceDefinitions or of another server is left alone until it is gone. A registration that
// went with an Owner which was replaced is made again. One that is deleted for no such reason is not made again before Run is called again:
// somebody has taken the server out of the cluster. That is logged once.
func (s *Self) Run(ctx context.Context) {
	ticker := s.clock().NewTicker(keepInterval)
	defer ticker.Stop()
	k := keeper{Self: s}
	for {
		k.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (s *Self) clock() clock.WithTicker {
	if s.Clock == nil {
		return clock.RealClock{}
	}
	return s.Clock
}

// keeper is what Run remembers from one look to the next.
type keeper struct {
	*Self

	// registered says that there was a registration of this server, and owner is the UID of the Owner that it had then.
	registered bool
	owner      types.UID
	// takenOut says that it was logged that the registration is gone, and last is the last error that was logged since one was found.
	takenOut bool
	last     string
	// hidden are the definitions that were found beside the registration.
	hidden []string
}

// finding is what one look found. Without known, the cluster did not say whether there is a registration of this server.
type finding struct {
	known, there, written bool
}

// look looks at the registration once, writes it if it must, and tells what was found.
func (k *keeper) look(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("apiService", APIServiceName)
	var found finding
	err := recovery.Call(ctx, "registering this server", func() (err error) {
		found, err = k.apply(ctx)
		return err
	})
	if ctx.Err() != nil {
		return
	}
	if found.known && k.Missing != nil {
		k.Missing(!found.there)
	}
	if found.known {
		k.lookForHidden(ctx, found.there)
	}
	switch {
	case err == nil && found.there:
		if found.written {
			logger.Info("Registered", "service", k.ServiceNamespace+"/"+k.ServiceName)
		}
		k.registered, k.takenOut, k.last = true, false, ""
	case err == nil:
		k.last = ""
		if !k.takenOut {
			logger.Error(nil, "The registration of this server was deleted, and the cluster does not use the server any more; restart its Pod to have it "+
				"registered again", "service", k.ServiceNamespace+"/"+k.ServiceName)
			k.takenOut = true
		}
	case apierrors.IsConflict(err):
		// Another replica, or the cluster itself: its status is in the same object.
		logger.V(2).Info("The registration has changed meanwhile; looking again", "after", keepInterval)
	case err.Error() != k.last:
		// The same reason once.
		logger.Error(err, "Cannot register this server; trying again", "after", keepInterval)
		k.last = err.Error()
	}
}

// lookForHidden looks for CustomResourceDefinitions that the registration, if it is there, hides: Metacontroller may have been installed again.
func (k *keeper) lookForHidden(ctx context.Context, registered bool) {
	logger := klog.FromContext(ctx).WithValues("apiService", APIServiceName)
	var found []string
	if registered {
		err := recovery.Call(ctx, "looking for definitions", func() error {
			client, err := newClient(k.Config)
			if err == nil {
				found, err = findDefinitions(ctx, client)
			}
			return err
		})
		if err != nil {
			logger.V(2).Info("Cannot tell whether the registration hides CustomResourceDefinitions", "err", err)
			return
		}
	}
	if k.Hidden != nil {
		k.Hidden(len(found))
	}
	if registered && !slices.Equal(found, k.hidden) {
		if len(found) > 0 {
			logger.Error(nil, "The cluster has CustomResourceDefinitions of the group that this server serves, and what is stored by them is not seen; if "+
				"Metacontroller runs again, too, stop it, and delete them", "definitions", found)
		} else {
			logger.Info("The CustomResourceDefinitions of the group that this server serves are gone", "definitions", k.hidden)
		}
	}
	k.hidden = found
}

// apply writes the registration if it differs from what it should be. One that was there before and is gone is made again only if
// its owner was replaced.
func (k *keeper) apply(ctx context.Context) (finding, error) {
	client, err := newClient(k.Config)
	if err != nil {
		return finding{}, err
	}
	// Read before the authority, and written under the condition that it did not change since: so nobody who was late takes back what another
	// replica has published after a rotation.
	existing, err := readAPIService(ctx, client)
	switch {
	case err != nil:
		return finding{}, err
	case existing == nil:
		if create, err := k.mayCreate(ctx, client); !create {
			return finding{known: true}, err
		}
	default:
		if err := checkOwn(existing, k.ServiceNamespace, k.ServiceName); err != nil {
			return finding{known: true}, err
		}
	}
	now := finding{known: true, there: existing != nil}
	bundle, err := k.Authority(ctx)
	if err != nil {
		return now, fmt.Errorf("reading certificate authority: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return now, errors.New("reading certificate authority: there is no certificate in PEM form")
	}
	if existing != nil {
		bundle = joined(bundle, existing, k.clock().Now())
	}
	wanted, err := k.wanted(ctx, client, bundle)
	if err != nil {
		return now, err
	}
	if existing == nil || !same(existing, wanted) {
		if existing != nil {
			wanted.SetResourceVersion(existing.GetResourceVersion())
		}
		if err := apply(ctx, client, wanted, FieldManager); err != nil {
			return now, err
		}
		now.there, now.written = true, true
	}
	for _, owner := range wanted.GetOwnerReferences() {
		k.owner = owner.UID
	}
	return now, nil
}

// mayCreate reports whether a registration is to be made where there is none. The error says why not, if nobody has taken it out.
func (k *keeper) mayCreate(ctx context.Context, client dynamic.Interface) (bool, error) {
	if k.registered {
		if k.Owner == "" {
			return false, nil
		}
		owner, err := k.readOwner(ctx, client)
		if err != nil {
			return false, err
		}
		if owner.GetUID() == k.owner {
			return false, nil
		}
	}
	// What serves the group now would be hidden.
	if err := checkDefinitions(ctx, client); err != nil {
		return false, err
	}
	return true, nil
}

// readOwner reads the ClusterRole with which the registration is to go.
func (s *Self) readOwner(ctx context.Context, client dynamic.Interface) (*unstructured.Unstructured, error) {
	owner, err := client.Resource(resources[kindClusterRole]).Get(ctx, s.Owner, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading ClusterRole %s, with which the registration is to go: %w", s.Owner, err)
	}
	return owner, nil
}

// wanted returns the registration as it should be.
func (s *Self) wanted(ctx context.Context, client dynamic.Interface, bundle []byte) (*unstructured.Unstructured, error) {
	objects, err := readManifest("apiservice.yaml")
	if err != nil {
		return nil, err
	}
	wanted := objects[0]
	err = errors.Join(
		setService(wanted, s.ServiceNamespace, s.ServiceName),
		setBundle(wanted, bundle),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", describe(wanted), err)
	}
	if s.Owner == "" {
		return wanted, nil
	}
	owner, err := s.readOwner(ctx, client)
	if err != nil {
		return nil, err
	}
	wanted.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
	}})
	return wanted, nil
}

// same tells whether a registration is what it should be.
func same(existing, wanted *unstructured.Unstructured) bool {
	port := func(o *unstructured.Unstructured) any {
		found, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "service", "port")
		return found
	}
	if port(existing) != port(wanted) || !maps.Equal(certificatesOf(existing), certificatesOf(wanted)) {
		return false
	}
	return !slices.ContainsFunc(wanted.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return !owned(existing, owner) })
}

// certificatesOf returns the certificates in the caBundle of a registration, in DER.
func certificatesOf(apiService *unstructured.Unstructured) map[string]bool {
	bundle, err := bundleOf(apiService)
	if err != nil {
		return nil
	}
	certificates := map[string]bool{}
	for _, certificate := range decodeAll(bundle) {
		certificates[string(certificate)] = true
	}
	return certificates
}

func owned(o *unstructured.Unstructured, by metav1.OwnerReference) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(reference metav1.OwnerReference) bool { return reference.UID == by.UID })
}
