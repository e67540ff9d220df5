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

package plane

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/process"
)

const (
	// startAttempts is how often a start is tried when another process took a port in the meantime.
	startAttempts = 5
	// startLimit is for a machine that is busy with other things; usual are some seconds.
	startLimit = 3 * time.Minute
	// stopGrace is short: nothing that the programs hold is kept, so there is no use in waiting for a long farewell.
	stopGrace = 500 * time.Millisecond
)

// Options configure a control plane.
type Options struct {
	// Programs is the folder of the programs.
	Programs string
	// Folder holds everything that the control plane writes.
	Folder *Folder
	// Fsync makes etcd wait for the disk, as a real one does. Default false: tests lose nothing by a power cut.
	Fsync bool
	// Audit makes kube-apiserver write the file audit.log beside the programs' logs, with a line of JSON for each request that writes.
	Audit bool
	// Frugal gives each program but kube-apiserver one processor at a time: they do the same with less work, and later where one does much.
	Frugal bool
}

// Plane is a running control plane. It is for one goroutine.
type Plane struct {
	options   Options
	ports     ports
	files     files
	processes []*process.Process
	died      chan error
}

// Info tells another program how to use the control plane.
type Info struct {
	// Kubeconfig is a file with an administrator's access.
	Kubeconfig string `json:"kubeconfig"`
	// Kubectl is the program of the same version.
	Kubectl string `json:"kubectl"`
	// Dir holds the control plane's files, logs among them.
	Dir string `json:"dir"`
	// Server is the address of kube-apiserver.
	Server string `json:"server"`
	// EtcdServers is the address of the control plane's etcd, which takes no credentials.
	EtcdServers string `json:"etcdServers"`
	// Processes has the process number of each program.
	Processes map[string]int `json:"processes"`
}

// Start starts a control plane and returns when Pods can be created and are scheduled. After an error nothing is left
// running; the folder, logs in it, is left to the caller.
func Start(ctx context.Context, o Options) (*Plane, error) {
	for attempt := 1; ; attempt++ {
		p := &Plane{options: o}
		err := p.start(ctx)
		if err == nil {
			return p, nil
		}
		p.Stop()
		if attempt == startAttempts || !portTaken(err) {
			return nil, err
		}
		if err := o.Folder.clear(); err != nil {
			return nil, err
		}
	}
}

func (p *Plane) start(ctx context.Context) (err error) {
	if p.ports, err = freePorts(ctx); err != nil {
		return err
	}
	if p.files, err = writeFiles(p.options.Folder.Path, p.ports); err != nil {
		return err
	}
	server := []component{p.etcd(), p.apiServer()}
	clients := []component{p.controllerManager(), p.scheduler(), p.kwok()}
	// Room for all, so that nobody who reports an end is kept waiting.
	p.died = make(chan error, len(server)+len(clients))

	if err := p.launch(ctx, server...); err != nil {
		return err
	}
	client, err := newClient(p.files, p.ports)
	if err != nil {
		return err
	}
	if err := p.await(ctx, "kube-apiserver to be ready", client.serverReady); err != nil {
		return err
	}
	// Not earlier: these end when the API server refuses them, which it does until its RBAC rules are there.
	if err := p.launch(ctx, clients...); err != nil {
		return err
	}
	for _, condition := range []struct {
		what string
		ask  func(context.Context) error
	}{
		{"the node to be made", client.createNode},
		{"the node to be ready", client.nodeReady},
		{"kube-controller-manager to be ready", client.controllerManagerReady},
		{"kube-scheduler to be ready", client.schedulerReady},
		{"the default service account", client.serviceAccount},
		{"the settings of aggregated API servers", client.aggregationSettings},
	} {
		if err := p.await(ctx, condition.what, condition.ask); err != nil {
			return err
		}
	}
	return nil
}

// Info returns how to use the control plane.
func (p *Plane) Info() Info {
	info := Info{
		Kubeconfig:  p.files.adminConfig,
		Kubectl:     filepath.Join(p.options.Programs, "kubectl"),
		Dir:         p.options.Folder.Path,
		Server:      p.ports.server(),
		EtcdServers: p.ports.etcdServers(),
		Processes:   make(map[string]int, len(p.processes)),
	}
	for _, running := range p.processes {
		info.Processes[running.Name()] = running.ID()
	}
	return info
}

// Died yields an error when one of the programs has ended without being told to.
func (p *Plane) Died() <-chan error { return p.died }

// Stop ends all programs and returns when they have ended.
func (p *Plane) Stop() {
	process.StopAll(stopGrace, p.processes...)
}

func (p *Plane) launch(ctx context.Context, components ...component) error {
	for _, c := range components {
		program := process.Program{Name: c.name, Path: filepath.Join(p.options.Programs, c.name), Args: c.args}
		if p.options.Frugal && c.name != apiServerName {
			program.Environment = []string{"GOMAXPROCS=1"}
		}
		started, err := process.Start(ctx, p.files.logs, program)
		if err != nil {
			return err
		}
		p.processes = append(p.processes, started)
		// Ends with the program, for which Stop waits.
		go func() { p.died <- started.Err() }()
	}
	return nil
}

// await asks until the answer is nil, a program has died, or startLimit has passed.
func (p *Plane) await(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		last := ask(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case err := <-p.died:
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(ctx.Err(), last))
		}
	}
}
