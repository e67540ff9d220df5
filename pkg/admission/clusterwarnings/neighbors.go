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
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// lookupsOfNeighbors are those of the other controllers.
func (p *Plugin) lookupsOfNeighbors(d *definition) lookups {
	if p.own == nil {
		return nil
	}
	n := &neighbors{read: func(ctx context.Context) ([]definition, error) { return p.others(ctx, d) }}
	var all lookups
	for _, parent := range d.parents {
		if d.kind != v1alpha1.KindComposite && !parent.synced {
			continue
		}
		all = append(all, lookup{parent.path, func(ctx context.Context) ([]string, error) {
			others, err := n.get(ctx)
			return append(warnOverlap(d, parent, others), warnReplaced(d, parent, others)...), err
		}})
	}
	for _, child := range d.children {
		all = append(all, lookup{child.path, func(ctx context.Context) ([]string, error) {
			others, err := n.get(ctx)
			return warnCycle(d, child, others), err
		}})
	}
	return all
}

// neighbors are the other controllers, read once.
type neighbors struct {
	read func(ctx context.Context) ([]definition, error)
	once sync.Once
	list []definition
	err  error
}

func (n *neighbors) get(ctx context.Context) ([]definition, error) {
	n.once.Do(func() {
		// A panic is the response to all who ask, not only to the first one.
		n.err = recovery.Call(ctx, "reading other controllers", func() (err error) {
			n.list, err = n.read(ctx)
			return err
		})
	})
	return n.list, n.err
}

// others reads the other controllers from this server's cache. With an error come those that could be read.
func (p *Plugin) others(ctx context.Context, d *definition) ([]definition, error) {
	var all []definition
	var errs []error
	add := func(object any) {
		if other, ok := definitionOf(object); ok && (other.kind != d.kind || other.name != d.name) {
			all = append(all, other)
		}
	}
	cached := metav1.ListOptions{ResourceVersion: "0"}
	composites, err := p.own.MetacontrollerV1alpha1().CompositeControllers().List(ctx, cached)
	if err != nil {
		errs = append(errs, fmt.Errorf("listing CompositeControllers: %w", err))
	} else {
		for i := range composites.Items {
			add((*metacontroller.CompositeController)(&composites.Items[i]))
		}
	}
	decorators, err := p.own.MetacontrollerV1alpha1().DecoratorControllers().List(ctx, cached)
	if err != nil {
		errs = append(errs, fmt.Errorf("listing DecoratorControllers: %w", err))
	} else {
		for i := range decorators.Items {
			add((*metacontroller.DecoratorController)(&decorators.Items[i]))
		}
	}
	return all, errors.Join(errs...)
}

// warnOverlap warns of other CompositeControllers with the same parents. Decorators may share targets with anybody.
func warnOverlap(d *definition, parent use, others []definition) []string {
	var texts []string
	for _, other := range others {
		if d.kind != v1alpha1.KindComposite || other.kind != v1alpha1.KindComposite {
			continue
		}
		for _, theirs := range other.parents {
			if theirs.groupResource() == parent.groupResource() && overlap(theirs.selector, parent.selector) {
				would := "both would write their status, and the ControllerRevisions of rolling updates"
				if both := shared(d.children, other.children); len(both) > 0 {
					would = fmt.Sprintf("each would delete, or release, the %s that only the other one's hook returns, and %s. Have one hook return all of them, or keep "+
						"the parents apart by labelSelectors", strings.Join(both, " and "), would)
				}
				texts = append(texts, fmt.Sprintf("CompositeController %s handles %s too, and the selectors of both may match the same ones: %s",
					other.name, parent.groupResource(), would))
			}
		}
	}
	return texts
}

// warnReplaced warns of a DecoratorController that keeps the condition Synced in the parents of a CompositeController, which replaces their status.
func warnReplaced(d *definition, parent use, others []definition) []string {
	var texts []string
	for _, other := range others {
		for _, theirs := range other.parents {
			decorated := theirs
			if d.kind == v1alpha1.KindDecorator {
				decorated = parent
			}
			if other.kind != d.kind && decorated.synced && theirs.groupResource() == parent.groupResource() && overlap(theirs.selector, parent.selector) {
				texts = append(texts, fmt.Sprintf("%s %s handles %s too, and the selectors of both may match the same ones: the CompositeController replaces their "+
					"status, and the condition Synced that the DecoratorController keeps there. Have the CompositeController alone keep it",
					other.kind, other.name, parent.groupResource()))
			}
		}
	}
	return texts
}

// shared returns the resources that two lists of children have in common.
func shared(a, b []use) []string {
	var both []string
	theirs := resources(b)
	for _, r := range resources(a) {
		if name := r.String(); slices.Contains(theirs, r) && !slices.Contains(both, name) {
			both = append(both, name)
		}
	}
	return both
}

const pods = "pods"

// made are the children that Kubernetes' own controllers make of objects, and own by a controller reference. Resources are as in replicasets.apps.
var made = map[string][]string{
	"cronjobs.batch":         {"jobs.batch"},
	"daemonsets.apps":        {pods, "controllerrevisions.apps"},
	"deployments.apps":       {"replicasets.apps"},
	"jobs.batch":             {pods},
	"replicasets.apps":       {pods},
	"replicationcontrollers": {pods},
	"services":               {"endpointslices.discovery.k8s.io"},
	"statefulsets.apps":      {pods, "controllerrevisions.apps"},
}

// warnMade warns of children of a CompositeController that Kubernetes' own controllers make of its parents.
func warnMade(parents []use, child use) []string {
	for _, parent := range parents {
		if slices.Contains(made[parent.groupResource().String()], child.groupResource().String()) {
			return []string{fmt.Sprintf("Kubernetes' own controller of %[1]s makes %[2]s of them: those that the hook does not return are deleted, or released, and made again. "+
				"To be shown %[2]s that it does not manage, have a customize hook select them", parent.rule.Resource, child.rule.Resource)}
		}
	}
	return nil
}

// warnCycle tells of a way over other controllers from a child back to the parents of a controller.
func warnCycle(d *definition, child use, others []definition) []string {
	parents := resources(d.parents)
	start := child.groupResource()
	if slices.Contains(parents, start) {
		// That is a matter of this controller alone.
		return nil
	}
	type step struct {
		resource schema.GroupResource
		way      []string
	}
	seen := map[schema.GroupResource]bool{start: true}
	for queue := []step{{start, nil}}; len(queue) > 0; queue = queue[1:] {
		for _, other := range others {
			if !slices.Contains(resources(other.parents), queue[0].resource) {
				continue
			}
			for _, next := range resources(other.children) {
				way := append(slices.Clone(queue[0].way), fmt.Sprintf("%s %s makes %s of %s", other.kind, other.name, next, queue[0].resource))
				if slices.Contains(parents, next) {
					return []string{strings.Join(way, ", ") + ", which this controller handles: unless selectors keep them apart, " +
						"objects are created without end"}
				}
				if !seen[next] {
					seen[next] = true
					queue = append(queue, step{next, way})
				}
			}
		}
	}
	return nil
}

func resources(uses []use) []schema.GroupResource {
	list := make([]schema.GroupResource, 0, len(uses))
	for _, u := range uses {
		list = append(list, u.groupResource())
	}
	return list
}
