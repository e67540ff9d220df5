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

package recording

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// recordOptions are the flags of record.
type recordOptions struct {
	flags  subresource.Flags
	hook   localhook.Flags
	folder string
}

// NewRecordCommand returns the command record.
func NewRecordCommand(c *connection.Connection) *cobra.Command {
	o := recordOptions{}
	cmd := &cobra.Command{
		Use:   "record CONTROLLER [NAMESPACE/PARENT] -o DIRECTORY",
		Short: "Record what hooks are sent and return, as files that tests replay",
		Long: `Record what the hooks of a controller would be sent now about its parents, and what they return, as files: HOOK-TEXT.request.json and
HOOK-TEXT.response.json, the form of the tests that init writes. The server calls the hooks and does nothing with their responses, which takes the right to create the
subresource plan of the controller. With --hook or --exec a hook on this machine is called instead.

Values of Secrets are hidden in requests, also from a hook on this machine; what such a hook returns is written as it is. Files of the same names are overwritten, others are left.`,
		Example: `  # A test of what the hook does with one parent now
  kubectl metacontroller record cc/website shop/example -o testdata
  kubectl metacontroller replay testdata --exec 'python3 hook.py'`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: subresource.Complete(c),
		RunE:              c.RunE(o.run),
	}
	flags := cmd.Flags()
	o.flags.Add(flags)
	o.hook.Add(flags)
	flags.StringVarP(&o.folder, "output", "o", "", "folder to write to")
	return cmd
}

func (o *recordOptions) run(ctx context.Context, c *connection.Connection, args []string) error {
	if o.folder == "" {
		return fmt.Errorf("name a folder: %s record %s -o testdata", connection.Program, args[0])
	}
	if slices.Contains([]string{"json", "yaml", "wide", "name"}, o.folder) {
		return fmt.Errorf("-o names the folder to write to, and what is recorded is JSON: write -o testdata; or -o ./%s for a folder of that name", o.folder)
	}
	object, selected, client, err := o.flags.Open(ctx, c, args)
	if err != nil {
		return err
	}
	list, err := client.Parents(ctx, selected.ParentOptions())
	if err != nil {
		return err
	}
	if list.Hidden > 0 && len(list.Items) == 0 {
		return errors.New(subresource.Hidden(list.Hidden))
	}
	subresource.ReportHidden(c.ErrOut, list.Hidden)
	if len(list.Items) == 0 {
		return selected.Nothing(c.Out, object)
	}
	r := recorder{client: client, folder: o.folder, object: object}
	if o.hook.Given() {
		err = o.hook.Run(ctx, c.ErrOut, func(ctx context.Context, hook *localhook.Hook) error {
			r.hook = hook
			return r.all(ctx, c, list.Items)
		})
	} else {
		err = r.all(ctx, c, list.Items)
	}
	if r.recorded > 0 {
		with := "--hook URL"
		if object.Inline() && !o.hook.Given() {
			with = "-f FILE"
		}
		fmt.Fprintf(c.Out, "Replay with: %s replay %s %s\n", connection.Program, o.folder, with)
	}
	return err
}

// server is what a recorder needs of a controller's subresources.
type server interface {
	Requests(ctx context.Context, p v1alpha1.ParentReference, o subresource.RequestOptions) (*v1alpha1.HookRequestList, error)
}

// recorder records the requests about parents.
type recorder struct {
	client server
	object controllerobject.Object
	folder string
	// hook is called in place of those of the controller, if it is not nil.
	hook *localhook.Hook
	// recorded counts the pairs.
	recorded int
}

// all records what there is about parents. What fails of one does not keep it from the others. Whoever interrupts it gets an error, too.
func (r *recorder) all(ctx context.Context, c *connection.Connection, parents []v1alpha1.ControllerParent) error {
	var errs []error
	for i := range parents {
		p := parents[i].ParentReference
		pairs, err := r.one(ctx, p)
		for _, pair := range pairs {
			if err != nil {
				break
			}
			if err = pair.write(r.folder); err == nil {
				fmt.Fprintf(c.Out, "%s\n%s\n", filepath.Join(r.folder, pair.name+requestEnd), filepath.Join(r.folder, pair.name+responseEnd))
				r.recorded++
			}
		}
		if err == nil {
			err = ctx.Err() // The writes do not heed it.
		}
		if localhook.IsUnreachable(err) || ctx.Err() != nil {
			return errors.Join(append(errs, err)...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("recording requests about %s: %w", subresource.NameOf(p), err))
		}
	}
	return errors.Join(errs...)
}

// one returns the pairs of one parent.
func (r *recorder) one(ctx context.Context, p v1alpha1.ParentReference) ([]pair, error) {
	list, err := r.client.Requests(ctx, p, subresource.RequestOptions{Call: r.hook == nil})
	if err != nil {
		return nil, err
	}
	requests := list.Items
	if r.object.Customizes() && (len(requests) == 0 || requests[0].Hook != localhook.Customize) {
		// The response to it is remembered, so that a sync would not ask for it.
		more, err := r.client.Requests(ctx, p, subresource.RequestOptions{Hook: localhook.Customize, Call: r.hook == nil})
		if err != nil {
			return nil, err
		}
		requests = append(more.Items, requests...)
	}
	var pairs []pair
	for i := range requests {
		request := &requests[i]
		made := pair{name: nameOf(p, request.Hook, request.Revision, len(r.object.Parents()) > 1), request: request.Body.Raw}
		switch {
		case r.hook != nil:
			if made.response, err = r.hook.Call(ctx, request.Hook, request.Body.Raw); err != nil {
				return nil, err
			}
		case request.Response == nil:
			return nil, errors.New("the server returns no responses: it is older than this plugin; call a hook on this machine with --hook")
		default:
			made.response = request.Response.Raw
		}
		pairs = append(pairs, made)
	}
	return pairs, nil
}
