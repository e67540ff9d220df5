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

package controllerobject

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// Object is a controller object of either kind: exactly one of the fields is set.
type Object struct {
	Composite *v1alpha1.CompositeController
	Decorator *v1alpha1.DecoratorController
}

// Kind is the kind as the API writes it, such as CompositeController.
func (o Object) Kind() string {
	if o.Composite != nil {
		return v1alpha1.KindComposite
	}
	return v1alpha1.KindDecorator
}

// Name is the name of the object.
func (o Object) Name() string { return o.either().GetName() }

// Argument names the object as commands take it, such as cc/web.
func (o Object) Argument() string {
	if o.Composite != nil {
		return "cc/" + o.Name()
	}
	return "dc/" + o.Name()
}

// Resource names the object as kubectl takes it, such as compositecontroller/web.
func (o Object) Resource() string { return strings.ToLower(o.Kind()) + "/" + o.Name() }

// Generation is metadata.generation.
func (o Object) Generation() int64 { return o.either().GetGeneration() }

// ManagedFields are metadata.managedFields.
func (o Object) ManagedFields() []metav1.ManagedFieldsEntry { return o.either().GetManagedFields() }

// Status is the part of the status that both kinds have.
func (o Object) Status() *v1alpha1.ControllerStatus {
	if o.Composite != nil {
		return &o.Composite.Status.ControllerStatus
	}
	return &o.Decorator.Status.ControllerStatus
}

// Account is the service account of the definition, nil if it names none.
func (o Object) Account() *v1alpha1.ServiceAccountReference {
	if o.Composite != nil {
		return o.Composite.Spec.ServiceAccountRef
	}
	return o.Decorator.Spec.ServiceAccountRef
}

// Parents are the rules of the objects that the controller handles.
func (o Object) Parents() []v1alpha1.ResourceRule { return o.definition().Parents }

// HasParents reports whether objects of a resource are among those that the controller handles.
func (o Object) HasParents(resource schema.GroupResource) bool {
	return slices.ContainsFunc(o.Parents(), func(rule v1alpha1.ResourceRule) bool {
		parents, err := rule.GroupVersionResource()
		return err == nil && parents.GroupResource() == resource
	})
}

// Children are the rules of the objects that the controller creates.
func (o Object) Children() []v1alpha1.ResourceRule { return o.definition().Children }

// Customizes reports whether the controller has a customize hook.
func (o Object) Customizes() bool {
	hook := o.definition().Customize
	return hook != nil && (hook.Webhook != nil || hook.Inline != nil)
}

// Inline reports whether the sync hook is inline.
func (o Object) Inline() bool {
	hook := o.definition().Sync
	return hook != nil && hook.Inline != nil
}

func (o Object) definition() inline.Definition {
	if o.Composite != nil {
		return inline.Composite(&o.Composite.Spec)
	}
	return inline.Decorator(&o.Decorator.Spec)
}

// Runtime returns the object itself, with its kind and version set, which clients leave out.
func (o Object) Runtime() runtime.Object {
	object := o.either()
	object.GetObjectKind().SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(o.Kind()))
	return object
}

func (o Object) either() interface {
	runtime.Object
	metav1.Object
} {
	if o.Composite != nil {
		return o.Composite
	}
	return o.Decorator
}

// Paused reports whether the definition says that the controller is to be paused.
func (o Object) Paused() bool {
	if o.Composite != nil {
		return ptr.Deref(o.Composite.Spec.Paused, false)
	}
	return ptr.Deref(o.Decorator.Spec.Paused, false)
}

// Kind is one of the two kinds of controllers, as kubectl writes it.
type Kind string

// The kinds of controllers.
const (
	Composite Kind = "compositecontroller"
	Decorator Kind = "decoratorcontroller"
)

// names are what people write for each kind: those that the API server declares.
func names() map[Kind][]string {
	return map[Kind][]string{
		Composite: {string(Composite), string(Composite) + "s", "cc", "cctl"},
		Decorator: {string(Decorator), string(Decorator) + "s", "dc", "dec", "decorators"},
	}
}

// IsKind tells whether a word names a kind of controllers, with or without the group.
func IsKind(word string) bool {
	reference, err := Parse(word + "/name")
	return err == nil && reference.Kind != ""
}

// Reference is a controller object as a person names it.
type Reference struct {
	// Kind is empty where the name was given alone.
	Kind Kind
	Name string
}

// Parse reads NAME or KIND/NAME, where a kind is written as kubectl takes it, with or without the group.
func Parse(argument string) (Reference, error) {
	kind, name, given := strings.Cut(argument, "/")
	if !given {
		kind, name = "", argument
	}
	if name == "" || strings.Contains(name, "/") {
		return Reference{}, fmt.Errorf("%q names no controller: write NAME, cc/NAME or dc/NAME", argument)
	}
	if !given {
		return Reference{Name: name}, nil
	}
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	for known, written := range names() {
		if slices.Contains(written, kind) {
			return Reference{Kind: known, Name: name}, nil
		}
	}
	return Reference{}, fmt.Errorf("%q is not a kind of controllers: write %s (cc) or %s (dc)", kind, Composite, Decorator)
}

// Is reports whether an object is the one that was named.
func (r Reference) Is(o Object) bool {
	return r.Name == o.Name() && (r.Kind == "" || string(r.Kind) == strings.ToLower(o.Kind()))
}

// Find reads the controller object that an argument names. A name alone must be that of one object only.
func Find(ctx context.Context, client versioned.Interface, argument string) (Object, error) {
	reference, err := Parse(argument)
	if err != nil {
		return Object{}, err
	}
	kinds := []Kind{Composite, Decorator}
	if reference.Kind != "" {
		kinds = []Kind{reference.Kind}
	}
	var found []Object
	for _, kind := range kinds {
		object, err := get(ctx, client, kind, reference.Name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return Object{}, fmt.Errorf("reading %s/%s: %w", kind, reference.Name, err)
		}
		found = append(found, object)
	}
	switch len(found) {
	case 0:
		return Object{}, missing(ctx, client, argument)
	case 1:
		return found[0], nil
	}
	return Object{}, fmt.Errorf("there are two controllers of the name %s: say %s or %s", reference.Name, found[0].Argument(), found[1].Argument())
}

func get(ctx context.Context, client versioned.Interface, kind Kind, name string) (Object, error) {
	api := client.MetacontrollerV1alpha1()
	if kind == Composite {
		object, err := api.CompositeControllers().Get(ctx, name, metav1.GetOptions{})
		return Object{Composite: object}, err
	}
	object, err := api.DecoratorControllers().Get(ctx, name, metav1.GetOptions{})
	return Object{Decorator: object}, err
}

// missing tells a controller that does not exist from an API that is not served.
func missing(ctx context.Context, client versioned.Interface, argument string) error {
	if err := Served(ctx, client); err != nil {
		return err
	}
	return fmt.Errorf("there is no controller %s: list them with 'kubectl get compositecontrollers,decoratorcontrollers'", argument)
}

// List reads all controller objects, CompositeControllers first, by name.
func List(ctx context.Context, client versioned.Interface) ([]Object, error) {
	composites, err := client.MetacontrollerV1alpha1().CompositeControllers().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		if unserved := Served(ctx, client); unserved != nil {
			return nil, unserved
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing CompositeControllers: %w", err)
	}
	decorators, err := client.MetacontrollerV1alpha1().DecoratorControllers().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing DecoratorControllers: %w", err)
	}
	list := make([]Object, 0, len(composites.Items)+len(decorators.Items))
	for i := range composites.Items {
		list = append(list, Object{Composite: &composites.Items[i]})
	}
	for i := range decorators.Items {
		list = append(list, Object{Decorator: &decorators.Items[i]})
	}
	return list, nil
}

// Version is the version of the API group that this program speaks, such as example.com/v1.
func Version() string { return v1alpha1.SchemeGroupVersion.String() }

// Served returns an error that says what to do if the cluster does not serve the API group, and nil if it does.
func Served(ctx context.Context, client versioned.Interface) error {
	version := Version()
	_, err := discovery.ToDiscoveryInterfaceWithContext(client.Discovery()).ServerResourcesForGroupVersionWithContext(ctx, version)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster does not serve %s: install metacontroller-apiserver, or register a running one with "+
			"'metacontroller-apiserver register'", version)
	}
	if err != nil {
		return fmt.Errorf("asking whether the cluster serves %s: %w", version, err)
	}
	return nil
}
