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

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

var (
	parentResource    = schema.GroupVersionResource{Group: "bench.example.com", Version: "v1", Resource: "things"}
	childResource     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	podResource       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	compositeResource = schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "compositecontrollers"}
	decoratorResource = schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "decoratorcontrollers"}
	revisionResource  = schema.GroupVersionResource{Group: "metacontroller.k8s.io", Version: "v1alpha1", Resource: "controllerrevisions"}
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.bench.example.com}
spec:
  group: bench.example.com
  names: {kind: Thing, plural: things, singular: thing}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {children: {type: integer}, revision: {type: string}}}
          status:
            type: object
            properties: {children: {type: integer}, revision: {type: string}, observedGeneration: {type: integer}}
`

const (
	// hookSync is the hook that every controller has.
	hookSync = "sync"
	// inPlace is the update strategy of all but the rolling update.
	inPlace = "InPlace"
)

// composite is a CompositeController for the parents whose label bench has its name.
type composite struct {
	name string
	// hooks are the paths by the name of the hook.
	hooks  map[string]string
	method string
}

func (b *bench) compositeBody(c composite) []byte {
	hooks := make([]string, 0, len(c.hooks))
	for name, path := range c.hooks {
		hooks = append(hooks, fmt.Sprintf(`%q:{"webhook":{"url":%q}}`, name, b.hookURL+path))
	}
	return fmt.Appendf(nil, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":%q},"spec":{`+
		`"generateSelector":true,"parentResource":{"apiVersion":"bench.example.com/v1","resource":"things","labelSelector":{"matchLabels":{"bench":%q}}},`+
		`"childResources":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":%q}}],"hooks":{%s}}}`, c.name, c.name, c.method, strings.Join(hooks, ","))
}

// controller creates a controller and waits until it runs. The function that it returns deletes it.
func (b *bench) controller(ctx context.Context, c composite) (func(context.Context) error, error) {
	if err := b.kubectlApply(ctx, string(b.compositeBody(c))); err != nil {
		return nil, err
	}
	if err := b.ready(ctx, c.name); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return b.deleteController(ctx, compositeResource, c.name) }, nil
}

func (b *bench) createController(ctx context.Context, resource schema.GroupVersionResource, body []byte) error {
	if _, err := b.client.Create(ctx, client.Target{Resource: resource}, body); err != nil {
		return fmt.Errorf("creating a controller: %w", err)
	}
	return nil
}

func (b *bench) deleteController(ctx context.Context, resource schema.GroupVersionResource, name string) error {
	if err := b.client.Delete(ctx, client.Target{Resource: resource, Name: name}); err != nil {
		return fmt.Errorf("deleting controller %s: %w", name, err)
	}
	return nil
}

func (b *bench) kubectlApply(ctx context.Context, manifests string) error {
	apply := exec.CommandContext(ctx, b.kubectl, "--kubeconfig", b.kubeFile, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(manifests)
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("applying the bench's objects: %w\n%s", err, output)
	}
	return nil
}

// ready waits until a CompositeController runs.
func (b *bench) ready(ctx context.Context, controller string) error {
	if !b.subject.Conditions() {
		return b.probe(ctx, controller)
	}
	wait := exec.CommandContext(ctx, b.kubectl, "--kubeconfig", b.kubeFile, "wait", "--for=condition=Ready", "--timeout=60s", "compositecontroller/"+controller)
	if output, err := wait.CombinedOutput(); err != nil {
		return fmt.Errorf("waiting for %s: %w\n%s", controller, err, output)
	}
	return nil
}

// probe waits until a controller without conditions syncs a parent that is there for that alone, and until that parent is gone.
func (b *bench) probe(ctx context.Context, controller string) error {
	ctx, cancel := context.WithTimeout(ctx, b.plan.timeout)
	defer cancel()
	namespace, err := b.namespace(ctx, "probe")
	if err != nil {
		return err
	}
	name := parentName(0)
	if _, err := b.client.Create(ctx, target(namespace, ""), parentBody(namespace, name, size{1, 1}, controller, "1")); err != nil {
		return fmt.Errorf("creating a parent for %s: %w", controller, err)
	}
	if err := b.poll(ctx, target(namespace, name), func(o *object.Object) bool {
		_, synced := o.Field("status", "observedGeneration")
		return synced
	}); err != nil {
		return fmt.Errorf("waiting for %s to sync a parent: %w", controller, err)
	}
	if err := b.client.Delete(ctx, target(namespace, name)); err != nil {
		return fmt.Errorf("deleting the parent for %s: %w", controller, err)
	}
	if err := b.poll(ctx, target(namespace, name), func(*object.Object) bool { return false }); !apierrors.IsNotFound(err) {
		return fmt.Errorf("waiting for the end of the parent for %s: %w", controller, err)
	}
	return b.clear(ctx, namespace)
}

// poll reads an object until it is as it is wanted, or cannot be read.
func (b *bench) poll(ctx context.Context, t client.Target, wanted func(*object.Object) bool) error {
	for {
		o, err := b.client.Get(ctx, t)
		if err != nil || wanted(o) {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
