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
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

// fieldManager is the name under which the API server records what the commands set.
const fieldManager = "kubectl-metacontroller"

// action is what one of the two commands does.
type action struct {
	paused bool
	// duration is for how long a parent is paused; zero: until it is resumed.
	duration time.Duration
	// done is printed after the name of the object, and same where there was nothing to do.
	done, same string
	// next says what to do next.
	next string
}

// NewPauseCommand returns the command pause.
func NewPauseCommand(c *connection.Connection) *cobra.Command {
	cmd := newCommand(c, action{
		paused: true, done: "paused", same: "is paused already",
		next: "No hook is called and nothing is written once the condition Paused is True: kubectl wait --for=condition=Paused %[2]s\n" +
			"It goes on with: kubectl metacontroller resume %[1]s\n",
	})
	cmd.Use = "pause (NAME | KIND[.GROUP]/[NAMESPACE/]PARENT)"
	cmd.Short = "Keep a controller, or all controllers of one parent, from calling hooks and writing anything"
	cmd.Long = `Keep a controller from calling hooks and writing anything until it is resumed, by spec.paused; or keep all controllers from that for one parent
or target, by the annotation metacontroller.k8s.io/paused on it.`
	cmd.Example = `  kubectl metacontroller pause cc/hello-controller
  kubectl metacontroller pause Website.example.com/shop --for 2h`
	return cmd
}

// NewResumeCommand returns the command resume.
func NewResumeCommand(c *connection.Connection) *cobra.Command {
	cmd := newCommand(c, action{
		paused: false, done: "resumed", same: "is not paused",
		next: "What changed meanwhile is synced first, then every other parent. See how it goes with: kubectl metacontroller status %[1]s\n",
	})
	cmd.Use = "resume (NAME | KIND[.GROUP]/[NAMESPACE/]PARENT)"
	cmd.Short = "Let a paused controller, or the controllers of a paused parent, go on"
	cmd.Example = `  kubectl metacontroller resume cc/hello-controller
  kubectl metacontroller resume Website.example.com/shop`
	return cmd
}

func newCommand(c *connection.Connection, a action) *cobra.Command {
	cmd := &cobra.Command{
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.CompleteName,
	}
	format := outputformat.ForObjects(cmd)
	if a.paused {
		cmd.Flags().DurationVar(&a.duration, "for", 0, "how long to pause a parent, such as 2h; without it until it is resumed")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, _, both := strings.Cut(args[0], "/")
		if len(args) == 2 || both && !controllerobject.IsKind(kind) {
			return a.runParent(cmd.Context(), c, format, args)
		}
		if a.duration != 0 {
			return errors.New("--for is for a parent, such as Website.example.com/shop: a controller is paused until it is resumed")
		}
		return a.run(cmd.Context(), c, format, args[0])
	}
	return cmd
}

func (a action) run(ctx context.Context, c *connection.Connection, format *outputformat.Flags, argument string) error {
	printer, err := format.Printer()
	if err != nil {
		return err
	}
	object, changed, err := a.set(ctx, c, argument)
	if err != nil {
		return err
	}
	if printer != nil {
		return printer.PrintObj(object.Runtime(), c.Out)
	}
	if !changed {
		fmt.Fprintf(c.Out, "%s %s %s.\n", object.Kind(), object.Name(), a.same)
		return nil
	}
	fmt.Fprintf(c.Out, "%s %s is %s.\n", object.Kind(), object.Name(), a.done)
	fmt.Fprintf(c.Out, a.next, object.Argument(), object.Resource())
	return nil
}

// Controller pauses the controller that an argument names, or resumes it.
func Controller(ctx context.Context, c *connection.Connection, argument string, paused bool) error {
	_, _, err := action{paused: paused, done: map[bool]string{true: "paused", false: "resumed"}[paused]}.set(ctx, c, argument)
	return err
}

// set pauses or resumes the controller that an argument names, and reports whether that changes it.
func (a action) set(ctx context.Context, c *connection.Connection, argument string) (object controllerobject.Object, changed bool, err error) {
	client, err := c.Controllers()
	if err != nil {
		return object, false, err
	}
	object, err = controllerobject.Find(ctx, client, argument)
	if err != nil || object.Paused() == a.paused {
		return object, false, connection.Explain(err)
	}
	if object, err = a.patch(ctx, client, object); err != nil {
		return object, false, connection.Explain(err)
	}
	// Whoever does not know the field drops it, and says nothing, such as CustomResourceDefinitions of Metacontroller.
	if object.Paused() != a.paused {
		return object, false, fmt.Errorf("%s %s is not %s: the cluster took the change of spec.paused, and does not have it; "+
			"see who serves the API with 'kubectl get apiservice v1alpha1.metacontroller.k8s.io'", object.Kind(), object.Name(), a.done)
	}
	return object, true, nil
}

// patch sets spec.paused.
func (a action) patch(ctx context.Context, client versioned.Interface, object controllerobject.Object) (controllerobject.Object, error) {
	body := fmt.Appendf(nil, `{"spec":{"paused":%t}}`, a.paused)
	options := metav1.PatchOptions{FieldManager: fieldManager}
	api := client.MetacontrollerV1alpha1()
	var err error
	if object.Composite != nil {
		object.Composite, err = api.CompositeControllers().Patch(ctx, object.Name(), types.MergePatchType, body, options)
	} else {
		object.Decorator, err = api.DecoratorControllers().Patch(ctx, object.Name(), types.MergePatchType, body, options)
	}
	if err != nil {
		return object, fmt.Errorf("setting spec.paused: %w", err)
	}
	return object, nil
}
