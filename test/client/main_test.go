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
	"os"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// TestTour runs the program's own function through the aggregator: the kubeconfig is that of the kube-apiserver.
func TestTour(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	clients, err := versioned.NewForConfig(c.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tour(t.Context(), clients.MetacontrollerV1alpha1().CompositeControllers(), &out); err != nil {
		t.Fatalf("%v\nuntil then it printed\n%s", err, out.String())
	}
	want := []string{
		"created client-tour",
		"watch saw it added",
		"list holds it",
		"applied a field, watch saw it modified",
		"applied without it, the field is gone",
		"deleted, watch saw it go",
	}
	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// TestRunNeedsAKubeconfig shows what a user sees who gives none.
func TestRunNeedsAKubeconfig(t *testing.T) {
	err := run(t.Context(), "does-not-exist")
	if err == nil || !strings.Contains(err.Error(), "does-not-exist") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}
