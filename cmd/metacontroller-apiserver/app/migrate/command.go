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

package migrate

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/kubeconfig"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/register"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/migration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// options are the flags.
type options struct {
	kubeconfig     string
	service        string
	metacontroller string
	authority      register.Authority
	moving         migration.Options
	back, finish   bool
}

// NewCommand returns the subcommand migrate. It prints its steps to the command's standard output. The data directory of the server is dataDir by default.
func NewCommand(dataDir string) *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move controllers from Metacontroller's definitions to this server, or back",
		Long: `Move all controllers and ControllerRevisions from Metacontroller's CustomResourceDefinitions to this server, which must run, or back.

They are the same objects afterwards: UIDs, generations, finalizers, owners and statuses stay, and no parent or child is touched.
The definitions stay in place with their objects, hidden behind this server, until --finish deletes them. Until then --back goes back.

Before anything stops, this server calls the hooks for all parents, and plans what it would do. If a child would change, the move stops there.

It prints each step. Its state is in ConfigMap metacontroller-apiserver-migration in the namespace of the server: killed at any
point, it goes on when it is run again. It refuses to switch if anybody has changed an object since it was copied.`,
		Example: `  # In the Pod of the server, with its service account
  kubectl exec --namespace metacontroller metacontroller-apiserver-0 -- metacontroller-apiserver migrate

  # Although children would change, as it has said
  metacontroller-apiserver migrate --allow-changes

  # Back to Metacontroller
  metacontroller-apiserver migrate --back`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	kubeconfig.AddFlag(flags, &o.kubeconfig, ", of an administrator")
	flags.StringVar(&o.service, "service", "metacontroller/"+servingcert.DefaultServiceName, "NAMESPACE/NAME of the Service of the server")
	flags.IntVar(&o.moving.Port, "service-port", 443, "port of the Service")
	o.authority.AddFlags(cmd, dataDir)
	flags.StringVar(&o.moving.Lease, "leader-elect-resource-name", apiserver.Name, "name of the server's Lease, in the namespace of its Service")
	flags.StringVar(&o.metacontroller, "metacontroller", "metacontroller/metacontroller", "NAMESPACE/NAME of the StatefulSet or Deployment of Metacontroller, "+
		"which is scaled to zero, and back by --back; none: it does not run")
	flags.DurationVar(&o.moving.Timeout, "timeout", time.Minute, "how long to wait for each thing that others have to do")
	flags.BoolVar(&o.moving.AllowChanges, "allow-changes", false, "go on though this server's controllers would change children")
	flags.BoolVar(&o.moving.SkipPlan, "skip-plan", false, "do not call hooks to find that out")
	flags.DurationVar(&o.moving.PlanTimeout, "plan-timeout", 5*time.Minute, "how long to find that out, before the move goes on with what is known")
	flags.BoolVar(&o.back, "back", false, "go back to the definitions, with the objects as this server has them, or undo a move that was interrupted")
	flags.BoolVar(&o.finish, "finish", false, "delete the definitions and their hidden objects after the move; there is no way back then")
	cmd.MarkFlagsMutuallyExclusive("back", "finish")
	cmd.MarkFlagsMutuallyExclusive("finish", "ca-file")
	cmd.MarkFlagsMutuallyExclusive("finish", "ca-secret")
	return cmd
}

func (o *options) run(cmd *cobra.Command) (err error) {
	if o.moving.Service, err = parse("service", o.service); err != nil {
		return err
	}
	if o.metacontroller != "none" {
		if o.moving.Metacontroller, err = parse("metacontroller", o.metacontroller); err != nil {
			return err
		}
	}
	if o.moving.Config, err = kubeconfig.Read(o.kubeconfig); err != nil {
		return err
	}
	o.moving.Out = cmd.OutOrStdout()
	if o.finish {
		return migration.Finish(cmd.Context(), o.moving)
	}
	wait := o.moving.Timeout
	if o.authority.CASecret == "" {
		wait = 0 // The server runs already: without its file, this is another machine.
	}
	o.moving.CABundle, err = o.authority.Read(cmd.Context(), o.moving.Config, wait, cmd.OutOrStdout())
	if o.back && (err == nil || o.authority.CAFile+o.authority.CASecret == "") {
		return migration.Back(cmd.Context(), o.moving) // It does without the file of the server's data directory.
	}
	if err != nil {
		return err
	}
	return migration.Forward(cmd.Context(), o.moving)
}

// parse returns the namespace and the name in the value of a flag.
func parse(flag, value string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" {
		return types.NamespacedName{}, fmt.Errorf("--%s must be NAMESPACE/NAME, not %q", flag, value)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
