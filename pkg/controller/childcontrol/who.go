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

package childcontrol

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Managers are the field managers of an object as it is at the API server. The zero value knows none.
type Managers struct {
	fields []byte
	// own are the managers under which the controller itself writes the object.
	own []string
}

// Managers reads who manages a parent, which a cache does not have. It knows none if that fails.
func (c *Control) Managers(ctx context.Context, t client.Target) Managers {
	return c.managers(ctx, t, client.PatchManager)
}

func (c *Control) managers(ctx context.Context, t client.Target, own ...string) Managers {
	o, err := c.config.Cluster.Client.Whole().Get(ctx, t)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read who else writes an object", "object", t, "err", err)
		return Managers{}
	}
	fields, _ := o.Field("metadata", "managedFields")
	return Managers{fields: fields, own: own}
}

// Of returns the field manager, other than the controller's own, that wrote a place last; empty if there is none or it is not known.
func (m Managers) Of(place string) string {
	names := m.names(place)
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// names returns the field managers, other than the controller's own, that wrote a place, or for no place the object: the last one first.
func (m Managers) names(place string) []string {
	if len(m.fields) == 0 {
		return nil
	}
	names, err := plan.Managers(m.fields, place)
	if err != nil {
		return nil // Not reached: the API server wrote them.
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(m.own, name) })
}

// Known reports whether anything is known.
func (m Managers) Known() bool { return len(m.fields) > 0 }

// maxRead is how many children of one sync are read to find out who changed them back.
const maxRead = 4

// changersBack names who changed children back that former syncs have changed at the same places. They are read before they are written:
// then the places are ours.
func (c *Control) changersBack(ctx context.Context, key parent.Key, p plan.Plan) map[children.Key][]string {
	var by map[children.Key][]string
	read := 0
	for i := range p.Steps {
		step := &p.Steps[i]
		if read == maxRead || step.Action != plan.Update || step.RecordOnly || !c.config.Repeated(key, step) {
			continue
		}
		read++
		if names := c.changers(ctx, step); len(names) > 0 {
			by = with(by, step.Key, names)
		}
	}
	return by
}

// changers names who else writes a child at the first place at which a step changes it.
func (c *Control) changers(ctx context.Context, step *plan.Step) []string {
	names := c.config.Handlers(parent.NewKey(step.Resource.GroupResource(), step.Namespace, step.Name))
	if manager := c.changer(ctx, step); manager != "" {
		names = append(names, manager)
	}
	return names
}

// changer names the field manager that sets the first place at which a step changes a child, empty for none.
func (c *Control) changer(ctx context.Context, step *plan.Step) string {
	return c.managersOfChild(ctx, targetOf(step)).Of(first(step.Changed))
}

func targetOf(step *plan.Step) client.Target {
	return client.Target{Resource: step.Resource, Namespace: step.Namespace, Name: step.Name}
}

// managersOfChild reads who manages a child.
func (c *Control) managersOfChild(ctx context.Context, t client.Target) Managers {
	return c.managers(ctx, t, client.FieldManager, client.PatchManager, c.config.Manager)
}

// rivals names the other CompositeControllers of this process that handle a parent: what they declare as children may be the children of this one.
func (c *Control) rivals(key parent.Key) []string {
	return slices.DeleteFunc(c.config.Handlers(key), func(name string) bool { return !strings.HasPrefix(name, v1alpha1.KindComposite+" ") })
}

// makers names who makes a child of a parent again, or changes its owner.
func (c *Control) makers(ctx context.Context, key parent.Key, t client.Target) string {
	if names := c.rivals(key); len(names) > 0 {
		return strings.Join(names, " or ") + ", which handles this object as well,"
	}
	known := c.managersOfChild(ctx, t)
	manager := known.Of("metadata.ownerReferences")
	if names := known.names(""); manager == "" && len(names) > 0 {
		manager = names[len(names)-1] // It wrote the object before all others.
	}
	if manager != "" {
		return fmt.Sprintf("the field manager %q", manager)
	}
	return "somebody else, whom the API server's audit log names,"
}

// whose returns the controllers whose child an object of the parent may be, empty if none is known.
func (c *Control) whose(key parent.Key, existing *object.Object) string {
	if name, ok := existing.Annotation(children.DecoratorMark); ok {
		return v1alpha1.KindDecorator + " " + name
	}
	return strings.Join(c.config.Handlers(key), " or ")
}

// whoChanges says who changes a child back, empty if that is not known.
func (c *Control) whoChanges(ctx context.Context, step *plan.Step) string {
	if names := c.config.Handlers(parent.NewKey(step.Resource.GroupResource(), step.Namespace, step.Name)); len(names) > 0 {
		return strings.Join(names, " and ") + " handles it as well, and may set this field"
	}
	if manager := c.changer(ctx, step); manager != "" {
		return fmt.Sprintf("The field manager %q sets this field", manager)
	}
	return ""
}
