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
	"fmt"
	"path/filepath"
	"strings"
)

// showResult prints the objects, and checks that the Pod's command is the greeting of the example.
func (s *stage) showResult(ctx context.Context) error {
	for _, args := range [][]string{
		{"get", "compositecontrollers"},
		{"-n", namespace, "get", "helloworlds"},
		{"-n", namespace, "get", "pods"},
	} {
		printed, err := s.kubectl(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "\n    $ kubectl %s\n%s", strings.Join(args, " "), indent(printed))
	}

	command, err := s.kubectl(ctx, "-n", namespace, "get", "pod", object, "-o", "jsonpath={.spec.containers[0].command}")
	if err != nil {
		return err
	}
	if command != greeting {
		return fmt.Errorf("the Pod %s has the command %s, not %s", object, command, greeting)
	}
	fmt.Fprintf(s.out, `
The HelloWorld %[1]q was created. The server called the hook, the hook asked for one Pod, and the server created it:

    Pod %[1]s: echo "Hello, Your Name!"

The node is simulated: the Pod was scheduled, ran and completed, but no container was started, so it has no logs.

`, object)
	return nil
}

// showNext prints what a visitor may try in another terminal.
func (s *stage) showNext() {
	fmt.Fprintf(s.out, `To look around, open another terminal and run

    export KUBECONFIG=%[1]s
    export PATH=%[2]s:$PATH

    kubectl get compositecontroller hello-controller -o yaml
    kubectl explain compositecontroller.spec.hooks.sync.webhook
    kubectl -n %[3]s patch helloworld %[4]s --type=merge -p '{"spec":{"who":"My Name"}}'
    kubectl -n %[3]s get pod %[4]s -o jsonpath='{.metadata.uid}{" "}{.spec.containers[0].command}{"\n"}'
    kubectl -n %[3]s delete helloworld %[4]s && kubectl -n %[3]s get pods --watch

The logs are in %[5]s. Ctrl-C ends everything and removes every file.
`, s.cluster.Kubeconfig, filepath.Dir(s.cluster.Kubectl), namespace, object, s.dir)
}

// indent puts four spaces before each line.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}
