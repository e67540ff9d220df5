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
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	informers "github.com/metacontroller/metacontroller-apiserver/pkg/generated/informers/externalversions"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// oldVersion is the commit of the version from which is upgraded, and to which is gone back.
const oldVersion = "3cfab47"

// watchers watch at the same time.
const watchers = 3

// TestUpgrade replaces the server by another version of it, one beside the other as in a rolling update, and goes back.
func TestUpgrade(t *testing.T) {
	figures := report.For(t, report.Upgrade)
	parents, writes := report.Pick(20, 200), report.Pick(60, 1000)
	old := server.Binary(t)
	if report.Long() {
		old = build(t, oldVersion)
	}
	c := cluster.Shared(t)
	o := server.Options{
		Binary: old, Args: []string{"--etcd-servers", c.EtcdServers, "--etcd-prefix", "/test-upgrade", stored},
		Tolerate: []string{"context canceled", "could not write", "Handler timeout"},
	}
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: o})
	running := e.Server
	test := e.NewTest(t)
	l := newLedger(test)
	l.again = temporary
	f := fleet.New(test, fleet.Options{Parents: parents, Children: 2, Method: v1alpha1.ChildUpdateRollingInPlace, Finalize: true})
	f.Create("first")
	f.Converge("creation")
	stores := watch(t, e)
	for i, next := range []string{server.Binary(t), old} {
		start := l.acknowledged()
		loaded := make(chan []error, 1)
		go func() { loaded <- l.write(t.Context(), writes) }()
		f.Change("value "+strconv.Itoa(i), f.Names()...)
		o.Binary = next
		successor := server.Start(t, c, o)
		if err := running.Stop(); err != nil {
			t.Errorf("stopping the former server: %v", err)
		}
		running = successor
		f.Converge("the other version took over")
		for _, err := range <-loaded {
			t.Errorf("under the load: %v", err)
		}
		// Some for the successor alone.
		for _, err := range l.write(t.Context(), writes/4) {
			t.Errorf("after the load: %v", err)
		}
		l.check()
		figures.Sayf("%s: %d writes, 0 failed", []string{"to the new version", "back to the old one"}[i], l.acknowledged()-start)
	}
	for _, store := range stores {
		cluster.Eventually(t, limit(), "a watch to show all writes", func(context.Context) (bool, string) { return l.shown(store) })
	}
	// The server that runs now ends before what the others cleaned up.
	f.Controller.Delete()
	f.Controller.AwaitGone()
	figures.Sayf("%d writes repeated by their client, %d watches followed them all, %d parents and their children whole", l.repeated.Load(), watchers, parents)
}

// temporary reports whether a request may be repeated: the server was going or not there yet.
func temporary(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return !answered || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// watch watches controllers until the test ends.
func watch(t *testing.T, e *fixture.Environment) []cache.Store {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	var stores []cache.Store
	for range watchers {
		informer := informers.NewSharedInformerFactory(e.Versioned, 0).Metacontroller().V1alpha1().CompositeControllers().Informer()
		running.Go(func() { informer.RunWithContext(ctx) })
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("the watch did not begin")
		}
		stores = append(stores, informer.GetStore())
	}
	return stores
}

// shown reports whether a store has the acknowledged writes, or later ones.
func (l *ledger) shown(store cache.Store) (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, acked := range l.acked {
		o, there, err := store.GetByKey(name)
		if err != nil || !there {
			return false, fmt.Sprintf("%s is not there: %v", name, err)
		}
		annotation := o.(*v1alpha1.CompositeController).Annotations[numberAnnotation]
		if n, err := strconv.Atoi(annotation); err != nil || n < acked {
			return false, fmt.Sprintf("%s has the write %q, want %d", name, annotation, acked)
		}
	}
	return true, ""
}

// build builds the server of a commit, unless that was done before, and returns the binary.
func build(t *testing.T, commit string) string {
	t.Helper()
	folder := filepath.Join(cluster.Root(), "bin", "faults", commit)
	binary := filepath.Join(folder, "metacontroller-apiserver")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	tree := filepath.Join(t.TempDir(), "tree")
	git := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = cluster.Root()
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, output)
		}
	}
	git("worktree", "add", "--detach", tree, commit)
	defer git("worktree", "remove", "--force", tree)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", binary+".part", "./cmd/metacontroller-apiserver")
	command.Dir = tree
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", commit, err, output)
	}
	if err := os.Rename(binary+".part", binary); err != nil {
		t.Fatal(err)
	}
	t.Logf("built the server of %s in %s", commit, seconds(time.Since(began)))
	return binary
}
