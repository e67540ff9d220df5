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

package clusterwarnings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// PluginName is the name of the plugin in --disable-admission-plugins.
const PluginName = "ControllerClusterWarnings"

// patience is how long an author waits for a warning.
const patience = 2 * time.Second

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin warns. Create it with New; it needs a client of the cluster.
type Plugin struct {
	*admission.Handler

	client kubernetes.Interface
}

var (
	_ admission.ValidationInterface          = &Plugin{}
	_ admission.InitializationValidator      = &Plugin{}
	_ initializer.WantsExternalKubeClientSet = &Plugin{}
)

// New returns a plugin that looks at new and changed objects.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetExternalKubeClientSet gives the plugin the client of the cluster.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization says whether the plugin has what it needs.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil {
		return errors.New("it needs a client of the cluster")
	}
	return nil
}

// Validate warns about a new or changed definition, and admits it.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	uses := usesOf(a.GetObject())
	if len(uses) == 0 || slices.EqualFunc(uses, usesOf(a.GetOldObject()), sameRule) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	served := served{client: p.client.Discovery(), known: map[schema.GroupVersion]sets.Set[string]{}}
	for _, use := range uses {
		message, err := use.warning(ctx, served)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot look for the resources of a controller", "controller", a.GetName(), "err", err)
			return nil
		}
		if message != "" {
			warning.AddWarning(ctx, "", use.path.String()+": "+message)
		}
	}
	return nil
}

// use is one place of a definition where a resource is named.
type use struct {
	rule metacontroller.ResourceRule
	path *field.Path
	// status says that the status of the objects is to be written.
	status bool
}

func sameRule(a, b use) bool { return a.rule == b.rule }

// usesOf lists the resources that a definition names; other objects name none.
func usesOf(object any) []use {
	spec := field.NewPath("spec")
	var uses []use
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		uses = append(uses, use{o.Spec.ParentResource.ResourceRule, spec.Child("parentResource"), true})
		for i, rule := range o.Spec.ChildResources {
			uses = append(uses, use{rule.ResourceRule, spec.Child("childResources").Index(i), false})
		}
	case *metacontroller.DecoratorController:
		for i, rule := range o.Spec.Resources {
			uses = append(uses, use{rule.ResourceRule, spec.Child("resources").Index(i), false})
		}
		for i, rule := range o.Spec.Attachments {
			uses = append(uses, use{rule.ResourceRule, spec.Child("attachments").Index(i), false})
		}
	}
	return uses
}

// warning is what there is to say about a use; empty if nothing.
func (u use) warning(ctx context.Context, s served) (string, error) {
	gv, err := schema.ParseGroupVersion(u.rule.APIVersion)
	if err != nil {
		return "", fmt.Errorf("parsing the API version of %s: %w", u.path, err)
	}
	resources, err := s.in(ctx, gv)
	if err != nil {
		return "", err
	}
	switch {
	case !resources.Has(u.rule.Resource):
		return fmt.Sprintf("the cluster does not serve %s in %s; the controller starts when it does", u.rule.Resource, gv), nil
	case u.status && !resources.Has(u.rule.Resource+"/status"):
		return fmt.Sprintf("%s have no status subresource; the status that hooks return is not written", u.rule.Resource), nil
	}
	return "", nil
}

// served knows which resources the cluster serves.
type served struct {
	client discovery.ServerResourcesInterfaceWithContext
	known  map[schema.GroupVersion]sets.Set[string]
}

func (s served) in(ctx context.Context, gv schema.GroupVersion) (sets.Set[string], error) {
	if names, ok := s.known[gv]; ok {
		return names, nil
	}
	names := sets.New[string]()
	list, err := s.client.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("discovering %s: %w", gv, err)
	}
	if err == nil {
		for i := range list.APIResources {
			names.Insert(list.APIResources[i].Name)
		}
	}
	s.known[gv] = names
	return names, nil
}
