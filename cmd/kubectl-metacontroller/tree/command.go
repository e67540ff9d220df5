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

package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// options are the flags.
type options struct {
	depth, limit int
	output       string
}

// NewCommand returns the command tree.
func NewCommand(c *connection.Connection) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "tree (KIND[.GROUP]/[NAMESPACE/]NAME | RESOURCE [NAMESPACE/]NAME)",
		Short: "Print an object with its children, how they are and why, and their revisions",
		Long: `Print an object with its children, by their owner references: those that controllers declare and those that Kubernetes' own controllers
create, their children, and so on. STATE is what the status of an object says, or how controllers are doing with a parent. REASON is why it
is not ready, and REVISION that of a rolling update. With -o wide names of revisions are whole, and FIELD MANAGERS
have set fields of an object, except in its status.`,
		Example: `  kubectl metacontroller tree Website.example.com/shop
  kubectl metacontroller -n shop tree deployment web`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: complete(c),
		RunE:              c.RunE(o.run),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.depth, "depth", 5, "how many generations of children to print")
	flags.IntVar(&o.limit, "limit", 500, "how many objects to print")
	outputformat.AddDocument(flags, &o.output, outputformat.Wide)
	return cmd
}

func (o *options) run(ctx context.Context, c *connection.Connection, args []string) error {
	if o.depth < 1 || o.limit < 1 {
		return errors.New("--depth and --limit must be at least 1")
	}
	if err := outputformat.CheckDocument(o.output, outputformat.Wide); err != nil {
		return err
	}
	root, notes, err := Of(ctx, c, args, o.depth, o.limit)
	if err != nil {
		return err
	}
	return o.print(c, root, notes)
}

// Of returns the tree of the object that arguments name as those of the command do, with so many generations of children and so many objects at
// most; and notes that say what is not in the tree.
func Of(ctx context.Context, c *connection.Connection, args []string, depth, limit int) (root *Node, notes []string, err error) {
	client, err := c.Objects()
	if err != nil {
		return nil, nil, err
	}
	mapper, err := c.Mapper()
	if err != nil {
		return nil, nil, err
	}
	mapping, name, err := connection.Resolve(mapper, "tree", args)
	if err != nil {
		return nil, nil, connection.Explain(err)
	}
	parent, err := get(ctx, c, client, mapping, name)
	if err != nil {
		return nil, nil, connection.ExplainOf(mapping.Resource.Group, err)
	}
	controllers, err := c.List(ctx)
	if err != nil && !withoutControllers(err) {
		return nil, nil, err
	}
	collector := &collector{
		client: client, mapper: mapper, kinds: kindsOf(controllers), limit: limit, lists: map[string][]unstructured.Unstructured{},
	}
	if err != nil {
		collector.notef("Without the controllers, children are looked for that Kubernetes' own controllers create: %v", err)
	}
	root, err = collector.collect(ctx, mapping, parent, depth)
	if err != nil {
		return nil, nil, connection.ExplainOf("", err)
	}
	parentState(ctx, c, root, mapping, controllers)
	return root, collector.notes, nil
}

// parentState adds how controllers are doing with the object at the root. What they do not say is left out.
func parentState(ctx context.Context, c *connection.Connection, root *Node, mapping *meta.RESTMapping, controllers []controllerobject.Object) {
	asked := v1alpha1.ControllerParentOptions{Resource: mapping.Resource.GroupResource().String(), Namespace: root.Namespace, Name: root.Name}
	var states, reasons []string
	for _, object := range controllers {
		if !object.HasParents(mapping.Resource.GroupResource()) {
			continue
		}
		client, err := subresource.New(c, object)
		if err != nil {
			return
		}
		list, err := client.ParentPage(ctx, asked)
		if err != nil || len(list.Items) != 1 {
			continue // It is no parent of this one, or may not be asked for.
		}
		p := &list.Items[0]
		states = append(states, string(p.State))
		if why := cmp.Or(p.LastError, p.Message); why != "" {
			reasons = append(reasons, object.Argument()+": "+why)
		}
	}
	root.Ready = joined(root.Ready, strings.Join(states, ","))
	root.Reason = joined(root.Reason, strings.Join(reasons, "; "))
}

// withoutControllers reports whether a tree can be printed though the controllers could not be listed: the caller may not, or the server is down.
func withoutControllers(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsServiceUnavailable(err)
}

// get reads the parent.
func get(ctx context.Context, c *connection.Connection, client dynamic.Interface, mapping *meta.RESTMapping, name string) (*unstructured.Unstructured, error) {
	objects, namespace, name, err := c.Object(client, mapping, name)
	if err != nil {
		return nil, err
	}
	where := ""
	if namespace != "" {
		where = " -A"
	}
	parent, err := objects.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: list those that there are with 'kubectl get %s%s'", err, mapping.Resource.GroupResource(), where)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s/%s: %w", mapping.Resource.GroupResource(), name, err)
	}
	return parent, nil
}

func (o *options) print(c *connection.Connection, root *Node, notes []string) error {
	for _, note := range notes {
		fmt.Fprintln(c.ErrOut, note)
	}
	if o.output == "" || o.output == outputformat.Wide {
		return printTable(c.Out, root, o.output == outputformat.Wide)
	}
	return outputformat.PrintDocument(c.Out, o.output, root)
}
