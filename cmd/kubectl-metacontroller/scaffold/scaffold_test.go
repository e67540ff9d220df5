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

package scaffold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/recording"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs init in a new folder, and returns the folder.
func start(t *testing.T, args ...string) (string, error) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "web")
	cmd := NewCommand(genericiooptions.IOStreams{Out: &bytes.Buffer{}})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "--directory="+folder))
	return folder, cmd.ExecuteContext(t.Context())
}

// everyKind are the resources of which init makes children.
func everyKind() string {
	var names []string
	for _, k := range knownKinds() {
		if k.desired != nil {
			names = append(names, k.Resource)
		}
	}
	return strings.Join(append(names, "widgets.v1.example.org/Widget"), ",")
}

// In each language and of each kind, the hook returns what its test has recorded, and the server would accept the controller.
func TestEveryFolderWorks(t *testing.T) {
	for language, l := range languages() {
		for kind, args := range map[string][]string{
			"composite": {"web", "--parent=Website.example.com", "--child=" + everyKind()},
			"decorator": {"web", "--decorator", "--parent=Website.v1beta1.example.com", "--child=" + everyKind()},
			"workloads": {"web", "--decorator", "--parent=ReplicaSet.apps", "--child=" + everyKind()},
			"fields":    {"web", "--parent=Website.example.com", "--child=" + everyKind(), "--field=html:string,replicas:integer,weight:number"},
			// What a hook does not use, it does not have: Go would not compile it.
			"no values":        {"web", "--parent=Website.example.com", "--child=serviceaccounts"},
			"no value added":   {"web", "--decorator", "--parent=Deployment", "--child=serviceaccounts"},
			"an image alone":   {"web", "--parent=Website.example.com", "--child=pods"},
			"a selector alone": {"web", "--decorator", "--parent=Deployment", "--child=poddisruptionbudgets"},
		} {
			t.Run(language+" "+kind, func(t *testing.T) {
				if _, err := exec.LookPath("node"); err != nil && language == "javascript" {
					t.Skip("node is not installed")
				}
				folder, err := start(t, append(args, "--lang="+language)...)
				if err != nil {
					t.Fatal(err)
				}
				command := exec.CommandContext(t.Context(), "bash", "-c", l.Test)
				command.Dir, command.Env = folder, append(os.Environ(), "GOPROXY=off", "GOFLAGS=")
				if output, err := command.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", l.Test, err, output)
				}
				var out bytes.Buffer
				linting := lint.NewCommand(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
				linting.SetArgs([]string{"-f", filepath.Join(folder, "manifests", "base")})
				if err := linting.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "0 warnings in 1 object") {
					t.Errorf("lint: %v\n%s", err, out.String())
				}
			})
		}
	}
}

// Without a cluster, the inline hooks pass lint and return what is recorded. What is not checked is said.
func TestEveryFolderWithInlineHooksWorks(t *testing.T) {
	const widgets, websites = "widgets of example.org/v1", "websites of example.com/v1beta1"
	for kind, tc := range map[string]struct{ args, unchecked []string }{
		"composite":      {[]string{"web", "--parent=Website.example.com", "--child=" + everyKind(), "--field=html:string,replicas:integer"}, []string{widgets}},
		"decorator":      {[]string{"web", "--decorator", "--parent=Website.v1beta1.example.com", "--child=" + everyKind()}, []string{websites, widgets}},
		"workloads":      {[]string{"web", "--decorator", "--parent=ReplicaSet.apps", "--child=" + everyKind()}, []string{widgets}},
		"a status":       {[]string{"web", "--parent=Website.example.com", "--child=pods"}, nil},
		"no values":      {[]string{"web", "--parent=Website.example.com", "--child=serviceaccounts"}, nil},
		"no value added": {[]string{"web", "--decorator", "--parent=Deployment", "--child=serviceaccounts"}, nil},
	} {
		t.Run(kind, func(t *testing.T) {
			folder, err := start(t, append(tc.args, "--inline")...)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			streams := genericiooptions.IOStreams{Out: &out, ErrOut: &out}
			linting := lint.NewCommand(streams)
			linting.SetArgs([]string{"-f", folder})
			err = linting.ExecuteContext(t.Context())
			for _, name := range tc.unchecked {
				if !strings.Contains(out.String(), "what inline hooks do with "+name+" is not checked") {
					t.Errorf("lint does not say that %s are not checked", name)
				}
			}
			if want := fmt.Sprintf("accept this: %d warning", len(tc.unchecked)); err != nil || !strings.Contains(out.String(), want) {
				t.Errorf("lint: %v\n%s", err, out.String())
			}
			out.Reset()
			replaying := recording.NewReplayCommand(streams)
			replaying.SetArgs([]string{filepath.Join(folder, "testdata"), "-f", folder})
			if err := replaying.ExecuteContext(t.Context()); err != nil {
				controller, readErr := os.ReadFile(filepath.Join(folder, "controller.yaml"))
				t.Errorf("replay: %v\n%s\n%s%v", err, out.String(), controller, readErr)
			}
		})
	}
}

// The recorded response is not made by the hook, so that a hook that returns something else is found.
func TestTheRecordedResponseHasTheChildren(t *testing.T) {
	folder, err := start(t, "web", "--parent=Website.example.com", "--child=deployments,services")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "testdata", "sync-example.response.json"))
	if err != nil {
		t.Fatal(err)
	}
	var response struct {
		Children []struct {
			Kind string `json:"kind"`
			Spec struct {
				Replicas int `json:"replicas"`
			} `json:"spec"`
		} `json:"children"`
	}
	if err := json.Unmarshal(text, &response); err != nil {
		t.Fatal(err)
	}
	if c := response.Children; len(c) != 2 || c[0].Kind != "Deployment" || c[0].Spec.Replicas != 2 || c[1].Kind != "Service" {
		t.Errorf("the response is %s", text)
	}
}

// The request that a folder begins with is one as the server sends it: with the children as they are, by namespace and name.
func TestTheRecordedRequestHasTheChildren(t *testing.T) {
	for parent, want := range map[string]string{
		"Website.example.com": `"children":{"Deployment.apps/v1":{"default/example":{`, "Deployment": `"attachments":{"Service.v1":{"default/example-web":{`,
	} {
		args := []string{"web", "--parent=" + parent, "--child=deployments"}
		if parent == "Deployment" {
			args = []string{"web", "--decorator", "--parent=" + parent, "--child=services"}
		}
		folder, err := start(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(folder, "testdata", "sync-*.request.json"))
		if err != nil || len(files) != 1 {
			t.Errorf("%s: recorded are %v, error %v", parent, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			var compact bytes.Buffer
			if err = errors.Join(err, json.Compact(&compact, text)); err != nil || !strings.Contains(compact.String(), want) {
				t.Errorf("%s: error %v, no %s in %s", file, err, want, text)
			}
		}
	}
}

// The status has what the hook reads of a child, and a table shows it.
func TestTheDefinitionHasFieldsAndColumns(t *testing.T) {
	folder, err := start(t, "web", "--parent=Website.example.com", "--child=services,deployments", "--field=html:string,open:boolean")
	if err != nil {
		t.Fatal(err)
	}
	definition, err := os.ReadFile(filepath.Join(folder, "manifests", "base", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(folder, "example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"              html:\n                type: string\n", "              open:\n                type: boolean\n",
		"              readyReplicas:\n                type: integer\n",
		"    - {name: Html, type: string, jsonPath: .spec.html}\n",
		"    - {name: ReadyReplicas, type: integer, jsonPath: .status.readyReplicas}\n",
		"    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}\n",
		"spec:\n  html: example\n  open: true\n  image: nginx:1.28\n  replicas: 2\n",
	} {
		if !strings.Contains(string(definition)+string(example), want) {
			t.Errorf("no %q in\n%s%s", want, definition, example)
		}
	}
}

// What a decorator adds for the Pods of its target selects these. Others have Pods of their own, if any.
func TestWhatIsAddedForPodsSelectsThem(t *testing.T) {
	const target, own = `{"app":"example"}`, `{"app":"example-web"}`
	for parent, want := range map[string]string{
		"Deployment": target, "StatefulSet.apps": target, "ReplicaSet.apps": target, "Job.batch": target,
		"ConfigMap": own, "CronJob": own, "Deployment.example.com": own,
	} {
		t.Run(parent, func(t *testing.T) {
			folder, err := start(t, "web", "--decorator", "--parent="+parent, "--child=services,poddisruptionbudgets,networkpolicies,daemonsets")
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(folder, "testdata", "sync-example.response.json"))
			if err != nil {
				t.Fatal(err)
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, text); err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{`"selector":` + want, `"selector":{"matchLabels":` + want + `}`, `"podSelector":{"matchLabels":` + want + `}`, `"selector":{"matchLabels":` + own + `}`} {
				if !strings.Contains(compact.String(), field) {
					t.Errorf("no %s in %s", field, compact.String())
				}
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	composite := func(args ...string) []string {
		return append([]string{"web", "--parent=Website.example.com", "--child=pods"}, args...)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no kinds":               {[]string{"web"}, "name the kinds: kubectl metacontroller init NAME --parent"},
		"a name with a dot":      {[]string{"a.b", "--parent=Website.example.com", "--child=pods"}, `"a.b" is no name for a controller`},
		"another language":       {composite("--lang=cobol"), `there is no "cobol": use go, javascript, python`},
		"inline in a language":   {composite("--inline", "--lang=go"), "inline hooks have no language"},
		"no port":                {composite("--port=0"), "--port: 0 is no port"},
		"a kind in lower case":   {[]string{"web", "--parent=website.example.com", "--child=pods"}, "kinds begin with an upper case letter"},
		"a kind without a group": {[]string{"web", "--parent=Website", "--child=pods"}, "the group of a kind is a domain"},
		"a group without a dot":  {[]string{"web", "--parent=Website.example", "--child=pods"}, "the group of a kind is a domain"},
		"a kind that exists in a group that is not known": {
			[]string{"web", "--decorator", "--parent=ReplicaSet", "--child=pods"}, "write the group, such as HorizontalPodAutoscaler.autoscaling",
		},
		"a kind of the core group that is not known": {
			[]string{"web", "--decorator", "--parent=ResourceQuota", "--child=pods"}, "or the version alone for the core group, such as ResourceQuota.v1",
		},
		"a new kind in the core group": {[]string{"web", "--parent=Website.v1", "--child=pods"}, "the group of a kind is a domain"},
		"a plural of two words":        {composite("--plural=Web sites"), "is no plural of a kind"},
		"a child that is known to nobody": {
			[]string{"web", "--parent=Website.example.com", "--child=widgets.example.com"}, "write others as RESOURCE.VERSION.GROUP/KIND",
		},
		"a field without a type":         {composite("--field=html"), `"html" is not NAME:TYPE`},
		"a field of the type of another": {composite("--field=replicas:string"), "of this name is of type integer"},
		"a field of another type":        {composite("--field=html:text"), "TYPE is boolean, integer, number, string"},
		"a field of another's kind":      {[]string{"web", "--decorator", "--parent=Pod", "--child=services", "--field=html:string"}, "it has the fields that it has"},
		"a child twice":                  {[]string{"web", "--parent=Website.example.com", "--child=pods,pods"}, "pods is there twice"},
		"a child of its kind":            {[]string{"web", "--decorator", "--parent=Pod", "--child=pods"}, "would not end"},
		"a cluster-scoped kind":          {[]string{"web", "--decorator", "--parent=Namespace", "--child=pods"}, "Namespace has none"},
		"a child without a kind":         {[]string{"web", "--parent=Website.example.com", "--child=widgets.v1.example.com/"}, "is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, err := start(t, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if _, err := os.Stat(folder); !os.IsNotExist(err) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// Groups of Kubernetes itself have no dot, and that of its core has no name. Kinds of them exist, though init does not know all.
func TestDecoratorsHaveParentsInGroupsWithoutADot(t *testing.T) {
	for parent, want := range map[string]string{
		"ReplicaSet.apps":                        "- apiVersion: apps/v1\n    resource: replicasets\n",
		"HorizontalPodAutoscaler.v2.autoscaling": "- apiVersion: autoscaling/v2\n    resource: horizontalpodautoscalers\n",
		"Ingress.networking.k8s.io":              "- apiVersion: networking.k8s.io/v1\n    resource: ingresses\n",
		"ResourceQuota.v1":                       "- apiVersion: v1\n    resource: resourcequotas\n",
		"Endpoints.v1":                           "- apiVersion: v1\n    resource: endpoints\n",
		"Service.v1":                             "- apiVersion: v1\n    resource: services\n",
	} {
		folder, err := start(t, "web", "--decorator", "--parent="+parent, "--child=configmaps")
		if err != nil {
			t.Errorf("%s: %v", parent, err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, "manifests", "base", "controller.yaml"))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, want %q in\n%s", parent, err, want, text)
		}
	}
}

func TestChildrenOfKindsThatInitDoesNotKnow(t *testing.T) {
	for text, want := range map[string]resource{
		"widgets.v1.example.com/Widget":   {"Widget", "v1", "example.com", "widgets"},
		"resourcequotas.v1/ResourceQuota": {"ResourceQuota", "v1", "", "resourcequotas"},
	} {
		if got, err := childOf(text); err != nil || got.resource != want {
			t.Errorf("%s: got %v, error %v, want %v", text, got.resource, err, want)
		}
	}
}

func TestAFolderThatIsNotEmptyIsLeftAlone(t *testing.T) {
	folder, err := start(t, "web", "--parent=Website.example.com", "--child=pods")
	if err != nil {
		t.Fatal(err)
	}
	cmd := NewCommand(genericiooptions.IOStreams{Out: &bytes.Buffer{}})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"web", "--parent=Website.example.com", "--child=services", "--directory=" + folder})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "is not empty: name another one with --directory") {
		t.Errorf("got %v", err)
	}
	hook, err := os.ReadFile(filepath.Join(folder, "hook.py"))
	if err != nil || bytes.Contains(hook, []byte("desired_service")) {
		t.Errorf("the hook was written again: %v", err)
	}
}

func TestPlurals(t *testing.T) {
	for word, want := range map[string]string{"website": "websites", "proxy": "proxies", "day": "days", "bus": "buses", "match": "matches"} {
		if got := pluralOf(word); got != want {
			t.Errorf("%s: got %s, want %s", word, got, want)
		}
	}
}

// Nothing in the folder names a host from which images come. What a hook in Python prints is in the log at once.
func TestBaseImagesAreArguments(t *testing.T) {
	for language := range languages() {
		folder, err := start(t, "web", "--parent=Website.example.com", "--child=pods", "--lang="+language)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(folder, "Containerfile"))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "ARG BASE=") }) ||
			!slices.Contains(lines, "FROM ${BASE}") || language == "python" && !slices.Contains(lines, "ENV PYTHONUNBUFFERED=1") {
			t.Errorf("%s: %s", language, text)
		}
	}
}

// The image that builds a hook has folders, such as /go and /home, and a hook may have their names.
func TestTheProgramOfAHookIsBuiltInAFolderOfItsOwn(t *testing.T) {
	folder, err := start(t, "home", "--parent=Website.example.com", "--child=pods", "--lang=go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"WORKDIR /source\n", " -o /built/home .\n", "COPY --from=build /built/home /home\n", `ENTRYPOINT ["/home"]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// The folder may be any; the command is for a clone elsewhere.
func TestHowItIsRunOnAControlPlaneOfItsOwn(t *testing.T) {
	for folder, want := range map[string]string{
		"site": `make -C CLONE run HOOK="$PWD/site/main.js" CONTROLLER="$PWD/site"`, "/tmp/site": `make -C CLONE run HOOK="/tmp/site/main.js" CONTROLLER="/tmp/site"`,
	} {
		p := &project{Name: "site", Folder: folder, Language: languages()["javascript"]}
		if text, err := p.render("templates/next.txt"); err != nil || !strings.Contains(string(text), "\n  "+want+"\n") {
			t.Errorf("%s: got %s, error %v", folder, text, err)
		}
	}
}
