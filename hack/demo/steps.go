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
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const (
	serverBinary       = "bin/metacontroller-apiserver"
	controlPlaneBinary = "bin/controlplane"

	example = "artifacts/examples/hello-world"
	// clusterHookURL is where the example's controller expects its hook inside a cluster.
	clusterHookURL = "http://hello-controller.hello/sync"
	// hookLine is how the hook begins the line that tells its port.
	hookLine = "hook listens on port "

	namespace = "hello"
	object    = "your-name"
	greeting  = `["echo","Hello, Your Name!"]`
)

// A step is one line of what the visitor reads, and what is done then.
type step struct {
	title string
	do    func(context.Context) error
}

func (s *stage) steps() []step {
	return []step{
		{"Starting the control plane: etcd, kube-apiserver, controllers, scheduler and one simulated node", s.startControlPlane},
		{"Starting the server on port " + strconv.Itoa(s.serverPort), s.startServer},
		{"Registering it as an aggregated API server", s.register},
		{"Starting the hook: python3 " + example + "/sync.py", s.startHook},
		{"Applying " + example, s.apply},
		{"Waiting for the Pod", s.awaitPod},
		{"Done. This is what happened:", s.showResult},
	}
}

func (s *stage) startControlPlane(ctx context.Context) error {
	controlPlane, err := s.processes.start("control plane", process.Command(ctx, controlPlaneBinary, "start", "--module", "test/controlplane"),
		func(line string) bool { return strings.HasPrefix(line, "{") })
	if err != nil {
		return err
	}
	description, err := controlPlane.Line(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(description), &s.cluster); err != nil {
		return fmt.Errorf("reading the control plane's description of itself: %w", err)
	}
	return nil
}

func (s *stage) startServer(ctx context.Context) error {
	_, err := s.processes.start("server", process.Command(ctx, serverBinary,
		"--kubeconfig", s.cluster.Kubeconfig,
		"--data-dir", s.dataDir(),
		"--bind-address", "127.0.0.1",
		"--secure-port", strconv.Itoa(s.serverPort)), nil)
	return err
}

// register blocks until the kube-apiserver has found the server available.
func (s *stage) register(ctx context.Context) error {
	_, err := process.Output(ctx, serverBinary, "register",
		"--kubeconfig", s.cluster.Kubeconfig,
		"--data-dir", s.dataDir(),
		"--host", "localhost",
		"--port", strconv.Itoa(s.serverPort))
	return err
}

func (s *stage) startHook(ctx context.Context) error {
	cmd := process.Command(ctx, "python3", filepath.Join(example, "sync.py"), "0")
	cmd.Env = append(os.Environ(), "HOST=127.0.0.1")
	hook, err := s.processes.start("hook", cmd, func(line string) bool { return strings.HasPrefix(line, hookLine) })
	if err != nil {
		return err
	}
	announced, err := hook.Line(ctx)
	if err != nil {
		return err
	}
	s.hookURL = "http://localhost:" + strings.TrimPrefix(announced, hookLine) + "/sync"
	return nil
}

// apply creates the example's objects as its README does, with the hook's address replaced: the hook is a process of
// this machine here, not a Service of the cluster.
func (s *stage) apply(ctx context.Context) error {
	manifest, err := os.ReadFile(filepath.Join(example, "controller.yaml"))
	if err != nil {
		return fmt.Errorf("reading the example's controller: %w", err)
	}
	local := filepath.Join(s.dir, "controller.yaml")
	if err := os.WriteFile(local, []byte(strings.Replace(string(manifest), clusterHookURL, s.hookURL, 1)), 0o600); err != nil {
		return fmt.Errorf("writing the controller with the local hook's address: %w", err)
	}
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		{"apply", "-f", filepath.Join(example, "crd.yaml")},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/helloworlds.example.com"},
		{"apply", "-f", local},
		{"-n", namespace, "apply", "-f", filepath.Join(example, "hello.yaml")},
	} {
		printed, err := s.kubectl(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Fprint(s.out, indent(printed))
	}
	return nil
}

// awaitPod waits until the Pod has run to its end. When it does not, the controller's own view is part of the error.
func (s *stage) awaitPod(ctx context.Context) error {
	for _, condition := range []string{"create", "jsonpath={.status.phase}=Succeeded"} {
		_, err := s.kubectl(ctx, "-n", namespace, "wait", "--for="+condition, "--timeout=90s", "pod/"+object)
		if err == nil {
			continue
		}
		view, viewErr := s.kubectl(ctx, "get", "compositecontroller,event", "--all-namespaces", "-o", "wide")
		if viewErr != nil {
			view = viewErr.Error()
		}
		return fmt.Errorf("%w\n%s", err, view)
	}
	return nil
}

func (s *stage) kubectl(ctx context.Context, args ...string) (string, error) {
	return process.Output(ctx, s.cluster.Kubectl, append([]string{"--kubeconfig", s.cluster.Kubeconfig}, args...)...)
}

func (s *stage) dataDir() string {
	return filepath.Join(s.dir, "data")
}
