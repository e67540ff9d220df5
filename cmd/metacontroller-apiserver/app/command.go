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

package app

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // Registers --logging-format=json.
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/logging"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/migrate"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/preflight"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/rbac"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/register"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/releasefinalizers"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/snapshot"
	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/transfer"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
)

// helpWidth is the number of columns at which --help wraps.
const helpWidth = 120

// NewCommand returns the command with its subcommands. It serves until its context ends.
func NewCommand() (*cobra.Command, error) {
	o, err := options.NewOptions()
	if err != nil {
		return nil, err
	}
	cmd := &cobra.Command{
		Use:   apiserver.Name,
		Short: "Serve the API group metacontroller.k8s.io and run the controllers stored in it",
		Long: "Serves CompositeControllers, DecoratorControllers and ControllerRevisions as an aggregated API server, and runs " +
			"the controllers that they declare.\n\nAll it needs is --kubeconfig, unless it runs in a pod, and --data-dir.",
		Version:           version.Get().GitVersion,
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, o)
		},
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, c.CommandPath())
	})
	addFlags(cmd, o)
	cmd.AddCommand(register.NewRegisterCommand(), register.NewUnregisterCommand(), preflight.NewCommand(), rbac.NewCommand(),
		snapshot.NewCommand(o.Storage.DataDir), releasefinalizers.NewCommand(),
		transfer.NewExportCommand(), transfer.NewImportCommand(),
		migrate.NewCommand(o.Storage.DataDir))
	explainArguments(cmd)
	if options.CalledAsMetacontroller() {
		cmd.SetArgs(twoDashes(cmd.Flags(), os.Args[1:]))
	}
	return cmd, nil
}

// twoDashes returns arguments with two dashes before the names of flags that are given with one, as Metacontroller takes them.
func twoDashes(flags *pflag.FlagSet, args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && len(name) > 1 && flags.Lookup(name) != nil {
			args[i] = "-" + arg
		}
	}
	return args
}

// explainArguments has the errors about arguments of a command and those below it say where they are described.
func explainArguments(cmd *cobra.Command) {
	if valid := cmd.Args; valid != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := valid(c, args); err != nil {
				return c.FlagErrorFunc()(c, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		explainArguments(sub)
	}
}

func addFlags(cmd *cobra.Command, o *options.Options) {
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	sets := o.Flags()
	general := sets.FlagSet("general")
	general.BoolP("help", "h", false, "Print this help.")
	general.Bool("version", false, "Print the version.")
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	help := cmd.HelpFunc()
	usage := cmd.UsageFunc()
	cliflag.SetUsageAndHelpFunc(cmd, sets, helpWidth)
	sections, sectionsUsage := cmd.HelpFunc(), cmd.UsageFunc()
	// Subcommands inherit these functions, but not the flags.
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c == cmd {
			sections(c, args)
			fmt.Fprint(c.OutOrStdout(), subcommands(c))
			return
		}
		help(c, args)
	})
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		if c == cmd {
			return sectionsUsage(c)
		}
		return usage(c)
	})
}

// subcommands lists the commands below one, those below them too. The help with sections of flags has none.
func subcommands(cmd *cobra.Command) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "\nOther commands, each with its own --help:\n\n")
	var list func(parent *cobra.Command)
	list = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, "  %s\t%s\n", c.CommandPath(), c.Short)
				list(c)
			}
		}
	}
	list(cmd)
	_ = w.Flush() // It writes to memory.
	return b.String()
}

func serve(cmd *cobra.Command, o *options.Options) error {
	logging.LogUnhandledErrors()
	// Feature gates are not read before this.
	if err := o.Registry.Set(); err != nil {
		return fmt.Errorf("setting feature gates: %w", err)
	}
	if err := logsapi.ValidateAndApply(o.Logs, o.Registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return fmt.Errorf("setting up logging: %w", err)
	}
	logging.ShortenStandardLog()
	c := o.Complete()
	if err := c.Validate(); err != nil {
		return err
	}
	logger := klog.FromContext(cmd.Context())
	logger.Info("Starting", "name", apiserver.Name, "version", version.Get().GitVersion, "api", c.API.By)
	if flags := c.API.Ineffective(); len(flags) > 0 {
		logger.Info("Flags have no effect: --secure-port serves /metrics, /livez, /readyz and /debug/pprof", "flags", flags)
	}
	if c.API.By == options.Definitions {
		return runOnDefinitions(cmd.Context(), c, runControllers)
	}
	return Run(cmd.Context(), c, runControllers)
}
