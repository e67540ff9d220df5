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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	"github.com/metacontroller/metacontroller-apiserver/pkg/etcdsnapshot"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// stream in place of a file is the standard output or input.
const stream = "-"

// NewCommand returns the subcommand snapshot with those below it. DataDir is the default of --data-dir of the server.
func NewCommand(dataDir string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save and restore the embedded store",
		Long: `Save and restore the embedded store: controllers, their status and ControllerRevisions.

A snapshot is that of etcd, for which etcdutl works too. It holds neither the certificates in the data directory nor the
keys of --encryption-provider-config. With --etcd-servers, use etcdctl.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newSaveCommand(dataDir), newRestoreCommand(), newStatusCommand())
	return cmd
}

func newSaveCommand(dataDir string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the store of a running server, as it is at one moment",
		Long: `Save the store of a running server, as it is at one moment. The server goes on meanwhile.

Run it on the server's machine and as its user, because the store listens on a socket in the data directory. It replaces
an existing file once the snapshot is whole. With - it writes the snapshot to the standard output.`,
		Example: `  metacontroller-apiserver snapshot save --data-dir DIR backup.db

  # From a server in the cluster
  kubectl exec --namespace metacontroller metacontroller-apiserver-0 --container apiserver -- \
    metacontroller-apiserver snapshot save - > backup.db`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := withTimeout(cmd.Context(), timeout)
			defer cancel()
			return save(ctx, dataDir, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", dataDir, "data directory of the server")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long saving may take")
	return cmd
}

func newRestoreCommand() *cobra.Command {
	var dataDir string
	r := etcdsnapshot.Restoring{}
	cmd := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Make a data directory of a snapshot, for a server to start on",
		Long: `Make a data directory of a snapshot, for a server to start on.

The directory may hold certificates, and must not hold a store. Revisions continue far above those that clients have seen
as resourceVersions. So every watch begins anew, and a write that was prepared before is a conflict. With - it reads the
snapshot from the standard input.`,
		Example:      `  metacontroller-apiserver snapshot restore backup.db --data-dir DIR`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.File, r.Dir = args[0], options.EtcdDir(dataDir)
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
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: only the user of the server may save its store", err)
	}
	return err
}

// save saves the store of the server on dataDir, and says so on notes.
func save(ctx context.Context, dataDir, file string, out, notes io.Writer) error {
	if file == stream {
		size, err := etcdsnapshot.Save(ctx, options.EtcdDir(dataDir), out)
		if err != nil {
			return explain(dataDir, err)
		}
		fmt.Fprintf(notes, "Saved %d bytes of a snapshot of %s. Check where it arrived: metacontroller-apiserver snapshot status FILE\n", size, dataDir)
		return nil
	}
	if err := etcdsnapshot.SaveFile(ctx, options.EtcdDir(dataDir), file); err != nil {
		return explain(dataDir, err)
	}
	status, err := etcdsnapshot.ReadStatus(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(notes, "Saved a snapshot of %s as %s: revision %d, %s.\n", dataDir, file, status.Revision, inWords(status.Keys))
	return nil
}

// restore restores a snapshot into dataDir, and says what to do next.
func restore(r etcdsnapshot.Restoring, dataDir string, in io.Reader, out io.Writer) error {
	if r.File == stream {
		path, err := receive(in)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(path) }()
		r.File = path
	}
	if err := etcdsnapshot.Restore(r); err != nil {
		return err
	}
	status, err := etcdsnapshot.ReadStatus(r.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Restored %s into %s. Revisions go on after %d.\n", inWords(status.Keys), dataDir, uint64(status.Revision)+r.Bump) //nolint:gosec // Revisions are positive.
	fmt.Fprintf(out, "Start the server with --data-dir %s", dataDir)
	if _, err := os.Stat(servingcert.FilesIn(servingcert.Directory(dataDir)).CAFile); err != nil {
		fmt.Fprint(out, ". It will make certificates of a new authority, since there are none: register it again, unless it has --tls-cert-file")
	}
	fmt.Fprintln(out, ".")
	return nil
}

// receive writes what it reads to a file.
func receive(in io.Reader) (path string, err error) {
	f, err := os.CreateTemp("", "snapshot-")
	if err != nil {
		return "", fmt.Errorf("making a file for the snapshot: %w", err)
	}
	_, err = io.Copy(f, in)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("receiving the snapshot: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// printStatus prints what is in a snapshot.
func printStatus(out io.Writer, status etcdsnapshot.Status, asJSON bool) error {
	objects := count(status.Keys)
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			etcdsnapshot.Status

			Objects map[string]int `json:"objects"`
		}{status, objects})
	}
	_, err := fmt.Fprintf(out, "Version:    %s\nRevision:   %d\nTotal keys: %d\nTotal size: %d bytes\nHash:       %s\nObjects:    %s\n",
		cmp.Or(status.Version, "not known"), status.Revision, status.TotalKeys, status.TotalSize, status.Hash, inWords(status.Keys))
	return err
}

// count counts the objects by resource. Below any prefix they have keys such as /metacontroller.k8s.io/RESOURCE/NAME.
func count(keys []string) map[string]int {
	objects := map[string]int{}
	for _, key := range keys {
		if _, rest, ok := strings.Cut(key, "/"+v1alpha1.GroupName+"/"); ok {
			resource, _, _ := strings.Cut(rest, "/")
			objects[resource]++
		}
	}
	return objects
}

// inWords says how many objects there are.
func inWords(keys []string) string {
	objects := count(keys)
	var words []string
	for _, resource := range slices.Sorted(maps.Keys(objects)) {
		words = append(words, fmt.Sprintf("%d %s", objects[resource], resource))
	}
	return cmp.Or(strings.Join(words, ", "), "no objects")
}

// withTimeout is context.WithTimeout with a cause for people. Zero is no timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took longer than %s", timeout))
}
