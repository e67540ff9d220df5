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

// Package kubectl uses the API as a person does: every verb of kubectl on the kinds of the group, through the aggregator,
// and what kubectl prints when a manifest is wrong. It holds tests only.
package kubectl

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// TestKubectl has one server for all.
func TestKubectl(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	for _, each := range []struct {
		name string
		run  func(*testing.T, *cluster.Cluster)
	}{
		{"Verbs", verbs},
		{"ANamespaceWithRevisionsIsDeletable", aNamespaceWithRevisionsIsDeletable},
	} {
		t.Run(each.name, func(t *testing.T) { each.run(t, c) })
	}
}

// verbs is one session at a terminal.
func verbs(t *testing.T, c *cluster.Cluster) {
	example := filepath.Join(cluster.Root(), "artifacts", "examples", "hello-world", "controller.yaml")

	events := watch(t, c)
	expect(t, c.Kubectl(t, "apply", "-f", example), "compositecontroller.metacontroller.k8s.io/hello-controller created")
	expect(t, c.Kubectl(t, "apply", "-f", example), "unchanged")
	events("ADDED")

	t.Run("get prints a table", func(t *testing.T) {
		for _, name := range []string{"compositecontrollers", "compositecontroller", "cc", "cctl", "metacontroller"} {
			expect(t, c.Kubectl(t, "get", name), "NAME", "PARENT", "CHILDREN", "READY", "REASON", "SYNCED", "FAILING", "AGE", "hello-controller", "helloworlds.example.com")
		}
		expect(t, c.Kubectl(t, "get", "cc", "-o", "wide"), "HOOKS", "SYNCS", "sync", "ADDRESS", "STRATEGY", "LAST ERROR")
		expect(t, c.Kubectl(t, "get", "cc", "--field-selector", "spec.parentResource.resource=helloworlds"), "hello-controller")
		if output := c.Kubectl(t, "get", "cc", "--field-selector", "spec.parentResource.resource=pods", "-o", "name"); output != "" {
			t.Errorf("a field selector for another parent selects:\n%s", output)
		}
		expect(t, c.Kubectl(t, "get", "cc", "--sort-by=.metadata.name"), "hello-controller", "<unknown>")
		expect(t, c.Kubectl(t, "get", "cc", "hello-controller", "-o", "yaml"), "generateSelector: true", "method: Recreate")
	})
	t.Run("decorators are selected by their targets", func(t *testing.T) {
		c.KubectlInput(t, twoTargets, "apply", "-f", "-")
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
			defer cancel()
			if output, err := c.TryKubectl(ctx, "", "delete", "dec", "two-targets"); err != nil {
				t.Errorf("deleting the decorator: %v\n%s", err, output)
			}
		})
		for selector, selected := range map[string]bool{
			"spec.resources.resource=pods": true, "spec.resources.resource=deployments": true, "spec.resources.resource=services": false,
			"spec.resources.resource!=services": true, "spec.resources.resource!=pods": false, "spec.resources.apiVersion=apps/v1": true,
			"spec.resources.resource=pods,spec.resources.resource=deployments": true,
			"spec.resources.resource=pods,spec.resources.apiVersion=v2":        false,
		} {
			if output := c.Kubectl(t, "get", "dec", "--field-selector", selector, "-o", "name"); (output != "") != selected {
				t.Errorf("%s selects %q", selector, output)
			}
		}
		output, err := c.TryKubectl(t.Context(), "", "get", "dec", "--field-selector", "spec.parentResource.resource=pods")
		if err == nil {
			t.Error("a field that decorators do not have can be selected by")
		}
		expect(t, output, "spec.resources.resource")
	})
	t.Run("explain documents fields", func(t *testing.T) {
		// The kube-apiserver fetches the schema of a new group some seconds after it found the group available.
		cluster.Eventually(t, limit, "kubectl explain to know the group", func(ctx context.Context) (bool, string) {
			output, err := c.TryKubectl(ctx, "", "explain", "cc")
			return err == nil, output
		})
		expect(t, c.Kubectl(t, "explain", "cc.spec.hooks.sync.webhook"), "FIELDS:", "url\t<string>", "timeout", "default")
		expect(t, c.Kubectl(t, "explain", "dec.spec.resources"), "FIELDS:", "apiVersion\t<string> -required-")
		expect(t, c.Kubectl(t, "explain", "controllerrevision.children", "--api-version=metacontroller.k8s.io/v1alpha1"), "FIELDS:")
	})
	t.Run("api-resources lists the kinds", func(t *testing.T) {
		expect(t, c.Kubectl(t, "api-resources", "--api-group=metacontroller.k8s.io"),
			"compositecontrollers", "cc,cctl", "decoratorcontrollers", "dc,dec,decorators", "controllerrevisions")
	})
	t.Run("server-side apply owns fields", func(t *testing.T) {
		manifest := `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController",
			"metadata":{"name":"hello-controller"},"spec":{"resyncPeriodSeconds":%d}}`
		c.KubectlInput(t, fmt.Sprintf(manifest, 60), "apply", "--server-side", "--field-manager=one", "-f", "-")
		output, err := c.TryKubectl(t.Context(), fmt.Sprintf(manifest, 61), "apply", "--server-side", "--field-manager=two", "-f", "-")
		if err == nil {
			t.Error("a second manager changed a field of the first without a conflict")
		}
		expect(t, output, `conflict with "one"`, ".spec.resyncPeriodSeconds")
		if got := field(t, c, "{.spec.resyncPeriodSeconds}"); got != "60" {
			t.Errorf("resyncPeriodSeconds is %s, want that of the first manager", got)
		}
	})
	t.Run("patch and edit", func(t *testing.T) {
		c.Kubectl(t, "patch", "cc", "hello-controller", "--type=merge", "-p", `{"spec":{"resyncPeriodSeconds":70}}`)
		c.Kubectl(t, "patch", "cc", "hello-controller", "--type=json", "-p",
			`[{"op":"test","path":"/spec/resyncPeriodSeconds","value":70},{"op":"replace","path":"/spec/resyncPeriodSeconds","value":80}]`)
		editor := filepath.Join(t.TempDir(), "editor")
		if err := os.WriteFile(editor, []byte("#!/bin/sh\nexec sed -i 's/resyncPeriodSeconds: 80/resyncPeriodSeconds: 90/' \"$1\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBE_EDITOR", editor)
		expect(t, c.Kubectl(t, "edit", "cc", "hello-controller"), "edited")
		if got := field(t, c, "{.spec.resyncPeriodSeconds}"); got != "90" {
			t.Errorf("resyncPeriodSeconds is %s after the edit, want 90", got)
		}
	})
	t.Run("a watch prints each change as a row", func(t *testing.T) {
		command := exec.CommandContext(t.Context(), c.KubectlPath, "--kubeconfig", c.Kubeconfig, "get", "cc", "--watch")
		stdout, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = command.Wait() }) // The test's context has ended, which killed it.
		rows := make(chan string)
		go func() {
			defer close(rows)
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				select {
				case rows <- lines.Text():
				case <-t.Context().Done():
					return
				}
			}
		}()
		next := func() []string {
			t.Helper()
			select {
			case row, open := <-rows:
				if !open {
					t.Fatal("the watch ended")
				}
				return strings.Fields(row)
			case <-time.After(limit):
				t.Fatalf("the watch showed no row within %v", limit)
			}
			return nil
		}
		headings := next()
		expect(t, strings.Join(headings, " "), "NAME PARENT CHILDREN READY REASON SYNCED FAILING AGE")
		for n := range 3 { // Each is a change at least, after the row of the object as it was.
			c.Kubectl(t, "patch", "cc", "hello-controller", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"workers":%d}}`, n+1))
			if row := next(); len(row) != len(headings) || row[0] != "hello-controller" {
				t.Errorf("the row %v has not the cells of %v", row, headings)
			}
		}
	})
	t.Run("status is not written through the object", func(t *testing.T) {
		before := field(t, c, "{.status.conditions}")
		c.Kubectl(t, "patch", "cc", "hello-controller", "--type=merge", "-p", `{"status":{"observedGeneration":999}}`)
		if got := field(t, c, "{.status.observedGeneration}"); got == "999" {
			t.Errorf("a patch of the object wrote its status, which was %s", before)
		}
	})
	events("MODIFIED")
	expect(t, c.Kubectl(t, "delete", "cc", "hello-controller"), "deleted")
	events("DELETED")
}

// twoTargets is a decorator of two kinds, which does nothing.
const twoTargets = `
apiVersion: metacontroller.k8s.io/v1alpha1
kind: DecoratorController
metadata: {name: two-targets}
spec:
  paused: true
  resources:
  - {apiVersion: v1, resource: pods}
  - {apiVersion: apps/v1, resource: deployments}
  hooks: {sync: {webhook: {url: "http://127.0.0.1:1/sync"}}}
`

// watch runs kubectl get --watch, and returns a function that waits for an event of a type.
func watch(t *testing.T, c *cluster.Cluster) func(event string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), c.KubectlPath, "--kubeconfig", c.Kubeconfig,
		"get", "cc", "--watch", "--output-watch-events", "-o", "json")
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	types := make(chan string, 1000)
	go func() {
		defer close(types)
		decoder := json.NewDecoder(bufio.NewReader(stdout))
		for {
			var event struct {
				Type string `json:"type"`
			}
			if decoder.Decode(&event) != nil {
				return
			}
			types <- event.Type
		}
	}()
	t.Cleanup(func() {
		// The test's context has ended, which killed it.
		_ = command.Wait()
	})
	return func(wanted string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		for {
			select {
			case got, open := <-types:
				if !open {
					t.Fatalf("the watch ended before it showed %s", wanted)
				}
				if got == wanted {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the watch did not show %s", wanted)
			}
		}
	}
}

func field(t *testing.T, c *cluster.Cluster, path string) string {
	t.Helper()
	return c.Kubectl(t, "get", "cc", "hello-controller", "-o", "jsonpath="+path)
}

// expect fails the test for each text that the output does not hold.
func expect(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("kubectl printed\n%s\nwhich does not hold %q", output, text)
		}
	}
}

// aNamespaceWithRevisionsIsDeletable guards docs/design/0002-json-only.md: the namespace controller asks for protobuf
// first when it deletes what a namespace holds, and must not be promised what the server cannot write.
func aNamespaceWithRevisionsIsDeletable(t *testing.T, c *cluster.Cluster) {
	c.Kubectl(t, "create", "namespace", "with-revisions")
	for _, name := range []string{"one", "two"} {
		c.KubectlInput(t, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"`+name+`"},
			"parentPatch":{"spec":{"who":"`+name+`"}},
			"children":[{"apiGroup":"","kind":"Pod","names":["pod-of-`+name+`"]}]}`,
			"-n", "with-revisions", "create", "-f", "-")
	}
	revisions := "controllerrevisions.metacontroller.k8s.io"
	expect(t, c.Kubectl(t, "-n", "with-revisions", "get", revisions), "one", "two")
	expect(t, c.Kubectl(t, "-n", "with-revisions", "get", revisions, "one", "-o", "jsonpath={.parentPatch.spec.who}"), "one")

	c.Kubectl(t, "delete", "namespace", "with-revisions", "--wait=false")

	// The controller of namespaces looks again after pauses that grow when something was left.
	cluster.Eventually(t, 3*limit, "the namespace to be gone", func(ctx context.Context) (bool, string) {
		output, err := c.TryKubectl(ctx, "", "get", "namespace", "with-revisions", "-o", "yaml")
		return err != nil && strings.Contains(output, "(NotFound)"), output
	})
}
