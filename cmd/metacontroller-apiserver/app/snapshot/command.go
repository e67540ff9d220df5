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

package snapshot

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	"github.com/metacontroller/metacontroller-apiserver/pkg/etcdsnapshot"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// stream in place of a file is the standard output or input.
const stream = "-"

// NewCommand returns the subcommand snapshot with those below it. EtcdDir returns the directory of the embedded etcd in a data
// directory, and dataDir is the default of --data-dir of the server.
func NewCommand(dataDir string, etcdDir func(dataDir string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save and restore the embedded store",
		Long: `Save and restore the embedded store: controllers, their status and ControllerRevisions.

A snapshot is that of etcd, for which etcdutl works too. It holds neither the certificates in the data directory nor the
keys of --encryption-provider-config. With --etcd-servers, use etcdctl.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newSaveCommand(dataDir, etcdDir), newRestoreCommand(etcdDir), newStatusCommand())
	return cmd
}

func newSaveCommand(dataDir string, etcdDir func(string) string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the store of a running server, as it is at one moment",
		Long: `Save the store of a running server, as it is at one moment. The server goes on meanwhile.

It is run where the server runs and as the same user, since the store listens on a socket in the data directory. A file
that exists is replaced, once the snapshot is whole. With - the snapshot is written to the standard output.`,
		Example: `  metacontroller-apiserver snapshot save --data-dir DIR backup.db

  # From a server in the cluster
  kubectl exec --namespace metacontroller metacontroller-apiserver-0 --container apiserver -- \
    metacontroller-apiserver snapshot save - > backup.db`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := withTimeout(cmd.Context(), timeout)
			defer cancel()
			return save(ctx, dataDir, etcdDir(dataDir), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", dataDir, "data directory of the server")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long saving may take")
	return cmd
}

func newRestoreCommand(etcdDir func(string) string) *cobra.Command {
	var dataDir string
	r := etcdsnapshot.Restoring{}
	cmd := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Make a data directory of a snapshot, for a server to start on",
		Long: `Make a data directory of a snapshot, for a server to start on.

The directory may hold certificates, and must not hold a store: nothing is overwritten. Revisions go on well after those
that clients have seen as resourceVersions before the store was lost, so that every watch begins anew and no write that
was prepared before is taken for one of a later state. With - the snapshot is read from the standard input.`,
		Example:      `  metacontroller-apiserver snapshot restore backup.db --data-dir DIR`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.File, r.Dir = args[0], etcdDir(dataDir)
			return restore(r, dataDir, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the server")
	cmd.Flags().Uint64Var(&r.Bump, "bump-revision", etcdsnapshot.DefaultBump, "how much to add to the last revision of the snapshot: more "+
		"than was written since it was saved")
	_ = cmd.MarkFlagRequired("data-dir") // The flag exists.
	return cmd
}

func newStatusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:          "status FILE",
		Short:        "Check that a snapshot is whole, and print what is in it",
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output is %q, and may be json", output)
			}
			status, err := etcdsnapshot.ReadStatus(args[0])
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), status, output == "json")
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json prints JSON")
	return cmd
}

// explain says of an error what to do about it.
func explain(dataDir string, err error) error {
	switch {
	case errors.Is(err, embeddedetcd.ErrNotRunning):
		return fmt.Errorf("no server with an embedded store runs on data directory %s: start it, or copy the directory while it is stopped; "+
			"of a store that --etcd-servers names, etcdctl saves snapshots", dataDir)
	case isPermission(err):
		return fmt.Errorf("%w: only the user of the server may save its store", err)
	}
	return err
}

// hasCertificates reports whether the server on a data directory goes on with certificates of its own.
func hasCertificates(dataDir string) bool {
	return exists(servingcert.FilesIn(servingcert.Directory(dataDir)).CAFile)
}
