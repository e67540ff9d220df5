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
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Register registers the server at Options.Host and Options.Port, and waits until it is available. Doing it again is harmless,
// and changes host, port and authority. It changes no namespace that exists, and no role whose rules somebody else has
// written unless Options.RestoreRoles is set.
//
// The error is a *ServedByDefinitionsError or an *OccupiedError when the cluster has another registration, in which case
// nothing was changed, and an *UnavailableError when the server was not reached in time.
func Register(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	client, err := newClient(o.Config)
	if err != nil {
		return err
	}
	if err := checkDefinitions(ctx, client); err != nil {
		return err
	}
	if err := checkExisting(ctx, client); err != nil {
		return err
	}
	objects, err := manifests(o)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := applyOne(ctx, client, object, o); err != nil {
			return err
		}
	}
	if o.Timeout == 0 {
		return nil
	}
	return waitAvailable(ctx, client, o)
}

// applyOne writes one object of a registration.
func applyOne(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured, o Options) error {
	switch object.GetKind() {
	case kindNamespace:
		return ensureNamespace(ctx, client, object, o.Progress)
	case kindClusterRole, kindRole:
		return applyRole(ctx, client, object, o)
	default:
		if err := apply(ctx, client, object, FieldManager); err != nil {
			return err
		}
		progressf(o.Progress, "applied %s", describe(object))
		return nil
	}
}

// ApplyRoles applies the roles of a registration alone, and the namespace of one of them, so that they can be bound to the user of a server
// that is no administrator before that server starts. Of the options it takes Config, RestoreRoles and Progress.
func ApplyRoles(ctx context.Context, o Options) error {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	client, err := newClient(o.Config)
	if err != nil {
		return err
	}
	objects, err := manifests(o)
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch object.GetKind() {
		case kindNamespace, kindClusterRole, kindRole:
		default:
			continue
		}
		if err := applyOne(ctx, client, object, o); err != nil {
			return err
		}
	}
	return nil
}

func newClient(config *rest.Config) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// apply writes one object. Fields that another field manager owns are taken over: a registration is explicit.
func apply(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured, manager string) error {
	target, err := resourceFor(client, object)
	if err != nil {
		return err
	}
	_, err = target.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("applying %s: %w", describe(object), err)
	}
	return nil
}

// progressf tells the user of a step. Nobody is helped when that fails.
func progressf(w io.Writer, format string, arguments ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", arguments...)
}
