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

package rescue

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// save saves a snapshot of the running server.
func save(t *testing.T, e *fixture.Environment) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backup.db")
	must(t, e.Kubeconfig, "snapshot", "save", file, "--data-dir", e.Server.DataDir())
	return file
}

// lose stops the server and takes its store away; restore brings back a former one and starts the server on it.
func lose(t *testing.T, e *fixture.Environment) {
	t.Helper()
	if err := e.Server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(e.Server.DataDir(), "etcd", "member"), filepath.Join(t.TempDir(), "lost")); err != nil {
		t.Fatal(err)
	}
}

func restore(t *testing.T, e *fixture.Environment, file string) {
	t.Helper()
	must(t, e.Kubeconfig, "snapshot", "restore", file, "--data-dir", e.Server.DataDir())
	e.Server.Restart()
}

// TestRestoringWhatWasSavedWhileItWasWritten restores the latest state: all goes on as if nothing had been.
func TestRestoringWhatWasSavedWhileItWasWritten(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	f := newFleet(t, e, fixture.Composite)
	names := []string{"p0", "p1", "p2", "p3"}
	running := f.run(names...)

	// Rollouts and labels of the controller are written meanwhile.
	writing, done := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for n := 0; writing.Err() == nil; n++ {
			name := names[n%len(names)]
			if _, err := f.Resource(fixture.Things).Patch(t.Context(), name, "application/merge-patch+json",
				fmt.Appendf(nil, `{"spec":{"shown":"%d"}}`, n), metav1.PatchOptions{}); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	var file string
	for range 3 {
		file = save(t, e)
		running.Patch(`{"metadata":{"labels":{"saved":"again"}}}`)
	}
	done()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f.show(name, "after")
	}
	f.Settle()
	before, seen := f.uids(names...), f.watch()
	lose(t, e)
	restore(t, e, file)
	running.AwaitReady()
	f.Settle()
	unharmed(t, f, before, seen)
	f.show("p0", "going on")
}

// unharmed fails the test if an object is gone or another one.
func unharmed(t *testing.T, f *fleet, before map[string]types.UID, seen *witness, names ...string) {
	t.Helper()
	if len(names) == 0 {
		names = []string{"p0", "p1", "p2", "p3"}
	}
	if after := f.uids(names...); !maps.Equal(before, after) {
		t.Errorf("the UIDs were %v, and are %v", before, after)
	}
	if deleted := seen.of(before); len(deleted) > 0 {
		t.Errorf("deleted were %v", deleted)
	}
}

// TestRestoringAnOlderState restores a state before parents were updated, and before a controller was there.
func TestRestoringAnOlderState(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	f := newFleet(t, e, fixture.Composite)
	names := []string{"p0", "p1", "p2", "p3"}
	running := f.run(names...)
	f.Settle()
	file := save(t, e)

	// What the snapshot does not know: updated children with their revisions, another spec, another controller.
	for _, name := range names {
		f.show(name, "after")
	}
	running.Patch(`{"spec":{"resyncPeriodSeconds":3600}}`)
	running.AwaitReady()
	later := newFleet(t, e, fixture.Decorator)
	added := later.run(names...)
	f.Settle()
	later.Settle()
	lost := version(t, e)
	ofBoth, seen, seenLater := [2]map[string]types.UID{f.uids(names...), later.uids(names...)}, f.watch(), later.watch()

	lose(t, e)
	restore(t, e, file)
	running.AwaitReady()
	f.Settle()
	unharmed(t, f, ofBoth[0], seen)
	for _, name := range names {
		if o := later.Get(fixture.Things, name); !later.carries(o) {
			t.Errorf("%s has the finalizers %v: who took that of a controller off that is not there?", name, o.GetFinalizers())
		}
	}

	// Clients that saw what is lost begin anew.
	if _, err := watchFrom(t, e, lost); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from a version that is lost: got %v, want it to be too old", err)
	}
	if now := version(t, e); now <= lost {
		t.Errorf("the version of a list went back from %d to %d", lost, now)
	}

	// The controller that is missing is created again, and goes on with its parents.
	added.Forget()
	again := later.Run(later.definition)
	later.Settle()
	unharmed(t, later, ofBoth[1], seenLater)
	later.show("p0", "going on")
	again.Delete()
	again.AwaitGone()
	for _, name := range names {
		later.Await(fixture.Things, name, "to be released", later.released)
	}
}

// version returns the resourceVersion of a list of controllers.
func version(t *testing.T, e *fixture.Environment) (version uint64) {
	t.Helper()
	list, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(list.ResourceVersion, &version); err != nil {
		t.Fatal(err)
	}
	return version
}

// watchFrom watches controllers from a version, and returns the error with which that begins.
func watchFrom(t *testing.T, e *fixture.Environment, version uint64) (*v1alpha1.CompositeController, error) {
	t.Helper()
	events, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(version)})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var event watch.Event
	select {
	case got, open := <-events.ResultChan():
		if !open {
			return nil, nil
		}
		event = got
	case <-ctx.Done():
		t.Fatalf("a watch from version %d shows nothing: %v", version, ctx.Err())
	}
	if object, ok := event.Object.(*v1alpha1.CompositeController); ok {
		return object, nil
	}
	return nil, apierrors.FromObject(event.Object)
}

// TestWhatTheCommandsSay goes through the ways in which they are used wrongly.
func TestWhatTheCommandsSay(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	newFleet(t, e, fixture.Composite).run("p0")
	file, dir := save(t, e), e.Server.DataDir()
	status := must(t, "", "snapshot", "status", file)
	if !strings.Contains(status, "1 compositecontrollers, 1 controllerrevisions") {
		t.Errorf("the status does not say what is in the snapshot:\n%s", status)
	}
	var decoded struct {
		Revision int64          `json:"revision"`
		Objects  map[string]int `json:"objects"`
	}
	if err := json.Unmarshal([]byte(must(t, "", "snapshot", "status", file, "-o", "json")), &decoded); err != nil || decoded.Revision == 0 ||
		decoded.Objects["compositecontrollers"] != 1 {
		t.Errorf("the status as JSON: %+v, error %v", decoded, err)
	}
	broken := filepath.Join(t.TempDir(), "broken.db")
	if err := os.WriteFile(broken, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"RestoreUnderAServer": {[]string{"snapshot", "restore", file, "--data-dir", dir}, "is in use by process"},
		"RestoreTwice":        {[]string{"snapshot", "restore", file, "--data-dir", restored(t, file)}, "holds a store already, and nothing of it was changed"},
		"RestoreNowhere":      {[]string{"snapshot", "restore", file}, `required flag(s) "data-dir" not set`},
		"RestoreSomething":    {[]string{"snapshot", "restore", broken, "--data-dir", empty}, "cannot be restored: it has 7 bytes and no checksum"},
		"RestoreNothing":      {[]string{"snapshot", "restore", broken + "x", "--data-dir", empty}, "no such file"},
		"StatusOfSomething":   {[]string{"snapshot", "status", broken}, "cannot be restored: it has 7 bytes and no checksum"},
		"SaveWithoutServer":   {[]string{"snapshot", "save", broken, "--data-dir", empty}, "no server with an embedded store runs on data directory " + empty},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := command(t, "", "", test.args...)
			if err == nil || !strings.Contains(output, test.want) || !strings.HasPrefix(output, "Error: ") {
				t.Errorf("got %v and %q, want %q in it", err, output, test.want)
			}
		})
	}
}

// restored is a data directory with a store.
func restored(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	output, err := command(t, string(content), "", "snapshot", "restore", "-", "--data-dir", dir)
	if err != nil || !strings.Contains(output, "register it again") {
		t.Fatalf("restoring from the standard input: %v\n%s", err, output)
	}
	return dir
}
