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

package releasefinalizers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/kubeconfig"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// options are the flags.
type options struct {
	kubeconfig string
	resources  []string
	lease      string
	yes        bool
	force      bool
	parallel   int
}

// maxParallel bounds --parallel: more is no faster, and is felt by others.
const maxParallel = 64

// NewCommand returns the subcommand. It prints what it does to the command's standard output.
func NewCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "release-finalizers [CONTROLLER...]",
		Short: "Take the finalizers of controllers off their parents, when the server is gone",
		Long: `Take the finalizers of controllers off their parents, when the server is gone.

A controller with a finalize hook puts its finalizer on its parents, and the server removes it when the controller is
deleted. Without the server and its store, neither these objects nor their namespaces can be deleted. This command finds
such objects and takes the finalizers off. It calls no hook: what a hook would have cleaned up stays.

Without --yes it prints what it would do, and writes nothing. It refuses controllers of a running server: delete these
with kubectl. It refuses everything while somebody renews the Lease of the server, because a server that the cluster does
not reach runs its controllers all the same.

A CONTROLLER is cc/NAME or dc/NAME, or NAME for both kinds; without one, all controllers are released.`,
		Example: `  # What is there
  metacontroller-apiserver release-finalizers

  # Release the parents of one controller
  metacontroller-apiserver release-finalizers cc/websites --yes`,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	kubeconfig.AddFlag(flags, &o.kubeconfig, "")
	flags.StringSliceVar(&o.resources, "resource", nil, "resources in which to look, such as websites.example.com; none: all that the "+
		"cluster serves")
	flags.BoolVarP(&o.yes, "yes", "y", false, "take the finalizers off, in place of printing what would be done")
	flags.BoolVar(&o.force, "force", false, "also those of controllers that a running server has, which may put them on again")
	flags.StringVar(&o.lease, "lease", "metacontroller/"+apiserver.Name, "Lease of the server as NAMESPACE/NAME, its "+
		"--leader-elect-resource-namespace and --leader-elect-resource-name, by which a server is found that the cluster does not reach; empty: none is looked at")
	flags.IntVar(&o.parallel, "parallel", 8, "how many requests may be under way at the same time")
	return cmd
}

func (o *options) run(ctx context.Context, args []string, out io.Writer) error {
	if o.parallel < 1 || o.parallel > maxParallel {
		return fmt.Errorf("--parallel must be from 1 to %d, not %d", maxParallel, o.parallel)
	}
	if namespace, name, ok := strings.Cut(o.lease, "/"); o.lease != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/")) {
		return fmt.Errorf("--lease: %q is not NAMESPACE/NAME", o.lease)
	}
	wanted := make([]controllerobject.Reference, len(args))
	for i, arg := range args {
		var err error
		if wanted[i], err = controllerobject.Parse(arg); err != nil {
			return err
		}
	}
	config, err := kubeconfig.Read(o.kubeconfig)
	if err != nil {
		return err
	}
	cluster, err := newCluster(config, o.parallel)
	if err != nil {
		return err
	}
	found, lookErr := cluster.find(ctx, o.resources, wanted)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// What could be looked at is dealt with, and what could not is told at the end.
	runners, err := cluster.running(ctx, found, o.lease, out)
	if err != nil {
		return err
	}
	report := report{out: out, runners: runners, force: o.force}
	free := report.plan(found)
	if !o.yes {
		report.offer(free)
		return errors.Join(lookErr, report.refused())
	}
	return errors.Join(cluster.release(ctx, free, &report), lookErr, report.refused())
}

// cluster is what the command asks the cluster.
type cluster struct {
	config    *rest.Config
	discovery *discovery.DiscoveryClient
	objects   metadata.Interface
	parallel  int
}

func newCluster(config *rest.Config, parallel int) (*cluster, error) {
	config = rest.CopyConfig(config)
	// It looks at every kind, and those that are deprecated are not the user's choice.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.UserAgent = "metacontroller-apiserver/release-finalizers"
	asked, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &cluster{config: config, discovery: asked, objects: objects, parallel: parallel}, nil
}

// release takes the finalizers off, as many at the same time as the cluster is asked. It goes on after an error, and returns how many
// objects are left.
func (c *cluster) release(ctx context.Context, free []object, r *report) error {
	var mu sync.Mutex
	left := 0
	var group errgroup.Group
	group.SetLimit(c.parallel)
	for i := range free {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			gone, err := c.releaseOne(ctx, &free[i])
			mu.Lock()
			defer mu.Unlock()
			r.released(&free[i], gone, err)
			if err != nil {
				left++
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d of %d objects could not be released: see above, and run it again", left, len(free))
	}
	return nil
}

// releaseOne takes a finalizer off an object. The write is for the object as it was read a moment ago: somebody else's write comes in
// between, and it is read again. It reports whether the object has gone, or was replaced by another one.
func (c *cluster) releaseOne(ctx context.Context, o *object) (gone bool, err error) {
	objects := c.objects.Resource(o.resource).Namespace(o.namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		read, err := objects.Get(ctx, o.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && read.UID != o.uid {
			gone = true
			return nil
		}
		if err != nil {
			return err
		}
		if !slices.Contains(read.Finalizers, o.finalizer) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":             read.UID,
			"resourceVersion": read.ResourceVersion,
			"finalizers":      slices.DeleteFunc(read.Finalizers, func(name string) bool { return name == o.finalizer }),
		}})
		if err != nil {
			return err
		}
		_, err = objects.Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			gone = true
			return nil
		}
		return err
	})
	return gone, err
}

// report prints what is found and done. It is for one goroutine at a time.
type report struct {
	out io.Writer
	// runners says which controllers somebody runs, and force says that this does not matter.
	runners runners
	force   bool
	// kept counts the objects by the controllers for which they are left alone.
	kept map[controllerobject.Reference]int
}

// plan prints what each object carries, and returns those that may be released.
func (r *report) plan(found []object) (free []object) {
	r.kept = map[controllerobject.Reference]int{}
	for i := range found {
		o := &found[i]
		if r.runners.run(o.controller) && !r.force {
			r.kept[o.controller]++
			continue
		}
		free = append(free, *o)
	}
	if r.runners.unknown != nil {
		fmt.Fprintf(r.out, "It is not known whether a server still runs that the cluster does not reach: %v. Make sure that none does: it would put "+
			"finalizers on again.\n", r.runners.unknown)
	}
	if len(found) == 0 {
		fmt.Fprintln(r.out, "No object carries the finalizer of a controller.")
	}
	return free
}

// offer prints what would be done.
func (r *report) offer(free []object) {
	for i := range free {
		o := &free[i]
		fate := ""
		if o.deleting {
			fate = ", which is being deleted and will go if nothing else holds it"
		}
		fmt.Fprintf(r.out, "would take %s off %s%s\n", o.finalizer, o, fate)
	}
	if len(free) > 0 {
		fmt.Fprintf(r.out, "\n%s. Nothing was written. Add --yes to do it.\n", number(len(free)))
	}
}

// released prints what became of an object.
func (r *report) released(o *object, gone bool, err error) {
	switch {
	case err != nil:
		fmt.Fprintf(r.out, "could not take %s off %s: %v\n", o.finalizer, o, err)
	case gone:
		fmt.Fprintf(r.out, "%s is gone\n", o)
	default:
		fmt.Fprintf(r.out, "took %s off %s\n", o.finalizer, o)
	}
}

// refused returns an error if objects are left alone.
func (r *report) refused() error {
	if r.runners.hidden != "" && len(r.kept) > 0 {
		left := 0
		for _, n := range r.kept {
			left += n
		}
		return fmt.Errorf("a server runs controllers, although the cluster does not reach it: %s renews the Lease %s; left alone: %s. Stop that server, "+
			"or have it registered again and delete its controllers with kubectl, which releases their objects; --force takes the finalizers off "+
			"while it runs, and it may put them on again", r.runners.hidden, r.runners.lease, number(left))
	}
	var lines []string
	for controller, n := range r.kept {
		lines = append(lines, fmt.Sprintf("%s/%s exists, and a server runs it; left alone: %s. Deleting it with kubectl releases its objects; "+
			"--force takes the finalizer off objects that it does not name any more", controller.Kind, controller.Name, number(n)))
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

func number(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}
