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

package subject

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// PeerOptions say which Metacontroller is measured.
type PeerOptions struct {
	// Binary is the program, Definitions the file of its CustomResourceDefinitions.
	Binary, Definitions string
	// Arguments are flags in addition to those that say where the cluster and the metrics are; none: the defaults.
	Arguments []string
}

// peer is Metacontroller.
type peer struct {
	program
	cluster     Cluster
	definitions string
	arguments   []string
}

// NewPeer returns Metacontroller, not started. The flags that it is given are those of docs/reference/contract.md#s19.1.
func NewPeer(ctx context.Context, o PeerOptions, c Cluster) (Subject, error) {
	metrics, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	probes, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(metrics)
	own := []string{"--kubeconfig", c.Kubeconfig, "--metrics-address", address, "--health-probe-bind-address", "127.0.0.1:" + strconv.Itoa(probes)}
	return &peer{cluster: c, definitions: o.Definitions, arguments: slices.Concat(own, o.Arguments), program: program{
		name: strings.Join(append([]string{filepath.Base(o.Binary)}, o.Arguments...), " "), binary: o.Binary, base: "http://" + address,
		client: &http.Client{Timeout: time.Minute}, log: filepath.Join(c.Folder, "peer.log"),
	}}, nil
}

// Conditions implements Subject.
func (*peer) Conditions() bool { return false }

// Install implements Subject. It applies the CustomResourceDefinitions, and waits until they are served.
func (p *peer) Install(ctx context.Context) error {
	for _, arguments := range [][]string{
		{"apply", "--server-side", "-f", p.definitions},
		{"wait", "--for=condition=Established", "--timeout=60s", "-f", p.definitions},
	} {
		if _, err := process.Output(ctx, p.cluster.Kubectl, append([]string{"--kubeconfig", p.cluster.Kubeconfig}, arguments...)...); err != nil {
			return fmt.Errorf("applying the CustomResourceDefinitions of %s: %w", p.name, err)
		}
	}
	return nil
}

// Start implements Subject. The program serves when its metrics can be read.
func (p *peer) Start(ctx context.Context) error {
	return p.launch(ctx, p.arguments, 50*time.Millisecond, func(ctx context.Context) error {
		_, err := p.Get(ctx, "/metrics")
		return err
	})
}
