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
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
)

const (
	examplesFolder = "artifacts/examples"
	defaultExample = "hello-world"

	// Files that most examples have: the kind of the parents, one of them, and the program with a sync hook alone or with several hooks.
	kindFile    = "crd.yaml"
	sampleFile  = "example.yaml"
	syncScript  = "sync.py"
	hooksScript = "hooks.py"
)

// A project is a hook with its controller, an example or an author's own.
type project struct {
	// title names it in what is printed.
	title string
	// parts are its hooks.
	parts []part
	// namespace is made, and is that of samples that name none. Empty: default.
	namespace string
	// await are the arguments of kubectl that wait for the result, and show those that show it.
	await, show []string
	// readme has the commands to try. Empty for an author's own.
	readme string
}

// A part is a hook with the manifests of its controllers.
type part struct {
	// hook is the path of the hook's program. Empty: the controllers have inline hooks.
	hook string
	// manifests are the paths of files and folders.
	manifests []string
}

// check returns an error if one of the paths is wrong.
func (p part) check() error {
	if p.hook != "" {
		folder, file := filepath.Split(p.hook)
		if _, _, err := interpreter(folder, file); err != nil {
			return fmt.Errorf("HOOK=%s: %w", p.hook, whereFrom(p.hook, err))
		}
	}
	for _, path := range p.manifests {
		sources, err := manifests.Sources(path)
		if err != nil {
			return fmt.Errorf("CONTROLLER=%s: %w", path, whereFrom(path, err))
		}
		for _, source := range sources {
			if err := p.checkSource(source); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSource returns an error if a file has a controller that needs a program. What a kustomization has is known when kubectl has built it.
func (p part) checkSource(source manifests.Source) error {
	if p.hook != "" || source.Kustomization {
		return nil
	}
	data, err := os.ReadFile(source.Path)
	if err != nil {
		return fmt.Errorf("CONTROLLER=%s: %w", source.Path, err)
	}
	objects, _ := manifests.Decode(data) // Whoever applies them says what is wrong.
	return p.checkHooks(objects)
}

// checkHooks returns an error if a controller has a webhook, and no program that serves it.
func (p part) checkHooks(objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if p.hook == "" && manifests.IsController(o) && localhook.HasWebhook(o.Object) {
			return fmt.Errorf("%s %s has a webhook, and HOOK is not there: name the program that serves it with HOOK=…", o.GetKind(), o.GetName())
		}
	}
	return nil
}

// whereFrom adds to the error of a relative path that is not there where it is looked for.
func whereFrom(path string, err error) error {
	if filepath.IsAbs(path) || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: relative paths count from the repository: use $PWD/%s", err, path)
}

// hooks are the paths of the programs; empty: all hooks are inline.
func (p *project) hooks() string {
	var paths []string
	for _, part := range p.parts {
		if part.hook != "" {
			paths = append(paths, part.hook)
		}
	}
	return strings.Join(paths, ", ")
}

// folders are those of the manifests.
func (p part) folders() []string {
	var folders []string
	for _, path := range p.manifests {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			path = filepath.Dir(path)
		}
		folders = append(folders, path)
	}
	return folders
}

// An example is what differs between the folders of artifacts/examples. Each has controller.yaml, and README.md, whose commands begin where
// this program ends.
type example struct {
	hook, namespace string
	// manifests are those beside controller.yaml.
	manifests   []string
	await, show []string
}

var examples = map[string]example{
	"hello-world": {
		hook: syncScript, namespace: "hello", manifests: []string{kindFile, "hello.yaml"},
		await: []string{"-n hello wait --for=jsonpath={.status.phase}=Succeeded --timeout=90s pod/your-name"},
		show:  []string{"-n hello get helloworlds", "-n hello get pods", "-n hello get pod your-name -o jsonpath={.spec.containers[0].command}"},
	},
	"immortal-container": {
		hook: syncScript, namespace: "immortalcontainers", manifests: []string{kindFile, sampleFile},
		await: []string{"-n immortalcontainers wait --for=jsonpath={.status.currentPod}=example-immortalpod --timeout=90s immortalcontainer/example"},
		show:  []string{"-n immortalcontainers get immortalcontainers,pods"},
	},
	"python-lambda": {
		hook: syncScript, namespace: "python-lambda-operator", manifests: []string{kindFile, sampleFile},
		await: []string{"-n python-lambda-operator wait --for=jsonpath={.status.pods}=2 --timeout=90s pythonlambda/demo-python-lambda"},
		show:  []string{"-n python-lambda-operator get pythonlambdas,configmaps,services,ingresses,pods"},
	},
	"pod-set": {
		hook: syncScript, namespace: "podsets", manifests: []string{kindFile, sampleFile},
		await: []string{"-n podsets wait --for=jsonpath={.status.ready}=5 --timeout=90s podset/web"},
		show:  []string{"-n podsets get podsets,pods"},
	},
	"config-monitor": {
		hook: hooksScript, manifests: []string{kindFile, "frontend.yaml", "monitor.yaml"},
		await: []string{"wait --for=jsonpath={.status.availableReplicas}=1 --timeout=90s deployment/frontend"},
		show:  []string{"get configmonitors", "get pods -l app=frontend"},
	},
	"service-per-pod": {
		hook: syncScript, manifests: []string{"nginx.yaml"},
		await: []string{"wait --for=create --timeout=90s service/nginx-0 service/nginx-1 service/nginx-2"},
		show:  []string{"get statefulset nginx", "get services -l app=service-per-pod"},
	},
	"default-network-policy": {hook: hooksScript},
	"copy-to-namespaces": {
		hook: hooksScript, manifests: []string{kindFile, sampleFile},
		show: []string{"get objectcopies"},
	},
	"job-per-node": {
		hook: hooksScript, manifests: []string{kindFile, sampleFile},
		await: []string{"wait --for=jsonpath={.status.succeeded}=1 --timeout=90s nodejob/pull-image"},
		show:  []string{"get nodejobs", "get jobs"},
	},
}

// project returns what the options ask for.
func (o *options) project() (*project, error) {
	switch {
	case len(o.hooks) == 0 && len(o.controller) == 0:
		return exampleProject(o.example)
	case o.example != "":
		return nil, errors.New("EXAMPLE is one of the examples, HOOK and CONTROLLER are your own: leave one of them out")
	case len(o.controller) == 0:
		return nil, errors.New("HOOK is there and CONTROLLER is not: name the manifests of your controller, files or folders, with CONTROLLER=…")
	case len(o.hooks) > 1 && len(o.controller) != len(o.hooks):
		return nil, fmt.Errorf("HOOK names %d programs and CONTROLLER %d paths: name for each program the folder of its controllers, in the same order",
			len(o.hooks), len(o.controller))
	}
	p := &project{title: strings.Join(o.controller, " ")}
	switch {
	case len(o.hooks) > 1:
		for i, hook := range o.hooks {
			p.parts = append(p.parts, part{hook, o.controller[i : i+1]})
		}
	case len(o.hooks) == 1:
		p.parts = []part{{o.hooks[0], o.controller}}
	default:
		p.parts = []part{{manifests: o.controller}}
	}
	for _, part := range p.parts {
		if err := part.check(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func exampleProject(name string) (*project, error) {
	if name == "" {
		name = defaultExample
	}
	e, ok := examples[name]
	if !ok {
		return nil, fmt.Errorf("there is no example %q: EXAMPLE is one of %s", name, strings.Join(slices.Sorted(maps.Keys(examples)), ", "))
	}
	folder := filepath.Join(examplesFolder, name)
	p := &project{
		title: folder, parts: []part{{hook: filepath.Join(folder, e.hook)}}, readme: filepath.Join(folder, "README.md"),
		namespace: e.namespace, await: e.await, show: e.show,
	}
	for _, file := range append([]string{"controller.yaml"}, e.manifests...) {
		p.parts[0].manifests = append(p.parts[0].manifests, filepath.Join(folder, file))
	}
	return p, nil
}
