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
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

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
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file for the cluster; empty: the environment variable KUBECONFIG, then "+
		"~/.kube/config, then the service account of the Pod")
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
