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
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/barewrites"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/gauge"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// bench is everything that a run has started.
type bench struct {
	folder   string
	config   *rest.Config
	client   *barewrites.Client
	cache    *cache.Cache
	stop     context.CancelFunc
	kubectl  string
	kubeFile string
	port     int
	hookURL  string
	process  *exec.Cmd
	started  []*exec.Cmd
	held     []io.Closer
	own      *http.Client
	cluster  *http.Client
	tally    gauge.Tally
	options
	serial int
	// knownToCollector says that collected has returned.
	knownToCollector bool
}

// options are what a run is told.
type options struct {
	// server is the server's binary, root the folder of the module.
	server, root string
	// profile is a folder for profiles, empty for none.
	profile string
	plan    plan
	// keep is told of each result.
	keep func(report.Result) error
}

func newBench(ctx context.Context, o options) (*bench, error) {
	folder, err := os.MkdirTemp("", "metacontroller-bench-")
	if err != nil {
		return nil, fmt.Errorf("creating a folder: %w", err)
	}
	b := &bench{folder: folder, options: o}
	if err := b.start(ctx); err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

func (b *bench) start(ctx context.Context) error {
	var info struct {
		Kubeconfig string `json:"kubeconfig"`
		Kubectl    string `json:"kubectl"`
	}
	line, err := b.launch(exec.CommandContext(ctx, "go", "run", ".", "start", "--with-stdin"), filepath.Join(b.root, "test", "controlplane"), true)
	if err != nil {
		return fmt.Errorf("starting the control plane: %w", err)
	}
	if err := json.Unmarshal([]byte(line), &info); err != nil {
		return fmt.Errorf("reading what the control plane says: %w", err)
	}
	b.kubeFile, b.kubectl = info.Kubeconfig, info.Kubectl
	if b.config, err = clientcmd.BuildConfigFromFlags("", info.Kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	b.config.QPS = -1
	b.config.Wrap(b.tally.Wrap)
	if b.cluster, err = rest.HTTPClientFor(b.config); err != nil {
		return fmt.Errorf("preparing to ask the API server: %w", err)
	}
	if b.client, err = barewrites.New(b.config); err != nil {
		return err
	}
	if b.cache, err = cache.New(cache.Options{Config: b.config}); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	b.stop = stop
	go b.cache.Run(watching)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	address, err := b.launch(exec.CommandContext(ctx, self, "hook"), "", false)
	if err != nil {
		return fmt.Errorf("starting the hook: %w", err)
	}
	b.hookURL = "http://" + strings.TrimSpace(address)
	if b.port, err = freePort(ctx); err != nil {
		return err
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertData: b.config.CertData, KeyData: b.config.KeyData,
	}})
	if err != nil {
		return fmt.Errorf("preparing to ask the server: %w", err)
	}
	b.own = &http.Client{Transport: transport, Timeout: time.Minute}
	if err := b.startServer(ctx); err != nil {
		return err
	}
	return b.prepare(ctx)
}

// launch starts a program, waits for the first line that it prints, and leaves it running.
func (b *bench) launch(command *exec.Cmd, folder string, hold bool) (string, error) {
	command.Dir = folder
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if hold {
		stdin, err := command.StdinPipe()
		if err != nil {
			return "", err
		}
		b.held = append(b.held, stdin)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	b.started = append(b.started, command)
	return bufio.NewReader(stdout).ReadString('\n')
}

// startServer starts the server and waits until its API is registered.
func (b *bench) startServer(ctx context.Context) error {
	log, err := os.Create(filepath.Join(b.folder, fmt.Sprintf("server-%d.log", time.Now().UnixNano())))
	if err != nil {
		return fmt.Errorf("creating the server's log: %w", err)
	}
	data := filepath.Join(b.folder, "data")
	b.process = exec.CommandContext(ctx, b.options.server, "--kubeconfig", b.kubeFile, "--data-dir", data, "--bind-address", "127.0.0.1",
		"--secure-port", strconv.Itoa(b.port))
	b.process.Stdout, b.process.Stderr = log, log
	b.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.process.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	register := exec.CommandContext(ctx, b.options.server, "register", "--kubeconfig", b.kubeFile, "--data-dir", data,
		"--host", "localhost", "--port", strconv.Itoa(b.port))
	for attempt := 0; ; attempt++ {
		output, err := register.CombinedOutput()
		if err == nil {
			return nil
		}
		if attempt == 60 {
			return fmt.Errorf("registering the server: %w\n%s", err, output)
		}
		register = exec.CommandContext(ctx, b.options.server, register.Args[1:]...)
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

func (b *bench) stopServer() {
	_ = b.process.Process.Signal(syscall.SIGTERM)
	_ = b.process.Wait()
}

// prepare creates the kinds and the controller of the sized workloads.
func (b *bench) prepare(ctx context.Context) error {
	if err := b.kubectlApply(ctx, definition); err != nil {
		return err
	}
	_, err := b.controller(ctx, composite{name: "bench", hooks: map[string]string{hookSync: hookserver.PathSync}, method: inPlace})
	return err
}

func (b *bench) end() {
	if b.process != nil && b.process.Process != nil {
		b.stopServer()
	}
	if b.stop != nil {
		b.stop()
	}
	for _, h := range b.held {
		_ = h.Close()
	}
	for _, v := range slices.Backward(b.started) {
		_ = syscall.Kill(-v.Process.Pid, syscall.SIGTERM)
		_ = v.Wait()
	}
	_ = os.RemoveAll(b.folder)
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

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
