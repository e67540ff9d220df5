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
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/gauge"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// Subject is a program that is measured. One goroutine uses it.
type Subject interface {
	// Name is what results call it.
	Name() string
	// Conditions reports whether controllers have a condition Ready.
	Conditions() bool
	// Install prepares the cluster, before the first start.
	Install(ctx context.Context) error
	// Start starts the program, which must not run, and waits until it serves.
	Start(ctx context.Context) error
	// Stop ends the program if it runs, and waits for its end.
	Stop()
	// PID is the number of the process that was started last.
	PID() int
	// Get reads a path that the program serves over HTTP, such as /metrics.
	Get(ctx context.Context, path string) ([]byte, error)
}

// Cluster is where a subject runs.
type Cluster struct {
	// Config and Kubeconfig are those of an administrator, Kubectl is the program.
	Config              *rest.Config
	Kubeconfig, Kubectl string
	// Folder is where the subject may keep its files.
	Folder string
}

const (
	// patience is how long a program may take to start, grace to end.
	patience = time.Minute
	grace    = 30 * time.Second
)

// program is what all subjects have in common.
type program struct {
	name   string
	binary string
	// base is the address of what is served over HTTP.
	base    string
	client  *http.Client
	log     string
	command *exec.Cmd
	running *process.Process
}

// Name implements Subject.
func (p *program) Name() string { return p.name }

// PID implements Subject.
func (p *program) PID() int { return p.command.Process.Pid }

// Get implements Subject.
func (p *program) Get(ctx context.Context, path string) ([]byte, error) {
	return gauge.Fetch(ctx, p.client, p.base+path)
}

// Stop implements Subject.
func (p *program) Stop() {
	if p.running == nil {
		return
	}
	// How it ends is not what is measured.
	_ = p.running.Stop(grace)
	p.running = nil
}

// launch starts the program, and waits until serves returns nil, which is tried again after the interval.
func (p *program) launch(ctx context.Context, arguments []string, interval time.Duration, serves func(context.Context) error) error {
	p.command = process.Command(ctx, p.binary, arguments...)
	running, err := process.Start(p.command, process.Options{Name: filepath.Base(p.binary), Log: p.log})
	if err != nil {
		return err
	}
	p.running = running
	for started := time.Now(); ; {
		err := serves(ctx)
		if err == nil {
			return nil
		}
		if time.Since(started) > patience {
			return fmt.Errorf("waiting for %s: %w\n%s", p.name, err, running.Tail(20))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", p.name, context.Cause(ctx))
		case <-running.Ended():
			return fmt.Errorf("waiting for %s: %w\n%s", p.name, running.Err(), running.Tail(20))
		case <-time.After(interval):
		}
	}
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	return strconv.Atoi(port)
}

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

// server is our server.
type server struct {
	program
	cluster   Cluster
	port      int
	arguments []string
}

// NewServer returns the server of a binary, not started. It has default flags but for the arguments.
func NewServer(ctx context.Context, binary string, arguments []string, c Cluster) (Subject, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertData: c.Config.CertData, KeyData: c.Config.KeyData,
	}})
	if err != nil {
		return nil, fmt.Errorf("preparing to ask the server: %w", err)
	}
	return &server{cluster: c, port: port, arguments: arguments, program: program{
		name: report.Server, binary: binary, base: fmt.Sprintf("https://127.0.0.1:%d", port),
		client: &http.Client{Transport: transport, Timeout: time.Minute}, log: filepath.Join(c.Folder, "server.log"),
	}}, nil
}

// Conditions implements Subject.
func (*server) Conditions() bool { return true }

// Install implements Subject.
func (*server) Install(context.Context) error { return nil }

// Start implements Subject. The server is registered with the cluster each time.
func (s *server) Start(ctx context.Context) error {
	shared := []string{"--kubeconfig", s.cluster.Kubeconfig, "--data-dir", filepath.Join(s.cluster.Folder, "data")}
	port := strconv.Itoa(s.port)
	register := append([]string{"register", "--host", "localhost", "--port", port}, shared...)
	arguments := slices.Concat([]string{"--bind-address", "127.0.0.1", "--secure-port", port}, shared, s.arguments)
	return s.launch(ctx, arguments, 500*time.Millisecond, func(ctx context.Context) error {
		_, err := process.Output(ctx, s.binary, register...)
		return err
	})
}
