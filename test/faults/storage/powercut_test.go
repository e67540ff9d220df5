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
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestPowerCut kills the server while controllers are written to its embedded etcd, and drops what the kernel has not written to the disk.
func TestPowerCut(t *testing.T) {
	needRoot(t)
	figures := report.For(t, report.PowerCut)
	cuts, writes := report.Pick(2, 10), report.Pick(100, 1000)
	d := newDisk(t, "400M")
	data := filepath.Join(d.mounted, "data")
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		DataDir: data, Args: []string{stored},
		// Requests to the cluster are broken off when those end that need them.
		Tolerate: []string{"Failed to make webhook authorizer request"},
	}})
	l := newLedger(e.NewTest(t))
	authority, err := os.ReadFile(filepath.Join(data, "serving-certificates", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range cuts {
		at := l.acknowledged() + 1 + rand.IntN(writes/cuts)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			for until := time.Now().Add(limit()); l.acknowledged() < at && time.Now().Before(until); {
				<-time.After(time.Millisecond)
			}
			e.Server.Kill()
		}()
		// The writes after the kill fail.
		failed := l.write(t.Context(), writes)
		<-killed
		if len(failed) == 0 {
			t.Fatalf("the server was to be killed during the writes, of which %d were acknowledged", l.acknowledged())
		}
		unsynced := filepath.Join(d.mounted, "unsynced")
		if err := os.WriteFile(unsynced, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		d.cutPower()
		if content, _ := os.ReadFile(unsynced); len(content) > 0 {
			t.Errorf("cut %d kept what nobody had synced: the test cuts no power", cut)
		}
		e.Server.Restart()
		l.check()
	}
	if failed := l.write(t.Context(), max(0, writes-l.acknowledged())); len(failed) > 0 {
		t.Errorf("writing after the last cut: %v", failed)
	}
	l.check()
	if now, err := os.ReadFile(filepath.Join(data, "serving-certificates", "ca.crt")); err != nil || !bytes.Equal(now, authority) {
		t.Errorf("the certificate authority is another one: %v", err)
	}
	figures.Sayf("%d kills during %d acknowledged writes, each with the loss of all that was not on the disk: all of the writes are there", cuts, l.acknowledged())
}
