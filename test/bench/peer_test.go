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
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/barewrites"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/subject"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// standInFlag has this program stand in for Metacontroller.
const standInFlag = "--stand-in"

// peerDefinition is what stands in for Metacontroller's CustomResourceDefinitions.
const peerDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: compositecontrollers.metacontroller.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: metacontroller.k8s.io
  names: {kind: CompositeController, plural: compositecontrollers, singular: compositecontroller}
  scope: Cluster
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestPeer runs two workloads with a program that stands in for Metacontroller.
func TestPeer(t *testing.T) {
	definitions := filepath.Join(t.TempDir(), "definitions.yaml")
	if err := os.WriteFile(definitions, []byte(peerDefinition), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]report.Result{}
	l := &lane{start: newBench, options: options{
		peer: &subject.PeerOptions{Binary: self, Definitions: definitions, Arguments: []string{standInFlag}}, root: cluster.Root(),
		plan: plan{
			sizes: []size{{6, 2}}, workloads: []string{workCreate, workUpdate}, settle: 250 * time.Millisecond, timeout: 2 * time.Minute, quick: true,
		},
		keep: func(r report.Result) error {
			results[r.Workload] = r
			return nil
		},
	}}
	defer l.end()
	if err := inTurns(t.Context(), 1, l.plan.steps(), []*lane{l}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{workCreate, workUpdate} {
		r := results[w]
		expectTimes(t, r)
		if want := filepath.Base(self) + " " + standInFlag; r.Measured != want {
			t.Errorf("%s: measured is %q, want %q", w, r.Measured, want)
		}
		if r.CallsPerParent != 2 || r.StatusWrites() != 6 || r.RSSAfter <= 0 {
			t.Errorf("%s: got %+v, want two calls and one status write for each parent, and the memory of the process", w, r)
		}
		if r.Mallocs != 0 || len(r.OwnRequests) != 0 {
			t.Errorf("%s: got %+v, want nothing of what its metrics do not tell", w, r)
		}
	}
}

// standIn does of CompositeControllers what the test needs: it creates or updates the children that the hook wants, and writes the status.
func standIn(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("stand-in", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "")
	metrics := flags.String("metrics-address", "", "")
	flags.String("health-probe-bind-address", "", "")
	flags.Bool(standInFlag[2:], false, "")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	writes, err := barewrites.New(config)
	if err != nil {
		return err
	}
	informers, err := cache.New(cache.Options{Config: config})
	if err != nil {
		return err
	}
	go informers.Run(ctx)
	parents := make(chan *object.Object, 100)
	informers.Acquire(cache.Query{Resource: parentResource}).Subscribe(func(e cache.Event) {
		if e.New != nil {
			parents <- e.New
		}
	})
	go func() {
		for parent := range parents {
			if err := standInSync(ctx, writes, parent); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	server := &http.Server{Addr: *metrics, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	return server.ListenAndServe()
}

func standInSync(ctx context.Context, writes *barewrites.Client, parent *object.Object) error {
	observedGeneration, _ := parent.Field("status", "observedGeneration")
	controller, _ := parent.Label("bench")
	if controller == "" || string(observedGeneration) == strconv.FormatInt(parent.Generation(), 10) {
		return nil
	}
	stored, err := writes.Get(ctx, client.Target{Resource: compositeResource, Name: controller})
	if err != nil {
		return err
	}
	hook, _ := stored.Field("spec", "hooks", "sync", "webhook", "url")
	var url string
	if err := json.Unmarshal(hook, &url); err != nil {
		return err
	}
	wanted, err := callHook(ctx, url, parent, nil)
	if err != nil {
		return err
	}
	observed := map[string]json.RawMessage{}
	for _, child := range wanted.Children {
		var c struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(child, &c); err != nil {
			return err
		}
		observed[c.Metadata.Name] = child
		_, err := writes.Create(ctx, childTarget(parent.Namespace(), ""), child)
		if apierrors.IsAlreadyExists(err) {
			_, err = writes.Update(ctx, childTarget(parent.Namespace(), c.Metadata.Name), child)
		}
		if err != nil {
			return err
		}
	}
	if wanted, err = callHook(ctx, url, parent, observed); err != nil {
		return err
	}
	wanted.Status["observedGeneration"] = parent.Generation()
	patch, err := json.Marshal(map[string]any{"status": wanted.Status})
	if err != nil {
		return err
	}
	t := target(parent.Namespace(), parent.Name())
	t.Subresource = "status"
	_, err = writes.Patch(ctx, t, types.MergePatchType, patch)
	return err
}

// answer is what the hook wants.
type answer struct {
	Status   map[string]any    `json:"status"`
	Children []json.RawMessage `json:"children"`
}

func callHook(ctx context.Context, url string, parent *object.Object, observed map[string]json.RawMessage) (answer, error) {
	body, err := json.Marshal(map[string]any{"parent": json.RawMessage(parent.JSON()), "children": map[string]any{"ConfigMap.v1": observed}})
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	var a answer
	err = json.Unmarshal(reply, &a)
	return a, err
}
