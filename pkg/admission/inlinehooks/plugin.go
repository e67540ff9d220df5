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

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// PluginName is the name of the plugin in --disable-admission-plugins.
const PluginName = "ControllerInlineHooks"

const (
	// patience is how long an author waits for schemas.
	patience = 5 * time.Second
	// publication is how long an author waits for the schema of a kind that is served: API servers publish that of a new kind about a second
	// later. They are read again after each pause.
	publication, pause = 3 * time.Second, 300 * time.Millisecond
)

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

// compile returns what is wrong, and warns of what cannot be checked. The error says that schemas could not be read.
func (p *Plugin) compile(ctx context.Context, d inline.Definition) (field.ErrorList, error) {
	reading, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	for {
		kinds := &kinds{Published: p.kinds(reading)}
		warnings, errs, err := p.compileWith(reading, d, kinds)
		if err != nil {
			return nil, err
		}
		if !kinds.unpublished || time.Since(began) > publication {
			for _, text := range warnings {
				warning.AddWarning(ctx, "", "spec.hooks: "+text)
			}
			return errs, nil
		}
		select {
		case <-time.After(pause):
		case <-reading.Done():
		}
	}
}

// compileWith compiles, one definition at a time.
func (p *Plugin) compileWith(ctx context.Context, d inline.Definition, kinds *kinds) (warnings []string, errs field.ErrorList, err error) {
	select {
	case p.compiling <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("waiting for other controllers: %w", ctx.Err())
	}
	defer func() { <-p.compiling }()
	err = recovery.Call(ctx, "compiling inline hooks", func() error {
		_, warnings, errs = inline.Compile(d, kinds)
		return kinds.Err() // What seems to be wrong may be so because of that.
	})
	return warnings, errs, err
}

// kinds are those of a cluster.
type kinds struct {
	*inline.Published

	// unpublished says that a kind is served without a schema.
	unpublished bool
}

// Resource implements [inline.Schemas].
func (k *kinds) Resource(apiVersion, resource string) (*inline.Kind, bool) {
	kind, served := k.Published.Resource(apiVersion, resource)
	k.unpublished = k.unpublished || served && kind.Schema == nil
	return kind, served
}

// kinds reads the schemas of the cluster.
func (p *Plugin) kinds(ctx context.Context) *inline.Published {
	client := p.client.Discovery()
	resources := map[string]map[string]string{}
	return &inline.Published{
		Kind: func(apiVersion, resource string) (string, error) {
			if known, ok := resources[apiVersion]; ok {
				return known[resource], nil
			}
			list, err := client.ServerResourcesForGroupVersionWithContext(ctx, apiVersion)
			if err != nil && !apierrors.IsNotFound(err) {
				return "", fmt.Errorf("discovering %s: %w", apiVersion, err)
			}
			resources[apiVersion] = map[string]string{}
			if err == nil {
				for i := range list.APIResources {
					resources[apiVersion][list.APIResources[i].Name] = list.APIResources[i].Kind
				}
			}
			return resources[apiVersion][resource], nil
		},
		Document: func(version schema.GroupVersion) ([]byte, error) {
			path := []string{"openapi", "v3", "api", version.Version}
			if version.Group != "" {
				path = []string{"openapi", "v3", "apis", version.Group, version.Version}
			}
			data, err := client.RESTClient().Get().AbsPath(path...).Do(ctx).Raw()
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			return data, err
		},
	}
}
