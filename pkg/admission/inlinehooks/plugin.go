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

package inlinehooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// PluginName is the name of the plugin in --disable-admission-plugins.
const PluginName = "ControllerInlineHooks"

// patience is how long an author waits for schemas.
const patience = 5 * time.Second

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin compiles inline hooks. Create it with New; it needs a client of the cluster.
type Plugin struct {
	*admission.Handler

	client kubernetes.Interface
	// compiling is held by the one request that compiles: schemas need much memory.
	compiling chan struct{}
}

var (
	_ admission.ValidationInterface          = &Plugin{}
	_ admission.InitializationValidator      = &Plugin{}
	_ initializer.WantsExternalKubeClientSet = &Plugin{}
)

// New returns a plugin that looks at new and changed objects.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), compiling: make(chan struct{}, 1)}
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

// Validate refuses a definition whose inline hooks are wrong. One that changes nothing of what these depend on is not looked at: its kinds may
// have changed.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	d := inline.DefinitionOf(a.GetObject())
	if a.GetSubresource() != "" || !d.Has() {
		return nil
	}
	if old := inline.DefinitionOf(a.GetOldObject()); apiequality.Semantic.DeepEqual(d, old) {
		return nil
	}
	errs, err := p.compile(ctx, d)
	if err != nil {
		warning.AddWarning(ctx, "", fmt.Sprintf("spec.hooks: inline hooks are not checked against all kinds: %v; the condition HooksHealthy says "+
			"whether they fit", err))
		return nil
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	return nil
}

// compile returns what is wrong, and warns of what cannot be checked, one definition at a time. The error says that schemas could not be read:
// what seems to be wrong may be so because of that.
func (p *Plugin) compile(ctx context.Context, d inline.Definition) (errs field.ErrorList, err error) {
	reading, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case p.compiling <- struct{}{}:
	case <-reading.Done():
		return nil, fmt.Errorf("waiting for other controllers: %w", reading.Err())
	}
	defer func() { <-p.compiling }()
	err = recovery.Call(ctx, "compiling inline hooks", func() error {
		kinds := p.kinds(reading)
		_, warnings, found := inline.Compile(d, kinds)
		for i := 0; kinds.Err() == nil && i < len(warnings); i++ {
			warning.AddWarning(ctx, "", "spec.hooks: "+warnings[i])
		}
		errs = found
		return kinds.Err()
	})
	return errs, err
}

// kinds reads the schemas of the cluster.
func (p *Plugin) kinds(ctx context.Context) *inline.Published {
	client := p.client.Discovery()
	get := func(path ...string) ([]byte, error) {
		data, err := client.RESTClient().Get().AbsPath(path...).SetHeader("Accept", "application/json").DoRaw(ctx)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, nil
		}
		return data, err
	}
	resources := map[string]map[string]string{}
	return &inline.Published{
		Definition: func(resource schema.GroupResource) ([]byte, error) {
			if resource.Group == v1alpha1.GroupName { // What is defined is hidden by what this server serves.
				return nil, nil
			}
			return get("apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions", resource.String())
		},
		Kind: func(apiVersion, resource string) (string, error) {
			if resources[apiVersion] == nil {
				list, err := client.ServerResourcesForGroupVersionWithContext(ctx, apiVersion)
				if err != nil && !apierrors.IsNotFound(err) {
					return "", fmt.Errorf("discovering %s: %w", apiVersion, err)
				}
				resources[apiVersion] = map[string]string{}
				for i := 0; err == nil && i < len(list.APIResources); i++ {
					resources[apiVersion][list.APIResources[i].Name] = list.APIResources[i].Kind
				}
			}
			return resources[apiVersion][resource], nil
		},
		Document: func(version schema.GroupVersion) ([]byte, error) {
			if version.Group == "" {
				return get("openapi", "v3", "api", version.Version)
			}
			return get("openapi", "v3", "apis", version.Group, version.Version)
		},
	}
}
