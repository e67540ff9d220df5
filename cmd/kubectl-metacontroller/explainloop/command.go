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

package explainloop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// most is the largest limit of the server.
const most = 500

// NewCommand returns the command explain-loop.
func NewCommand(c *connection.Connection) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "explain-loop CONTROLLER NAMESPACE/PARENT",
		Short: "Show who changes what back and forth",
		Long: `Show who changes which fields of a parent and of its children back and forth, so that it is synced again and again: the controller and
who changes back what it writes, how often, who owns the field now, and what to do. Fields of the status that the API server drops are shown
as well. It is found in the syncs that the server remembers and in the managedFields of the objects.`,
		Example:           `  kubectl metacontroller explain-loop cc/website shop/example`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: subresource.Complete(c),
		RunE:              c.RunE(o.run),
	}
	o.flags.AddResource(cmd.Flags())
	outputformat.AddDocument(cmd.Flags(), &o.output)
	return cmd
}

// options are the flags.
type options struct {
	flags  subresource.Flags
	output string
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	if err := outputformat.CheckDocument(o.output); err != nil {
		return err
	}
	object, selected, client, err := o.flags.Open(ctx, c, args)
	if err != nil {
		return err
	}
	known, err := client.Parents(ctx, selected.ParentOptions())
	if err != nil {
		return err
	}
	if len(known.Items) == 0 {
		subresource.ReportHidden(c.ErrOut, known.Hidden)
		return selected.Nothing(c.Out, object)
	}
	if len(known.Items) > 1 {
		return several(args[1], known.Items)
	}
	list, err := client.Syncs(ctx, selected.SyncOptions(most))
	if err != nil {
		return err
	}
	subresource.ReportHidden(c.ErrOut, list.Hidden)
	r, err := reportOf(ctx, c, object, known.Items[0].ParentReference, list.Items)
	if err != nil {
		return err
	}
	if o.output != "" {
		return outputformat.PrintDocument(c.Out, o.output, r.document())
	}
	r.print(c.Out)
	return nil
}

// Loops returns what the syncs of one parent of a controller change back and forth, what was changed most often first.
func Loops(
	ctx context.Context, c *connection.Connection, object controllerobject.Object, parent v1alpha1.ParentReference, syncs []v1alpha1.ControllerSync,
) ([]Loop, error) {
	r, err := reportOf(ctx, c, object, parent, syncs)
	if err != nil {
		return nil, err
	}
	return r.document().Loops, nil
}

// reportOf reads what is to be said of the syncs of one parent.
func reportOf(
	ctx context.Context, c *connection.Connection, object controllerobject.Object, parent v1alpha1.ParentReference, syncs []v1alpha1.ControllerSync,
) (*report, error) {
	mapper, err := c.Mapper()
	if err != nil {
		return nil, err
	}
	client, err := c.Objects()
	if err != nil {
		return nil, err
	}
	kind, err := mapper.KindFor(parent.GroupResource().WithVersion(""))
	if err != nil {
		return nil, fmt.Errorf("%w: list what the cluster serves with 'kubectl api-resources'", err)
	}
	r := &report{controller: object, parent: parent.FullName(), syncs: len(syncs), loops: loopsOf(syncs, kind.Kind), now: time.Now()}
	if err := nameOthers(ctx, c, object, r.loops); err != nil {
		return nil, err
	}
	r.objects, err = read(ctx, mapper, client, r.loops)
	return r, err
}

// nameOthers adds to loops of which nobody else is known which other controllers write the same place. The server names them in the syncs of one side.
func nameOthers(ctx context.Context, c *connection.Connection, object controllerobject.Object, loops []loop) error {
	if !slices.ContainsFunc(loops, func(l loop) bool { return len(l.by) == 0 }) {
		return nil
	}
	all, err := c.List(ctx)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Argument() == object.Argument() {
			continue
		}
		client, err := subresource.New(c, other)
		if err != nil {
			return err
		}
		list, err := client.Syncs(ctx, v1alpha1.ControllerSyncOptions{Limit: most})
		if err != nil {
			continue // It does not run, or may not be looked at.
		}
		for i := range loops {
			if l := &loops[i]; len(l.by) == 0 && slices.ContainsFunc(list.Items, l.writtenBy) {
				l.by = []string{other.Kind() + " " + other.Name()}
			}
		}
	}
	return nil
}

// several says that a name is that of several parents, whose syncs must not be taken for those of one.
func several(name string, parents []v1alpha1.ControllerParent) error {
	names := make([]string, len(parents))
	for i := range parents {
		names[i] = subresource.NameOf(parents[i].ParentReference)
	}
	return fmt.Errorf("%q is the name of several parents, %s: name one as NAMESPACE/NAME, and choose its resource with --resource", name, strings.Join(names, ", "))
}

// read reads the objects of loops as they are now. Those that are gone, or may not be read, are left out, as are those of a kind that is not
// served any more.
func read(ctx context.Context, mapper meta.RESTMapper, client dynamic.Interface, loops []loop) (map[v1alpha1.SyncObject]*unstructured.Unstructured, error) {
	objects := map[v1alpha1.SyncObject]*unstructured.Unstructured{}
	for _, l := range loops {
		if _, done := objects[l.object]; done {
			continue
		}
		version, err := mapper.ResourceFor(schema.GroupVersionResource{Group: l.object.Group, Resource: l.object.Resource})
		if meta.IsNoMatchError(err) {
			objects[l.object] = nil
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: list what the cluster serves with 'kubectl api-resources'", err)
		}
		o, err := client.Resource(version).Namespace(l.object.Namespace).Get(ctx, l.object.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return nil, connection.ExplainOf(l.object.Group, fmt.Errorf("reading %s: %w", nameOf(l.object), err))
		}
		if err != nil {
			o = nil
		}
		objects[l.object] = o
	}
	return objects, nil
}
