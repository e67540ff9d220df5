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
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/process"
)

// Options configure a control plane.
type Options struct {
	// Programs is the folder of the programs.
	Programs string
	// Folder holds everything that the control plane writes. It must exist and be empty.
	Folder string
	// Fsync makes etcd wait for the disk, as a real one does. Default false: tests lose nothing by a power cut.
	Fsync bool
}

// Plane is a running control plane.
type Plane struct {
	options Options
	ports   ports
	files   files

	mu        sync.Mutex
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
}

// Start starts a control plane and returns when Pods can be created and are scheduled. On an error nothing is left running.
func Start(ctx context.Context, o Options) (*Plane, error) {
	p := &Plane{options: o, died: make(chan error, 8)}
	if err := p.start(ctx); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context) (err error) {
	if p.ports, err = freePorts(); err != nil {
		return err
	}
	if p.files, err = writeFiles(p.options.Folder, p.ports); err != nil {
		return err
	}
	if err := p.launch(p.etcd(), p.apiServer()); err != nil {
		return err
	}
	client, err := newClient(p.files, p.ports)
	if err != nil {
		return err
	}
	if err := p.await(ctx, "kube-apiserver to be ready", client.ready); err != nil {
		return err
	}
	// These end when the API server refuses them, which it does until its RBAC rules are there.
	if err := p.launch(p.controllerManager(), p.scheduler(), p.kwok()); err != nil {
		return err
	}
	if err := p.await(ctx, "the node to be made", client.createNode); err != nil {
		return err
	}
	if err := p.await(ctx, "the node to be ready", client.nodeReady); err != nil {
		return err
	}
	return p.await(ctx, "the default service account", client.serviceAccount)
}

// Info returns how to use the control plane.
func (p *Plane) Info() Info {
	return Info{
		Kubeconfig:  p.files.adminConfig,
		Kubectl:     filepath.Join(p.options.Programs, "kubectl"),
		Dir:         p.options.Folder,
		Server:      p.ports.server(),
		EtcdServers: p.ports.etcdServers(),
	}
}

// Died yields an error when one of the programs has ended without being told to.
func (p *Plane) Died() <-chan error { return p.died }

// Stop ends all programs, the ones that depend on others first, and removes the folder.
func (p *Plane) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for i := len(p.processes) - 1; i >= 0; i-- {
		// Nothing that they hold is kept, so there is no use in waiting for a long farewell.
		p.processes[i].Stop(ctx, 300*time.Millisecond)
	}
	p.processes = nil
	_ = os.RemoveAll(p.options.Folder)
}

func (p *Plane) launch(components ...component) error {
	for _, c := range components {
		started, err := process.Start(c.name, p.files.logs, filepath.Join(p.options.Programs, c.name), c.args...)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.processes = append(p.processes, started)
		p.mu.Unlock()
		go func() {
			<-started.Ended()
			p.died <- started.Err()
		}()
	}
	return nil
}

// await asks until the answer is nil, a program dies, or a minute has passed.
func (p *Plane) await(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		if last = ask(ctx); last == nil {
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
