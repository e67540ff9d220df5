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

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/dashboard"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/explainloop"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/parents"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/pause"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/plan"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/rbac"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/recording"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/resync"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/rollback"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/scaffold"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/status"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/syncs"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/tree"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/try"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/version"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// Groups of commands, in the order in which --help prints them.
const (
	groupAuthors   = "authors"
	groupOperators = "operators"
)

// New returns the command with all subcommands. It reads and writes the given streams only.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	c := connection.New(streams)
	root := &cobra.Command{
		Use:   "kubectl-metacontroller",
		Short: "Write, look at and run controllers of metacontroller.k8s.io",
		Long: `Write, look at and run controllers of metacontroller.k8s.io.

A controller is named as cc/NAME (CompositeController), dc/NAME (DecoratorController), or by its name alone where only one kind has it; the
kind and the name may be two arguments.`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: connection.Program},
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(withHelp)
	c.AddFlags(root.PersistentFlags())
	root.SetGlobalNormalizationFunc(asKubectl)
	root.AddGroup(
		&cobra.Group{ID: groupAuthors, Title: "For authors of controllers:"},
		&cobra.Group{ID: groupOperators, Title: "For controllers that run:"},
	)
	add(root, groupAuthors, scaffold.NewCommand(streams), lint.NewCommand(streams), rbac.NewCommand(c), plan.NewCommand(c), try.NewCommand(c),
		recording.NewRecordCommand(c), recording.NewReplayCommand(streams))
	add(root, groupOperators, status.NewCommand(c), parents.NewCommand(c), syncs.NewCommand(c), explainloop.NewCommand(c),
		tree.NewCommand(c), dashboard.NewCommand(c), resync.NewCommand(c), rollback.NewCommand(c), pause.NewPauseCommand(c), pause.NewResumeCommand(c))
	add(root, "", version.NewCommand(c))
	return root
}

// Execute runs the subcommand that the arguments of the process name, or that were set.
func Execute(ctx context.Context, root *cobra.Command) error {
	cmd, err := root.ExecuteContextC(ctx)
	if cmd == root && err != nil && strings.HasPrefix(err.Error(), "unknown command ") { // Cobra has no type for it.
		return withHelp(root, errors.New(strings.TrimSpace(err.Error())))
	}
	return err
}

// add adds commands of one group, of none if that is empty.
func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = group
		if valid := cmd.Args; valid != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if err := valid(cmd, joined(args)); err != nil {
					return withHelp(cmd, cmp.Or(missing(cmd, joined(args)), err))
				}
				return nil
			}
		}
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd, joined(args)) }
		}
		if complete := cmd.ValidArgsFunction; complete != nil {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return complete(cmd, joined(args), prefix)
			}
		}
		if flag := cmd.Flag("output"); flag != nil {
			if _, formats, ok := strings.Cut(flag.Usage, "output format: "); ok {
				formats = strings.NewReplacer("one of ", "", " or ", ", ").Replace(formats)
				completions := cobra.FixedCompletions(strings.Split(formats, ", "), cobra.ShellCompDirectiveNoFileComp)
				_ = cmd.RegisterFlagCompletionFunc(flag.Name, completions) // The flag is there.
			}
		}
		root.AddCommand(cmd)
	}
}

// joined returns arguments in which a controller that is named by two, as in cc website, is named by one.
func joined(args []string) []string {
	if len(args) < 2 || !controllerobject.IsKind(args[0]) {
		return args
	}
	return append([]string{args[0] + "/" + args[1]}, args[2:]...)
}

// missing says which argument is missing and how to find what it may be, and is nil if none is.
func missing(cmd *cobra.Command, args []string) error {
	_, usage, _ := strings.Cut(cmd.Use, " ")
	words := strings.Fields(usage)
	if len(args) >= len(words) {
		return nil
	}
	switch word := words[len(args)]; {
	case strings.HasPrefix(word, "["):
		return nil
	case word == "NAMESPACE/PARENT":
		return fmt.Errorf("name a parent as NAMESPACE/PARENT: list those that there are with '%s parents %s --all'", connection.Program, args[0])
	case word == "DIRECTORY":
		return errors.New("name a folder with recorded requests, such as testdata")
	case cmd.Name() == "init":
		return fmt.Errorf("name the controller to write: %s init NAME --parent KIND.GROUP --child deployments,services", connection.Program)
	case cmd.Name() == "tree":
		return fmt.Errorf("name an object, as %s tree KIND.GROUP/NAME: list the kinds with 'kubectl api-resources'", connection.Program)
	}
	return fmt.Errorf("name a controller: list those that there are with '%s status'", connection.Program)
}

// asKubectl takes kubectl's name of the flag --all.
func asKubectl(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "all-namespaces" {
		name = "all"
	}
	return pflag.NormalizedName(name)
}

// withHelp returns the error of a command line with where it is described what to say.
func withHelp(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: see '%s --help'", err, cmd.CommandPath())
}
