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
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const serverProgram = "metacontroller-apiserver"

// A step is one line of what the visitor reads, and what is done then.
type step struct {
	title string
	do    func(context.Context) error
}

func (s *stage) steps() []step {
	var steps []step
	if s.options.kubeconfig == "" {
		steps = []step{
			{"Starting the control plane: etcd, kube-apiserver, controllers, scheduler and one simulated node", s.startControlPlane},
			{"Starting the server on port " + strconv.Itoa(s.serverPort), s.startServer},
			{"Registering it as an aggregated API server", s.register},
		}
	}
	starting := "Starting the hook: " + s.project.hooks()
	if s.project.hooks() == "" {
		starting = "" // Saved files are watched all the same.
	}
	return append(steps,
		step{"Reading " + s.project.title, s.read},
		step{starting, s.startHooks},
		step{"Applying " + s.project.title, s.apply},
		step{"Waiting until the parents are synced", s.await},
		step{"", s.showResult},
	)
}

func (s *stage) startControlPlane(ctx context.Context) error {
	controlPlane, err := s.processes.start("control plane",
		process.Command(ctx, s.program("controlplane"), "start", "--soon", "--module", "test/controlplane", "--dir", filepath.Join(s.dir, "control-plane"), "--keep"),
		func(line string) bool { return strings.HasPrefix(line, "{") })
	if err != nil {
		return err
	}
	description, err := controlPlane.Line(ctx)
	if err != nil {
		return fmt.Errorf("%w%s", err, reason(controlPlane.Tail(reasonLines)))
	}
	if err := json.Unmarshal([]byte(description), &s.cluster); err != nil {
		return fmt.Errorf("reading the control plane's description of itself: %w", err)
	}
	return nil
}

// reasonLines is how many lines the control plane's program may print after the reason: the logs of the component that is not ready.
const reasonLines = 200

// reason returns what the control plane's program says in its log about why it ended, such as which component is not ready.
func reason(log string) string {
	place := strings.Index(log, "\ncontrolplane: ")
	if place < 0 {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(log[place:], "\ncontrolplane: "), "\n")
	return ": " + line
}

func (s *stage) startServer(ctx context.Context) error {
	_, err := s.processes.start("server", process.Command(ctx, s.program(serverProgram),
		"--kubeconfig", s.cluster.Kubeconfig,
		"--data-dir", s.dataDir(),
		"--bind-address", "127.0.0.1",
		"--leader-elect=false", // There is no other one, and on a busy machine it might not renew its Lease in time.
		"--secure-port", strconv.Itoa(s.serverPort)), nil)
	return err
}

// register blocks until the kube-apiserver has found the server available.
func (s *stage) register(ctx context.Context) error {
	_, err := process.Output(ctx, s.program(serverProgram), "register",
		"--kubeconfig", s.cluster.Kubeconfig,
		"--data-dir", s.dataDir(),
		"--host", "localhost",
		"--port", strconv.Itoa(s.serverPort))
	return err
}

// read reads the manifests. The hook is a process of this machine, not a Service of the cluster, so the address of every webhook is
// replaced in what is applied.
func (s *stage) read(ctx context.Context) error {
	set, foreign, err := s.readSet(ctx)
	for _, why := range foreign {
		fmt.Fprintf(s.out, "    %v: it is left out\n", why)
	}
	if err != nil {
		return err
	}
	s.set.Store(set)
	for _, o := range set.Skipped {
		fmt.Fprintf(s.out, "    %s %s is left out: the hook runs on this machine\n", o.GetKind(), o.GetName())
	}
	return nil
}

// readSet returns what the manifests hold, and of each file that was left out why.
func (s *stage) readSet(ctx context.Context) (set *manifests.Set, foreign []error, err error) {
	set = &manifests.Set{}
	for i, part := range s.project.parts {
		objects, left, err := s.readPart(ctx, part)
		foreign = append(foreign, left...)
		if err == nil {
			err = part.checkHooks(objects)
		}
		if err != nil {
			return nil, foreign, err
		}
		sorted, err := manifests.Sort(objects, "http://"+net.JoinHostPort(hookHost, strconv.Itoa(s.hooks[i].address())))
		if err != nil {
			return nil, foreign, fmt.Errorf("%s: %w", strings.Join(part.manifests, " "), err)
		}
		set.Add(sorted)
	}
	return set, foreign, nil
}

// readPart returns the objects of a part.
func (s *stage) readPart(ctx context.Context, part part) (objects []*unstructured.Unstructured, foreign []error, err error) {
	for _, path := range part.manifests {
		sources, err := manifests.Sources(path)
		if err != nil {
			return nil, foreign, err
		}
		for _, source := range sources {
			read, err := s.readSource(ctx, source)
			if err != nil {
				err = fmt.Errorf("%s: %w", source.Path, err)
			}
			switch {
			case err == nil:
				objects = append(objects, read...)
			case manifests.Foreign(source, err):
				foreign = append(foreign, err)
			default:
				return nil, foreign, err
			}
		}
	}
	return objects, foreign, nil
}

// manifestExtensions are those of files that may be manifests.
var manifestExtensions = []string{".yaml", ".yml", ".json"}

// isManifest tells whether a file is one of the manifests, or a part of a kustomization, and not what a hook reads.
func (s *stage) isManifest(path string) bool {
	if !slices.Contains(manifestExtensions, filepath.Ext(path)) {
		return false
	}
	for _, part := range s.project.parts {
		for _, folder := range part.manifests {
			sources, _ := manifests.Sources(folder) // Whoever applies them says what is wrong.
			for _, source := range sources {
				absolute, _ := filepath.Abs(source.Path)
				switch {
				case source.Kustomization:
					relative, err := filepath.Rel(filepath.Dir(absolute), path) // With the bases beside it.
					if err == nil && filepath.IsLocal(relative) && filepath.Ext(path) != ".json" {
						return true
					}
				case absolute == path:
					data, err := os.ReadFile(path)
					if err == nil {
						_, err = manifests.Decode(data)
					}
					return !manifests.Foreign(source, err)
				}
			}
		}
	}
	return false
}

func (s *stage) readSource(ctx context.Context, source manifests.Source) ([]*unstructured.Unstructured, error) {
	if source.Kustomization {
		built, err := s.kubectl(ctx, "kustomize", source.Path)
		if err != nil {
			return nil, err
		}
		return manifests.Decode([]byte(built))
	}
	data, err := os.ReadFile(source.Path)
	if err != nil {
		return nil, err
	}
	return manifests.Decode(data)
}

// A hookError says that a hook does not run, which logs of other programs do not explain.
type hookError struct{ error }

// startHooks waits until each hook listens. One that does not is an error only for a visitor who does not stay.
func (s *stage) startHooks(ctx context.Context) error {
	over := ctx.Done()
	if !s.options.once {
		over = s.work.Done() // It listens when its author has saved the cure.
	}
	for _, hook := range s.hooks {
		s.working.Go(func() { hook.run(s.work) })
	}
	for _, hook := range s.hooks {
		select {
		case err := <-hook.first:
			if err != nil && s.options.once {
				return hookError{err}
			}
		case <-over:
			return hookError{errors.New(hook.silence())}
		}
	}
	set, _, err := s.readSet(ctx) // A hook may have a port of its own.
	if err == nil {
		s.set.Store(set)
	}
	return err
}

// save does what follows from a save: manifests that changed are applied, every parent is synced, and a line says how that went.
func (s *stage) save(ctx context.Context, files []string) {
	s.saving.Lock()
	defer s.saving.Unlock()
	ctx, cancel := context.WithTimeout(ctx, syncedTimeout)
	defer cancel()
	since, headline := time.Now(), "==> "+strings.Join(files, ", ")
	if slices.ContainsFunc(files, func(file string) bool { return slices.Contains(manifestExtensions, filepath.Ext(file)) }) {
		s.forgetControllers()
	}
	if err := s.reapply(ctx); err != nil {
		fmt.Fprintf(s.out, "%s: not applied: %v\n", headline, err)
		headline = "    With what was applied before"
	}
	for _, controller := range s.appliedControllers() {
		err := process.Poll(ctx, func(ctx context.Context) (bool, error) { return s.takenUp(ctx, controller) })
		if err == nil {
			_, err = s.plugin(ctx, "resync", manifests.Argument(controller), "--all")
			err = s.whyNotRunning(ctx, controller, err)
		}
		if err != nil {
			fmt.Fprintf(s.out, "%s: %v\n", headline, err)
			return
		}
	}
	fmt.Fprintf(s.out, "%s: %s\n", headline, s.settle(ctx, since))
	s.tellWarnings(ctx, since)
}

// whyNotRunning returns the condition that an error refers to in its place, and other errors as they are.
func (s *stage) whyNotRunning(ctx context.Context, controller *unstructured.Unstructured, err error) error {
	if err == nil || !strings.Contains(err.Error(), "its condition Ready says why") {
		return err
	}
	message, failed := s.kubectl(ctx, "get", controllerPath(controller), "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
	if failed != nil || message == "" {
		return err
	}
	return fmt.Errorf("%s does not run: %s", manifests.Argument(controller), message)
}

// apply creates the objects: what defines others first, samples last. An author's manifests may be wrong: he stays, and corrects them.
func (s *stage) apply(ctx context.Context) error {
	err := s.applySet(ctx, s.set.Load())
	if err == nil || s.options.once || ctx.Err() != nil {
		return err
	}
	fmt.Fprintf(s.out, "    Not applied: %v\n    When you save the corrected files, they are applied.\n", err)
	return nil
}

// reapply applies what has changed in the manifests.
func (s *stage) reapply(ctx context.Context) error {
	set, _, err := s.readSet(ctx)
	if err != nil {
		return err
	}
	s.set.Store(set)
	return s.applySet(ctx, set)
}

// forgetControllers has the controllers applied again: a visitor may have applied them by hand, with the address that their hooks have in a cluster.
func (s *stage) forgetControllers() {
	s.applying.Lock()
	defer s.applying.Unlock()
	for _, o := range s.set.Load().Controllers {
		if key := appliedKey(o); s.applied[key] != "" {
			s.applied[key] = "applied before"
		}
	}
}

// appliedControllers are those controllers of the set that the API server has accepted.
func (s *stage) appliedControllers() []*unstructured.Unstructured {
	s.applying.Lock()
	defer s.applying.Unlock()
	return slices.DeleteFunc(slices.Clone(s.set.Load().Controllers), func(o *unstructured.Unstructured) bool { return s.applied[appliedKey(o)] == "" })
}

// appliedKey is the key of an object in applied.
func appliedKey(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().String() + "/" + o.GetNamespace() + "/" + o.GetName()
}

// applySet applies those objects of a set that are not what was applied last.
func (s *stage) applySet(ctx context.Context, set *manifests.Set) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	definitions := slices.Clone(set.Definitions)
	for _, name := range append(set.Namespaces(), s.project.namespace) {
		if name != "" {
			namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
			definitions = append(definitions, namespace)
		}
	}
	if err := s.applyAll(ctx, definitions, ""); err != nil {
		return err
	}
	for _, o := range definitions {
		if o.GetKind() == "CustomResourceDefinition" {
			if _, err := s.kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd/"+o.GetName()); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.applyAll(ctx, set.Controllers, ""), s.applyAll(ctx, set.Samples, s.project.namespace))
}

func (s *stage) applyAll(ctx context.Context, objects []*unstructured.Unstructured, namespace string) error {
	var text strings.Builder
	changed := map[string]string{}
	for _, o := range objects {
		encoded, err := manifests.Encode(o)
		if err != nil {
			return err
		}
		if key := appliedKey(o); s.applied[key] != encoded {
			changed[key] = encoded
			text.WriteString(encoded)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	file := filepath.Join(s.dir, "apply.json")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("writing what is applied: %w", err)
	}
	args := []string{"apply", "-f", file}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	var warnings bytes.Buffer
	cmd := s.kubectlCommand(ctx, args...)
	cmd.Stderr = &warnings
	printed, err := process.OutputOf(ctx, cmd)
	fmt.Fprint(s.out, indent(printed))
	if err == nil {
		fmt.Fprint(s.out, indent(warnings.String()))
	} else {
		changed = accepted(changed, objects, printed)
		err = refusal(err, warnings.String())
	}
	maps.Copy(s.applied, changed)
	return err
}

// wholePatch is what the API server quotes of a patch before it says what is wrong with it.
var wholePatch = regexp.MustCompile(`(?s)patch: Invalid value: "map\[.*\]": `)

// refusal returns what kubectl printed of an apply that failed, without the patch, or the error if it printed nothing.
func refusal(err error, printed string) error {
	if printed = strings.TrimSpace(wholePatch.ReplaceAllString(printed, "")); printed != "" {
		return errors.New(printed)
	}
	return err
}

// accepted returns those of the changed objects of which kubectl printed that they are applied, though not all are. It prints no namespaces, so
// that one whose name others have is applied again.
func accepted(changed map[string]string, objects []*unstructured.Unstructured, printed string) map[string]string {
	keys := map[string][]string{}
	for _, o := range objects {
		if key := appliedKey(o); changed[key] != "" {
			kind := o.GroupVersionKind().GroupKind()
			name := strings.ToLower(kind.String()) + "/" + o.GetName()
			keys[name] = append(keys[name], key)
		}
	}
	found := map[string]string{}
	for line := range strings.Lines(printed) {
		name, _, _ := strings.Cut(line, " ")
		if len(keys[name]) == 1 {
			key := keys[name][0]
			found[key] = changed[key]
		}
	}
	return found
}

func (s *stage) kubectl(ctx context.Context, args ...string) (string, error) {
	return process.OutputOf(ctx, s.kubectlCommand(ctx, args...))
}

func (s *stage) kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, s.cluster.Kubectl, append([]string{"--kubeconfig", s.cluster.Kubeconfig}, args...)...)
}

func (s *stage) dataDir() string {
	return filepath.Join(s.dir, "data")
}

func (s *stage) kubectlCache() string {
	return filepath.Join(s.dir, "kubectl-cache")
}
