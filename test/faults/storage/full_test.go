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

package storage

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// diskSize is room for two segments of etcd's log, which are made in advance, and for its database.
	diskSize = "200m"
	// space is what is left on the disk before it is written to until it is full.
	space = 1 << 20
	// noSpace is in what the server says then, and what to do.
	noSpace, remedy = "no space left for data directory", "free some space or enlarge the volume, then start again"
)

// TestDiskFull fills the disk under the embedded etcd.
func TestDiskFull(t *testing.T) {
	needRoot(t)
	figures := report.For(t, report.DiskFull)
	rounds := report.Pick(1, 3)
	data := newSmallDisk(t, diskSize)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		DataDir: data, Args: []string{stored}, Tolerate: []string{"context canceled", "could not write", "Handler timeout"},
	}})
	l := newLedger(e.NewTest(t))
	l.fill = 100_000
	var slowest time.Duration
	for range rounds {
		if failed := l.write(t.Context(), 20); len(failed) > 0 {
			t.Fatal(failed)
		}
		free := fill(t, data, space)
		failed := l.write(t.Context(), 2000)
		if len(failed) == 0 {
			t.Fatalf("the disk is not full after %d writes", l.acknowledged())
		}
		select {
		case <-e.Server.Ended():
		case <-time.After(limit()):
			t.Fatalf("the server has not ended with a full disk; writes fail with %v", failed)
		}
		if code, text := e.Server.End(); code == 0 || !strings.Contains(text, noSpace) || !strings.Contains(text, remedy) {
			t.Errorf("the server ended with the code %d and\n%s\nwant %q and %q", code, text, noSpace, remedy)
		}
		again := exec.CommandContext(t.Context(), server.Binary(t), "--kubeconfig", e.Kubeconfig, "--data-dir", data)
		if output, err := again.CombinedOutput(); err == nil || !strings.Contains(string(output), noSpace) || !strings.Contains(string(output), remedy) {
			t.Errorf("started with a full disk it ended with %v and\n%s\nwant %q and %q", err, output, noSpace, remedy)
		}
		free()
		freed := time.Now()
		e.Server.Restart()
		slowest = max(slowest, time.Since(freed))
		l.check()
	}
	if failed := l.write(t.Context(), 20); len(failed) > 0 {
		t.Errorf("writing after all: %v", failed)
	}
	l.check()
	figures.Sayf("full %d times: the server ends and says so, and what to do; with space it served again after %s, with all of %d acknowledged writes",
		rounds, seconds(slowest), l.acknowledged())
}
