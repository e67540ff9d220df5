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

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

func TestChoosePort(t *testing.T) {
	busy := freeport.Find(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", freeport.Address(busy))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := choosePort(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("got %v for a port in use, want a sentence that says so", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if port, err := choosePort(t.Context(), busy); err != nil || port != busy {
		t.Errorf("got %d and %v, want the free port asked for", port, err)
	}
	if port, err := choosePort(t.Context(), 0); err != nil || port == 0 {
		t.Errorf("got %d and %v, want a free port", port, err)
	}
	if _, err := choosePort(t.Context(), 70000); err == nil || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v for a port that does not exist, want an error", err)
	}
}

// own is the project of an author with his manifests in a folder.
func own(folder string) *project {
	return &project{title: folder, parts: []part{{manifests: []string{folder}}}}
}

// The folder of a hook in JavaScript has files of its package manager beside the manifests.
func TestAFolderMayHaveFilesOfOthers(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"package.json":    `{"name": "website", "type": "module"}`,
		"controller.yaml": "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var printed bytes.Buffer
	s := &stage{out: &printed, project: own(folder), hooks: []*hookRunner{{}}}
	if err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if set := s.set.Load(); len(set.Controllers) != 1 || len(set.Samples) != 0 {
		t.Errorf("got %d controllers and %d samples, want the controller alone", len(set.Controllers), len(set.Samples))
	}
	if want := filepath.Join(folder, "package.json") + ": an object has neither apiVersion nor kind: it is left out\n"; !strings.Contains(printed.String(), want) {
		t.Errorf("got %q, want %q in it", printed.String(), want)
	}
}

// A first mistake costs no new control plane.
func TestAnAuthorWhoStaysMendsHisManifests(t *testing.T) {
	folder, dir := t.TempDir(), t.TempDir()
	manifest := "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}"
	if err := os.WriteFile(filepath.Join(folder, "controller.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	refused, kubectl := filepath.Join(dir, "refused"), filepath.Join(dir, "kubectl")
	script := "#!/bin/sh\ncase \"$*\" in *--raw*) echo '{}';; esac\nif [ -e '" + refused + "' ]; then echo 'unknown field' >&2; exit 1; fi\n"
	if err := errors.Join(os.WriteFile(refused, nil, 0o600), os.WriteFile(kubectl, []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	s := &stage{
		out: &printed, project: own(folder), hooks: []*hookRunner{{}}, dir: dir, cluster: cluster{Kubectl: kubectl},
		applied: map[string]string{},
	}
	if err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, do := range []func(context.Context) error{s.apply, s.await, s.showResult} {
		if err := do(t.Context()); err != nil {
			t.Fatalf("got %v while the manifests are refused, want to go on", err)
		}
	}
	for _, want := range []string{"    The manifests are not applied: ", "unknown field", "    When you save the mended files, they are applied.\n"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("got %q, want %q in it", printed.String(), want)
		}
	}
	s.options.once = true
	if err := s.apply(t.Context()); err == nil {
		t.Error("got no error for a visitor who does not stay")
	}
	if err := os.Remove(refused); err != nil {
		t.Fatal(err)
	}
	printed.Reset()
	if s.reapply(t.Context()); len(s.appliedControllers()) != 1 {
		t.Errorf("got %d controllers after the mistake was mended, want 1; printed was %q", len(s.appliedControllers()), printed.String())
	}
}

// One controller that is refused does not keep the others from being awaited, and from being synced when the hook changes.
func TestWhatIsAcceptedIsAppliedThoughSomethingIsRefused(t *testing.T) {
	composite := "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: %s}\n---\n"
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\n---\n"
	for what, tc := range map[string]struct {
		manifests, printed string
		want               []string
	}{
		"one of two": {
			fmt.Sprintf(composite, "good") + fmt.Sprintf(composite, "bad"), "compositecontroller.metacontroller.k8s.io/good created\n",
			[]string{"metacontroller.k8s.io/v1alpha1, Kind=CompositeController//good"},
		},
		"a name that begins with the other one": {
			fmt.Sprintf(composite, "web") + fmt.Sprintf(composite, "web-2"), "compositecontroller.metacontroller.k8s.io/web-2 configured\n",
			[]string{"metacontroller.k8s.io/v1alpha1, Kind=CompositeController//web-2"},
		},
		"none": {fmt.Sprintf(composite, "bad"), "", nil},
		// kubectl prints no namespaces: which one is accepted is not known.
		"one of two namespaces": {fmt.Sprintf(config, "a", "b") + fmt.Sprintf(config, "a", "c"), "configmap/a created\n", nil},
		"of the core":           {fmt.Sprintf(config, "a", "b") + fmt.Sprintf(config, "b", "b"), "configmap/b unchanged\n", []string{"/v1, Kind=ConfigMap/b/b"}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			kubectl := filepath.Join(dir, "kubectl")
			if err := os.WriteFile(kubectl, []byte("#!/bin/sh\nprintf '"+tc.printed+"'\necho 'unknown field' >&2\nexit 1\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			objects, err := manifests.Decode([]byte(tc.manifests))
			if err != nil {
				t.Fatal(err)
			}
			s := &stage{out: io.Discard, dir: dir, cluster: cluster{Kubectl: kubectl}, applied: map[string]string{}}
			if err := s.applyAll(t.Context(), objects, ""); err == nil {
				t.Error("got no error of what is refused")
			}
			if got := slices.Sorted(maps.Keys(s.applied)); !slices.Equal(got, tc.want) {
				t.Errorf("applied are %q, want %q", got, tc.want)
			}
		})
	}
}

// A visitor who pastes the commands in their order sees something with each.
func TestSuggestedCommandsWorkInTheirOrder(t *testing.T) {
	t.Chdir("../..")
	for name := range examples {
		p, err := exampleProject(name)
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{project: p, out: io.Discard, hooks: []*hookRunner{{}}}
		if err := s.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		commands, err := s.suggestions()
		if err != nil {
			t.Fatal(err)
		}
		deleted := false
		for _, command := range commands {
			if strings.HasPrefix(command, "kubectl metacontroller syncs ") && deleted {
				t.Errorf("%s: %q comes after what is deleted", name, command)
			}
			if !deleted && deletes(command) && !strings.Contains(command, "up to a minute") {
				t.Errorf("%s: %q does not say how long it takes", name, command)
			}
			deleted = deleted || deletes(command)
		}
	}
}

// A file that a hook reads is none that is applied, though it is YAML beside the manifests.
func TestWhatIsAppliedIsNotTheHooks(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"controller.yaml": "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}",
		"settings.yaml":   "{colour: blue}", "hook.py": "", "manifests/base/kustomization.yaml": "resources: [crd.yaml]",
		"manifests/base/crd.yaml": "", "manifests/local/kustomization.yaml": "",
	} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{project: own(folder)}
	for name, want := range map[string]bool{
		"controller.yaml": true, "settings.yaml": false, "hook.py": false, "manifests/base/crd.yaml": true, "manifests/local/kustomization.yaml": true,
		"new.yaml": false, "metacontroller_hook/types.json": false,
	} {
		if got := s.isManifest(filepath.Join(folder, name)); got != want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestOutcomesAreOneLine(t *testing.T) {
	for want, o := range map[string]outcome{
		"0 parents synced":                  {},
		"2 parents synced, 1 child updated": {synced: 2, done: map[v1alpha1.ChildAction]int{v1alpha1.ChildUpdate: 1, v1alpha1.ChildLeave: 3}},
		"1 parent synced, 2 children created, 1 child deleted, 1 failing: shop/a: status 500": {
			synced: 1, done: map[v1alpha1.ChildAction]int{v1alpha1.ChildCreate: 2, v1alpha1.ChildDelete: 1}, failing: []string{"shop/a: status 500"},
		},
		"0 parents synced, 1 waiting: a: the controller is paused": {waiting: []string{"a: the controller is paused"}},
	} {
		if got := o.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
