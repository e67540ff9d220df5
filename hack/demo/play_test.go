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
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
)

// What the API server warns of is easily a mistake of the author.
func TestWarningsOfASuccessfulApplyArePrinted(t *testing.T) {
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\necho 'thing/a created'\necho 'Warning: did you mean deployments?' >&2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Decode([]byte("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	s := &stage{out: &printed, dir: dir, cluster: cluster{Kubectl: kubectl}, applied: map[string]string{}}
	if err := s.applyAll(t.Context(), objects, ""); err != nil {
		t.Fatal(err)
	}
	if want := "    thing/a created\n    Warning: did you mean deployments?\n"; printed.String() != want {
		t.Errorf("got %q, want %q", printed.String(), want)
	}
}

// The API server quotes the whole patch before it says what is wrong with it.
func TestARefusalIsTheReasonAlone(t *testing.T) {
	failed := errors.New("kubectl apply: exit status 1")
	for printed, want := range map[string]string{
		"The request is invalid: patch: Invalid value: \"map[metadata:map[annotations:map[a:{\\\"b\\\":1}\n]] spec:map[x:5]]\": strict decoding error: unknown field \"spec.x\"\n": `The request is invalid: strict decoding error: unknown field "spec.x"`,
		"Error from server (Forbidden): no\n": "Error from server (Forbidden): no",
		"":                                    "kubectl apply: exit status 1",
	} {
		if got := refusal(failed, printed); got.Error() != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A visitor may apply the manifests of an example by hand, with the address that the hook has in a cluster.
func TestASavedManifestIsAppliedAgain(t *testing.T) {
	folder, dir := t.TempDir(), t.TempDir()
	manifest := "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}"
	kubectl := filepath.Join(dir, "kubectl")
	if err := errors.Join(
		os.WriteFile(filepath.Join(folder, "controller.yaml"), []byte(manifest), 0o600),
		os.WriteFile(kubectl, []byte("#!/bin/sh\ncase \"$*\" in *--raw*) echo '{}';; *apply*) echo applied;; esac\n"), 0o700),
		os.WriteFile(filepath.Join(dir, "kubectl-metacontroller"), []byte("#!/bin/sh\n"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	s := &stage{
		out: &printed, project: own(folder), hooks: []*hookRunner{{}}, dir: dir, programs: dir, cluster: cluster{Kubectl: kubectl}, applied: map[string]string{},
	}
	if err := errors.Join(s.read(t.Context()), s.apply(t.Context())); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]int{"hook.py": 0, "controller.yaml": 1} {
		printed.Reset()
		if s.save(t.Context(), []string{file}); strings.Count(printed.String(), "    applied\n") != want {
			t.Errorf("%s: got %q, want %d applied", file, printed.String(), want)
		}
	}
}

// The error of the server refers to a condition, which the author reads here.
func TestAControllerThatDoesNotRunSaysWhy(t *testing.T) {
	kubectl := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\nprintf 'the cluster does not serve deployment'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Decode([]byte("{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}"))
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{cluster: cluster{Kubectl: kubectl}}
	for given, want := range map[string]string{
		"the controller does not run here at present; its condition Ready says why": "cc/website does not run: the cluster does not serve deployment",
		"connection refused": "connection refused",
	} {
		if got := s.whyNotRunning(t.Context(), objects[0], errors.New(given)); got.Error() != want {
			t.Errorf("got %v, want %q", got, want)
		}
	}
	if err := s.whyNotRunning(t.Context(), objects[0], nil); err != nil {
		t.Error(err)
	}
}

func TestWarningsSinceASaveArePrintedOnce(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	event := func(at time.Time, reason, message string) corev1.Event {
		return corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "Website", Name: "shop"}, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(at),
		}
	}
	now := since.Truncate(time.Second)
	got := warningLines([]corev1.Event{
		event(now.Add(-time.Second), "ChildWarning", "before"), event(now, "ChildWarning", `unknown field "spec.replica"`),
		event(now, "ChildWarning", `unknown field "spec.replica"`), event(now, "SyncError", "status 500"), event(now, "StatusIncomplete", "ready is dropped"),
	}, since)
	want := []string{`Warning ChildWarning: unknown field "spec.replica", on Website/shop`, "Warning StatusIncomplete: ready is dropped, on Website/shop"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheComponentThatIsNotReadyIsNamed(t *testing.T) {
	for log, want := range map[string]string{
		"--- last lines of the control plane ---\nbuilding\ncontrolplane: waiting for kube-apiserver to be ready: refused\nmore": ": waiting for kube-apiserver to be ready: refused",
		"--- last lines of the control plane ---\nkilled\n":                                                                      "",
	} {
		if got := reason(log); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A sync that fails is retried ten times within some seconds.
func TestATracebackIsPrintedOnce(t *testing.T) {
	one := "Traceback (most recent call last):\n  File \"hook.py\", line 3, in sync\n    1 / 0\nZeroDivisionError: division by zero\n"
	other := strings.ReplaceAll(one, "line 3", "line 4")
	var printed bytes.Buffer
	p := &prefixed{prefix: "hook: ", out: &printed}
	for _, text := range []string{"listening\n", one, one, other, one[:40], one[40:], "done\n"} {
		if _, err := p.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	p.restart()
	if _, err := p.Write([]byte(one)); err != nil {
		t.Fatal(err)
	}
	prefix := func(text string) string {
		return "hook: " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\nhook: ") + "\n"
	}
	want := "hook: listening\n" + prefix(one) + prefix(other) + "hook: done\nhook: ZeroDivisionError: division by zero: the same 2 times\n" + prefix(one)
	if got := printed.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
