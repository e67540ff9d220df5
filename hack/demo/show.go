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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// syncedTimeout is how long it is waited until the parents are synced.
const syncedTimeout = time.Minute

// await waits until every parent is synced, and for what the project names. An author's own hook may fail: he stays, and sees it.
func (s *stage) await(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, syncedTimeout)
	defer cancel()
	for _, controller := range s.appliedControllers() {
		if err := process.Poll(limited, func(ctx context.Context) (bool, error) { return s.takenUp(ctx, controller) }); err != nil && s.options.once {
			return fmt.Errorf("%s is not ready: %w", manifests.Argument(controller), err)
		}
	}
	if s.outcome = s.settle(limited, time.Time{}); len(s.outcome.failing) > 0 && s.options.once {
		return hookError{errors.New(s.outcome.String())}
	}
	for _, command := range s.project.await {
		if _, err := s.kubectl(ctx, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// plugin runs the plugin of kubectl.
func (s *stage) plugin(ctx context.Context, args ...string) (string, error) {
	return process.Output(ctx, s.program("kubectl-metacontroller"), append([]string{"--kubeconfig", s.cluster.Kubeconfig}, args...)...)
}

// showResult prints how the controllers and their parents are doing, and the objects of the project.
func (s *stage) showResult(ctx context.Context) error {
	headline := "Done"
	if len(s.outcome.failing) > 0 {
		headline = s.outcome.String()
	}
	fmt.Fprintf(s.out, "==> %s. This is what there is:\n", strings.TrimRight(headline, "."))
	for _, controller := range s.appliedControllers() {
		for _, args := range [][]string{{"status", manifests.Argument(controller)}, {"parents", manifests.Argument(controller), "--all"}} {
			printed, err := s.plugin(ctx, args...)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.out, "\n    $ kubectl metacontroller %s\n%s", strings.Join(args, " "), indent(printed))
		}
	}
	for _, command := range s.project.show {
		printed, err := s.kubectl(ctx, strings.Fields(command)...)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "\n    $ kubectl %s\n%s", command, indent(strings.TrimRight(printed, "\n")+"\n"))
	}
	fmt.Fprint(s.out, "\nThe node is simulated: Pods are scheduled and run, but no container is started, so there are no logs of them.\n\n")
	return nil
}

// showNext prints what a visitor may try in another terminal.
func (s *stage) showNext() error {
	root, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	fmt.Fprintf(s.out, `To look around, open another terminal and run

    export KUBECONFIG=%s
    export KUBECACHEDIR=%s
    export PATH=%s:%s:$PATH

`, quoted(s.cluster.Kubeconfig), quoted(s.kubectlCache()), quoted(s.programs), quoted(filepath.Dir(s.cluster.Kubectl)))
	commands, err := s.suggestions()
	if err != nil {
		return err
	}
	for _, command := range commands {
		fmt.Fprintln(s.out, "   ", command)
	}
	if _, running := s.cluster.Processes["kube-controller-manager"]; !running && s.options.kubeconfig == "" {
		fmt.Fprint(s.out, `
kube-controller-manager is still being built, which takes about a minute, once. Until it runs, Deployments get no Pods, and
children stay when their parent is deleted.
`)
	}
	edited, done := "the manifests", "applied"
	if hooks := s.project.hooks(); hooks != "" {
		edited, done = hooks+", or the manifests", "restarted or applied"
	}
	fmt.Fprintf(s.out, `
Change %[1]s. With every file that you save, what has changed is %[2]s, and every parent is synced. A line here
says how that went.
%[3]s
The logs are in %[4]s. Ctrl-C ends everything and removes every file.
`, edited, done, s.invitation(root), s.dir)
	return nil
}

// invitation tells a visitor how to write a controller, unless this is one that he has written.
func (s *stage) invitation(root string) string {
	if len(s.options.controller) > 0 {
		return ""
	}
	return fmt.Sprintf(`
Write your own: in a folder of your choice,

    kubectl metacontroller init website --parent Website.example.com --child deployments,services
    make -C %s run HOOK="$PWD/website/hook.py" CONTROLLER="$PWD/website"
`, quoted(root))
}

// suggestions are the commands of the example's README, or those with which an author sees what his hook does.
func (s *stage) suggestions() ([]string, error) {
	var commands []string
	if s.project.readme != "" {
		readme, err := os.ReadFile(s.project.readme)
		if err != nil {
			return nil, fmt.Errorf("reading what may be tried: %w", err)
		}
		commands = consoleCommands(string(readme))
	} else {
		commands = s.tree()
	}
	// What is deleted has no syncs.
	place := slices.IndexFunc(commands, deletes)
	if place < 0 {
		place = len(commands)
	}
	for _, controller := range s.set.Load().Controllers {
		commands = slices.Insert(commands, place, "kubectl metacontroller syncs "+manifests.Argument(controller)+" --all")
		place++
	}
	if place < len(commands) {
		commands[place] += "   # the garbage collector of a new control plane takes up to a minute to delete what it owned"
	}
	return commands, nil
}

// tree is the command that prints a sample with its children, if one is of a kind that an author defines.
func (s *stage) tree() []string {
	set := s.set.Load()
	for _, sample := range set.Samples {
		kind := sample.GroupVersionKind().GroupKind()
		if slices.ContainsFunc(set.Definitions, func(o *unstructured.Unstructured) bool {
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			defined, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			return schema.GroupKind{Group: group, Kind: defined} == kind
		}) {
			command := "kubectl metacontroller tree " + kind.String() + "/" + sample.GetName()
			if namespace := sample.GetNamespace(); namespace != "" {
				command += " -n " + namespace
			}
			return []string{command}
		}
	}
	return nil
}

// deletes tells whether a command deletes objects.
func deletes(command string) bool { return strings.Contains(command, " delete ") }

// consoleCommands returns the commands of a document, those after "$ " in blocks of the language console, with the lines that they go on in.
func consoleCommands(document string) []string {
	var commands []string
	var console, open bool
	for line := range strings.Lines(document) {
		line = strings.TrimRight(line, "\n")
		switch command, ok := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			console, open = line == "```console", false
		case open:
			commands[len(commands)-1] += "\n    " + line
			open = strings.HasSuffix(line, "\\")
		case console && ok:
			commands = append(commands, command)
			open = strings.HasSuffix(command, "\\")
		}
	}
	return commands
}

// quoted returns a path as a shell takes it for one word.
func quoted(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+,:@%=", r)
	}) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// indent puts four spaces before each line.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}
