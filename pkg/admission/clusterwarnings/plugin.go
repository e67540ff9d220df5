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

	"golang.org/x/sync/errgroup"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/admission/escalation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// PluginName is the name of the plugin in --disable-admission-plugins.
const PluginName = "ControllerClusterWarnings"

const (
	// patience is how long an author waits for warnings.
	patience = 2 * time.Second
	// parallel is how many lookups are made at the same time for one object.
	parallel = 16
	// maxWarnings is how many warnings an author gets.
	maxWarnings = 20
)

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin warns. Create it with New; it needs a client of the cluster, and looks at other controllers if an Initializer gives it a
// client for them.
type Plugin struct {
	*admission.Handler

	client  kubernetes.Interface
	own     versioned.Interface
	port    int
	service types.NamespacedName
}

var (
	_ admission.ValidationInterface          = &Plugin{}
	_ admission.InitializationValidator      = &Plugin{}
	_ initializer.WantsExternalKubeClientSet = &Plugin{}
)

// New returns a plugin that looks at new and changed objects, and at those that are deleted.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// SetExternalKubeClientSet gives the plugin the client of the cluster.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// Initializer gives the plugin what it knows of this server.
type Initializer struct {
	// Own reads controllers from this server.
	Own versioned.Interface
	// Port is the one at which this server listens. Zero: it is not known.
	Port int
	// Service is the one by which the cluster reaches this server.
	Service types.NamespacedName
}

// Initialize implements admission.PluginInitializer.
func (i Initializer) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*Plugin); ok {
		p.own, p.port, p.service = i.Own, i.Port, i.Service
	}
}

// ValidateInitialization says whether the plugin has what it needs.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil {
		return errors.New("it needs a client of the cluster")
	}
	return nil
}

// Validate warns about a new or changed definition, or about what the deletion of one leaves, and admits it.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetOperation() == admission.Delete {
		if d, ok := definitionOf(a.GetOldObject()); ok && a.GetSubresource() == "" {
			tell(ctx, p.lookupsOfDeletion(&d).run(ctx, a.GetName()))
		}
		return nil
	}
	d, ok := definitionOf(a.GetObject())
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	d.name = a.GetName()
	if old, ok := definitionOf(a.GetOldObject()); ok && apiequality.Semantic.DeepEqual(d.spec, old.spec) {
		return nil
	}
	d.unchecked = escalation.Unchecked(a.GetObject(), a.GetOldObject())
	lookups := slices.Concat(p.lookupsOfKinds(&d), p.lookupsOfHooks(&d), p.lookupsOfNeighbors(&d))
	tell(ctx, lookups.run(ctx, a.GetName()))
	return nil
}

// tell sends warnings to the author.
func tell(ctx context.Context, texts []string) {
	for i, text := range texts {
		if i == maxWarnings {
			warning.AddWarning(ctx, "", fmt.Sprintf("and %d more warnings", len(texts)-maxWarnings))
			return
		}
		warning.AddWarning(ctx, "", text)
	}
}

// A lookup finds out about one place of a definition.
type lookup struct {
	path *field.Path
	// find returns what there is to say about the place; nothing if all is well or not known.
	find func(ctx context.Context) ([]string, error)
}

type lookups []lookup

// run makes all lookups and returns the warnings in their order, without repetitions.
func (l lookups) run(ctx context.Context, controller string) []string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := make([][]string, len(l))
	var running errgroup.Group
	running.SetLimit(parallel)
	for i := range l {
		running.Go(func() error {
			var texts []string
			err := recovery.Call(ctx, "looking for what to warn of", func() (err error) {
				texts, err = l[i].find(ctx)
				return err
			})
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot tell the author of a controller whether something is wrong",
					"controller", controller, "field", l[i].path.String(), "err", err)
			}
			for _, text := range texts {
				found[i] = append(found[i], l[i].path.String()+": "+text)
			}
			return nil
		})
	}
	_ = running.Wait() // They return no error.
	var texts []string
	for _, text := range slices.Concat(found...) {
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}
