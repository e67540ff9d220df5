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

package pause

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// runParent pauses or resumes one parent.
func (a action) runParent(ctx context.Context, c *connection.Connection, format *outputformat.Flags, args []string) error {
	printer, err := format.Printer()
	if err != nil {
		return err
	}
	if a.duration < 0 {
		return errors.New("--for must be more than 0: use a duration such as 2h")
	}
	parent, until, changed, err := a.setParent(ctx, c, args)
	if err != nil {
		return err
	}
	if printer != nil {
		return printer.PrintObj(parent, c.Out)
	}
	argument := parent.GroupVersionKind().GroupKind().String() + "/" + strings.TrimPrefix(parent.GetNamespace()+"/"+parent.GetName(), "/")
	switch {
	case !changed:
		fmt.Fprintf(c.Out, "%s %s.\n", argument, a.same)
	case a.paused:
		fmt.Fprintf(c.Out, "%s is paused until %s.\nNo controller calls a hook about it, and none writes it or its children.\n", argument, until)
		fmt.Fprintf(c.Out, "It goes on with: kubectl metacontroller resume %s\n", argument)
	default:
		fmt.Fprintf(c.Out, "%s is resumed.\nIt is synced now. See how it goes with: kubectl metacontroller tree %[1]s\n", argument)
	}
	return nil
}

// Parent pauses the parent that arguments name as those of the command do, or resumes it.
func Parent(ctx context.Context, c *connection.Connection, args []string, paused bool) error {
	_, _, _, err := action{paused: paused}.setParent(ctx, c, args)
	return err
}

// setParent pauses or resumes the parent that the arguments name. It returns the parent, until when it is paused, and whether that changed it.
func (a action) setParent(ctx context.Context, c *connection.Connection, args []string) (parent *unstructured.Unstructured, until string, changed bool, err error) {
	mapping, objects, name, err := a.find(ctx, c, args)
	if err != nil {
		return nil, "", false, err
	}
	parent, err = objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, "", false, connection.ExplainOf(mapping.Resource.Group, fmt.Errorf("reading %s/%s: %w", mapping.Resource.GroupResource(), name, err))
	}
	value, until := a.value(time.Now())
	before, there := parent.GetAnnotations()[v1alpha1.AnnotationPaused]
	changed = there != a.paused || a.paused && before != *value
	if changed {
		if parent, err = annotate(ctx, objects, name, value); err != nil {
			return nil, "", false, connection.ExplainOf(mapping.Resource.Group, err)
		}
	}
	return parent, until, changed, nil
}

// find returns the objects among which the parent is that the arguments name, and its name.
func (a action) find(ctx context.Context, c *connection.Connection, args []string) (*meta.RESTMapping, dynamic.ResourceInterface, string, error) {
	client, err := c.Objects()
	if err != nil {
		return nil, nil, "", err
	}
	mapper, err := c.Mapper()
	if err != nil {
		return nil, nil, "", err
	}
	command := map[bool]string{true: "pause", false: "resume"}[a.paused]
	mapping, name, err := connection.Resolve(mapper, command, args)
	if err != nil {
		return nil, nil, "", connection.Explain(err)
	}
	objects, _, name, err := c.Object(client, mapping, name)
	if err != nil {
		return nil, nil, "", err
	}
	return mapping, objects, name, a.handled(ctx, c, mapping)
}

// annotate sets the annotation of a parent; nil takes it off.
func annotate(ctx context.Context, objects dynamic.ResourceInterface, name string, value *string) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationPaused: value}}})
	if err != nil {
		return nil, fmt.Errorf("encoding the annotation: %w", err)
	}
	parent, err := objects.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, fmt.Errorf("setting the annotation %s: %w", v1alpha1.AnnotationPaused, err)
	}
	return parent, nil
}

// value returns the value of the annotation, nil for none, and until when it pauses.
func (a action) value(now time.Time) (value *string, until string) {
	switch {
	case !a.paused:
		return nil, ""
	case a.duration == 0:
		return new("true"), "it is resumed"
	}
	end := now.Add(a.duration).UTC().Format(time.RFC3339)
	return &end, end
}

// handled is an error if no controller has such parents, as far as one may see that: children follow their parents.
func (action) handled(ctx context.Context, c *connection.Connection, mapping *meta.RESTMapping) error {
	controllers, err := c.List(ctx)
	if err != nil {
		return nil //nolint:nilerr // Who may write a parent may be no reader of controllers.
	}
	resource := mapping.Resource.GroupResource()
	if slices.ContainsFunc(controllers, func(o controllerobject.Object) bool { return o.HasParents(resource) }) {
		return nil
	}
	return fmt.Errorf("no controller has parents or targets of %s: list the controllers with '%s status'", resource, connection.Program)
}
