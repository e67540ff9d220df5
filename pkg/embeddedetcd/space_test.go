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

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
)

// smallQuota is a server whose database is soon full, and that looks after it often.
func smallQuota(t *testing.T) *clientv3.Client {
	t.Helper()
	server := mustStart(t, Options{Dir: t.TempDir(), QuotaBytes: 4 << 20, SpaceCheckInterval: 20 * time.Millisecond})
	return mustConnect(t, server)
}

// fill writes until the quota is reached.
func fill(t *testing.T, client *clientv3.Client, key func(n int) string) {
	t.Helper()
	value := strings.Repeat("x", 100_000)
	for n := range 1000 {
		_, err := client.Put(t.Context(), key(n), value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("wrote 100 MB, and the quota of 4 MiB was not reached")
}

// eventuallyPut writes as soon as etcd lets it.
func eventuallyPut(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = client.Put(ctx, key, value)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("etcd did not take writes again: %v", last)
	}
}

func TestOldVersionsMakePlaceAtTheQuota(t *testing.T) {
	client := smallQuota(t)
	mustPut(t, client, "/other", "stays")
	fill(t, client, func(int) string { return "/same" })
	eventuallyPut(t, client, "/after", "written")
	for key, length := range map[string]int{"/other": len("stays"), "/after": len("written"), "/same": 100_000} {
		if got := mustGet(t, client, key); len(got) != length {
			t.Errorf("%s has %d bytes, want %d", key, len(got), length)
		}
	}
}

func TestDeletedObjectsMakePlaceAtTheQuota(t *testing.T) {
	client := smallQuota(t)
	fill(t, client, func(n int) string { return fmt.Sprintf("/objects/%d", n) })
	if got := mustGet(t, client, "/objects/0"); len(got) != 100_000 {
		t.Errorf("reading at the quota returned %d bytes, want 100000", len(got))
	}
	if _, err := client.Put(t.Context(), "/one/more", strings.Repeat("x", 100_000)); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("writing at the quota returned %v, want %v", err, rpctypes.ErrNoSpace)
	}
	if _, err := client.Delete(t.Context(), "/objects/", clientv3.WithPrefix()); err != nil {
		t.Fatalf("deleting at the quota: %v", err)
	}
	eventuallyPut(t, client, "/after", "written")
}

func TestFullDiskEndsTheServer(t *testing.T) {
	for name, test := range map[string]struct{ reason, role string }{
		"AtStart": {
			reason: "Without space for a log nothing can be acknowledged.",
			role:   roleFull,
		},
		"WhileWriting": {
			reason: "A write that cannot be stored must not be acknowledged, nor any after it.",
			role:   roleFill,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			output, err := childCommand(t, test.role, dir).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("%s\nprocess ended with %v, want exit code 1; its output:\n%s", test.reason, err, output)
			}
			if want := "no space left for data directory " + dir; !strings.Contains(string(output), want) {
				t.Errorf("%s\nprocess does not say %q:\n%s", test.reason, want, output)
			}
			// With space again, everything that was acknowledged is there.
			server := mustStart(t, Options{Dir: dir})
			client := mustConnect(t, server)
			for line := range strings.Lines(string(output)) {
				if key, found := strings.CutPrefix(strings.TrimSpace(line), "acknowledged "); found {
					mustGet(t, client, key)
				}
			}
		})
	}
}
