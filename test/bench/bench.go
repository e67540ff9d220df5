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
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"github.com/metacontroller/metacontroller-apiserver/test/bench/subject"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// bench is a control plane and all that was started to measure one subject on it.
type bench struct {
	folder   string
	config   *rest.Config
	client   *barewrites.Client
	cache    *cache.Cache
	stop     context.CancelFunc
	kubectl  string
	kubeFile string
	hookURL  string
	hookPID  int
	subject  subject.Subject
	started  []*exec.Cmd
	held     []io.Closer
	cluster  *http.Client
	tally    gauge.Tally
	options
	serial int
	// last says that nothing is measured any more on the control plane after the present step, so that its objects may stay.
	last bool
	// knownToCollector says that collected has returned.
	knownToCollector bool
}

// options are what a run is told.
type options struct {
	// server is the server's binary, root the folder of the module.
	server, root string
	// serverArguments are flags of the server beside those that it needs.
	serverArguments []string
	// peer is measured in place of the server where it is not nil.
	peer *subject.PeerOptions
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
	program := []string{"go", "run", "."}
	if built := process.Built(); built != "" {
		program = []string{filepath.Join(built, "controlplane")}
	}
	program = append(program, "start", "--with-stdin")
	line, err := b.launch(exec.CommandContext(ctx, program[0], program[1:]...), filepath.Join(b.root, "test", "controlplane"), true)
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
	hook := exec.CommandContext(ctx, self, "hook")
	address, err := b.launch(hook, "", false)
	if err != nil {
		return fmt.Errorf("starting the hook: %w", err)
	}
	b.hookPID = hook.Process.Pid
	b.hookURL = "http://" + strings.TrimSpace(address)
	if err := b.prepare(ctx); err != nil {
		return err
	}
	_, err = b.controller(ctx, composite{name: "bench", hooks: map[string]string{hookSync: hookserver.PathSync}, method: inPlace})
	return err
}

// prepare creates the parents' kind, and starts what is measured.
func (b *bench) prepare(ctx context.Context) error {
	if err := b.kubectlApply(ctx, definition); err != nil {
		return err
	}
	c := subject.Cluster{Config: b.config, Kubeconfig: b.kubeFile, Kubectl: b.kubectl, Folder: b.folder}
	var err error
	if b.peer == nil {
		b.subject, err = subject.NewServer(ctx, b.server, b.serverArguments, c)
	} else {
		b.subject, err = subject.NewPeer(ctx, *b.peer, c)
	}
	if err != nil {
		return err
	}
	if err := b.subject.Install(ctx); err != nil {
		return err
	}
	return b.subject.Start(ctx)
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

func (b *bench) end() {
	if b.subject != nil {
		b.subject.Stop()
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

// lane is one of those that are measured in turns.
type lane struct {
	options
	// start is newBench but for tests.
	start func(context.Context, options) (*bench, error)
	// alone says that there is no other lane, so that the subject need not end with its turn.
	alone bool
	// bench is nil before the first turn, and after a turn that failed.
	bench *bench
}

// open starts what the lane needs, if it has not.
func (l *lane) open(ctx context.Context) error {
	if l.bench != nil {
		return nil
	}
	b, err := l.start(ctx, l.options)
	if err != nil {
		return err
	}
	l.bench = b
	if !l.plan.quick {
		err = b.collected(ctx)
	}
	if !l.alone {
		b.subject.Stop()
	}
	return err
}

// turn measures a step, which may be the last one of the lane. What is not measured does not run meanwhile but for its control plane, which is idle.
func (l *lane) turn(ctx context.Context, s step, last bool) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	l.bench.last = last
	if l.alone {
		return s.run(l.bench, ctx)
	}
	if err := l.bench.subject.Start(ctx); err != nil {
		return err
	}
	defer l.bench.subject.Stop()
	return s.run(l.bench, ctx)
}

func (l *lane) end() {
	if l.bench != nil {
		l.bench.end()
	}
	l.bench = nil
}

// inTurns measures every step so many times in each lane. A peer that fails to do a step is measured with the next one again, on a new
// control plane, and the error tells of it in the end.
func inTurns(ctx context.Context, runs int, steps []step, lanes []*lane) error {
	var failed []error
	err := alternate(runs, steps, len(lanes), func(n int, s step, last bool) error {
		l := lanes[n]
		err := l.turn(ctx, s, last)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("measuring %s: %w", s.name, err)
		if l.peer == nil || ctx.Err() != nil {
			return err
		}
		err = fmt.Errorf("%s: %w", filepath.Base(l.peer.Binary), err)
		fmt.Fprintln(os.Stderr, "bench:", err)
		failed = append(failed, err)
		l.end()
		return nil
	})
	return errors.Join(append(failed, err)...)
}

// alternate calls do for every lane with every step so many times, and says which is the last time. Who is first changes, since a machine
// may get slower or faster meanwhile.
func alternate(runs int, steps []step, lanes int, do func(lane int, s step, last bool) error) error {
	for run := range runs {
		for i, s := range steps {
			for n := range lanes {
				if err := do((run+i+n)%lanes, s, run == runs-1 && i == len(steps)-1); err != nil {
					return err
				}
			}
		}
	}
	return nil
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
