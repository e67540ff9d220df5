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
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// startupProbe returns for how long the manifest of a server with an embedded etcd lets it start.
func startupProbe(t *testing.T) time.Duration {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("..", "..", "artifacts", "components", "embedded-etcd", "statefulset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`startupProbe:(?s:.*?)periodSeconds: (\d+)\s+failureThreshold: (\d+)`).FindSubmatch(manifest)
	if found == nil {
		t.Fatal("the manifest has no startup probe")
	}
	period, _ := strconv.Atoi(string(found[1]))
	threshold, _ := strconv.Atoi(string(found[2]))
	return time.Duration(period*threshold) * time.Second
}

func TestALargeDatabaseHasMoreTimeToStart(t *testing.T) {
	for name, test := range map[string]struct {
		size  int64
		given time.Duration
		want  time.Duration
	}{
		"no database":                {want: time.Minute},
		"a small one":                {size: 20 << 20, want: time.Minute},
		"one of half the quota":      {size: DefaultQuotaBytes / 2, want: 81 * time.Second},
		"one at the quota":           {size: DefaultQuotaBytes, want: 102 * time.Second},
		"a time of the caller's own": {size: DefaultQuotaBytes, given: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.size > 0 {
				file := datadir.ToBackendFileName(dir)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(file, test.size); err != nil { // It takes no space.
					t.Fatal(err)
				}
			}
			o, err := Options{Dir: dir, StartTimeout: test.given}.complete(t.Context())
			if err != nil || o.StartTimeout != test.want {
				t.Errorf("it may take %s, error %v; want %s", o.StartTimeout, err, test.want)
			}
			// What is left is for the rest of the server's start: whom the kubelet ends says nothing.
			if probe := startupProbe(t); o.StartTimeout > probe-15*time.Second {
				t.Errorf("it may take %s, and the kubelet ends it after %s", o.StartTimeout, probe)
			}
		})
	}
}
