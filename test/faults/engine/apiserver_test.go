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

package engine

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// callsPerChange is how often the hook may be called for a parent that was changed while the kube-apiserver was away: for the change, for
// what the change led to, and when informers list anew.
const callsPerChange = 4

// TestKubeAPIServer takes the kube-apiserver away from the server. The test, and the controllers of Kubernetes, use another one.
func TestKubeAPIServer(t *testing.T) {
	figures := report.For(t, report.KubeAPIServer)
	parents, away := report.Pick(40, 500), report.Pick(3*time.Second, time.Minute)
	api := cluster.Shared(t).NewAPIServer(t)
	waited := startWithout(t, api)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		Kubeconfig: api.Kubeconfig,
		// Requests are broken off when the kube-apiserver ends.
		Tolerate: []string{"connection refused", "context canceled", "could not write"},
	}})
	figures.Sayf("absent when the server starts: it waits, and serves %s after the kube-apiserver does", seconds(waited))
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Finalize: true})
	f.Create("first")
	f.Converge("creation")
	changed := f.Names()[:parents/4]
	for i, c := range []struct {
		what string
		away time.Duration
	}{{"down", away}, {"restarted", 0}} {
		f.Idle(f.Controller)
		f.Hook.Forget()
		api.Stop()
		f.Change("while "+c.what, changed...)
		pause(t, c.away)
		api.Start()
		took := f.Converge("the kube-apiserver was " + c.what)
		f.Idle(f.Controller)
		calls := 0
		for _, n := range f.Hook.Seen() {
			calls += n
		}
		if most := callsPerChange*len(changed) + parents; calls > most {
			t.Errorf("the hook was called %d times for %d changes and %d parents, want %d at most", calls, len(changed), parents, most)
		}
		figures.Sayf("%s: converged %s after it, %d calls of the hook for %d changes of %d parents, no child made again",
			[]string{"down for " + away.String(), "restarted"}[i], seconds(took), calls, len(changed), parents)
	}
	select {
	case <-e.Server.Ended():
		t.Error("the server ended")
	default:
	}
}

// startWithout starts a server while there is no kube-apiserver, and returns how long after that it serves.
func startWithout(t *testing.T, api *cluster.APIServer) time.Duration {
	t.Helper()
	command := process.Command(t.Context(), server.Binary(t), "--kubeconfig", api.Kubeconfig, "--data-dir", t.TempDir(),
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(freeport.Find(t)))
	const waits = "The cluster does not respond"
	running, err := process.Start(command, process.Options{Name: "the server", Log: filepath.Join(t.TempDir(), "server.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Kill()
	awaitLine := func(text string) {
		t.Helper()
		cluster.Eventually(t, limit(), "the server to log "+text, func(context.Context) (bool, string) {
			select {
			case <-running.Ended():
				t.Fatalf("%v\n%s", running.Err(), running.Tail(10))
			default:
			}
			log := running.Tail(1000)
			return strings.Contains(log, text), running.Tail(10)
		})
	}
	awaitLine(waits)
	api.Start()
	there := time.Now()
	awaitLine("Serving securely")
	return time.Since(there)
}
