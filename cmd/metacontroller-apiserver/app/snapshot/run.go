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

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/etcdsnapshot"
)

// save saves the store of the server on dataDir, and says so on notes.
func save(ctx context.Context, dataDir, etcdDir, file string, out, notes io.Writer) error {
	if file == stream {
		size, err := etcdsnapshot.Save(ctx, etcdDir, out)
		if err != nil {
			return explain(dataDir, err)
		}
		fmt.Fprintf(notes, "Saved %d bytes of a snapshot of %s. Check where it arrived: metacontroller-apiserver snapshot status FILE\n", size, dataDir)
		return nil
	}
	if err := etcdsnapshot.SaveFile(ctx, etcdDir, file); err != nil {
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
	if !hasCertificates(dataDir) {
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
	version := status.Version
	if version == "" {
		version = "not known"
	}
	_, err := fmt.Fprintf(out, "Version:    %s\nRevision:   %d\nTotal keys: %d\nTotal size: %d bytes\nHash:       %s\nObjects:    %s\n",
		version, status.Revision, status.TotalKeys, status.TotalSize, status.Hash, inWords(status.Keys))
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
	if len(words) == 0 {
		return "no objects"
	}
	return strings.Join(words, ", ")
}

// withTimeout is context.WithTimeout with a cause for people. Zero is no timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took longer than %s", timeout))
}

func isPermission(err error) bool { return errors.Is(err, os.ErrPermission) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
