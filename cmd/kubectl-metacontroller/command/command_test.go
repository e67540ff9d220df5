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

package command

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

func TestWrongCommandLinesSayWhereToLook(t *testing.T) {
	for name, tc := range map[string]struct {
		args       []string
		want, help string
	}{
		"an unknown command": {[]string{"bogus"}, `unknown command "bogus"`, "kubectl metacontroller --help"},
		"a misspelt command": {[]string{"statu"}, "Did you mean this?", "kubectl metacontroller --help"},
		"an unknown flag":    {[]string{"--bogus"}, "unknown flag: --bogus", "kubectl metacontroller --help"},
		"no controller":      {[]string{"pause"}, "name a controller: list those that there are with 'kubectl metacontroller status'", "kubectl metacontroller pause --help"},
		"of several words":   {[]string{"parents"}, "name a controller: list those", "kubectl metacontroller parents --help"},
		"no parent": {
			[]string{"explain-loop", "cc", "web"},
			"name a parent as NAMESPACE/PARENT: list those that there are with 'kubectl metacontroller parents cc/web --all'",
			"kubectl metacontroller explain-loop --help",
		},
		"nothing to write":    {[]string{"init"}, "name the controller to write: kubectl metacontroller init NAME --parent", "kubectl metacontroller init --help"},
		"no object":           {[]string{"tree"}, "name an object, as kubectl metacontroller tree KIND.GROUP/NAME", "kubectl metacontroller tree --help"},
		"too many arguments":  {[]string{"tree", "a", "b", "c"}, "received 3", "kubectl metacontroller tree --help"},
		"one where none is":   {[]string{"version", "now"}, `unknown command "now"`, "kubectl metacontroller version --help"},
		"a flag of a command": {[]string{"init", "--bogus"}, "unknown flag: --bogus", "kubectl metacontroller init --help"},
		"of a comparison":     {[]string{"replay"}, "name a folder with recorded requests", "kubectl metacontroller replay --help"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := New(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
			root.SetArgs(tc.args)
			err := Execute(t.Context(), root)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasSuffix(err.Error(), ": see '"+tc.help+"'") {
				t.Errorf("got %v, want %q in it, and at its end %q", err, tc.want, tc.help)
			}
			if got := strings.Count(err.Error(), "--help"); got != 1 {
				t.Errorf("%v names --help %d times", err, got)
			}
		})
	}
}

// cluster has a controller with two parents.
var cluster = connectiontest.Documents{
	"/api": `{"kind":"APIVersions","versions":[]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}],` +
		`"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}`,
	"/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[` +
		`{"name":"websites","singularName":"website","namespaced":true,"kind":"Website","verbs":["get"]}]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers": `{"kind":"CompositeControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"website"},` +
		`"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"websites"}}}]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers": `{"kind":"DecoratorControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/website": `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"website"},` +
		`"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"websites"}}}`,
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/website/parents": `{"kind":"ControllerParentList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[` +
		`{"group":"example.com","resource":"websites","namespace":"shop","name":"a"},{"group":"example.com","resource":"websites","namespace":"shop","name":"b"}]}`,
}

// Arguments are those of kubectl: the kind and the name of a controller may be two of them.
func TestArgumentsAreAsKubectls(t *testing.T) {
	for what, tc := range map[string]struct{ line, want string }{
		"a kind and a name":            {"parents cc website -o name", "websites.example.com/a\nwebsites.example.com/b\n"},
		"with its group, and a parent": {"parents compositecontroller.metacontroller.k8s.io website shop/a -o name", "websites.example.com/a\n"},
		"of a status":                  {"status cc website -o name", "compositecontroller.metacontroller.k8s.io/website\n"},
		"the long name of a flag":      {"parents website --all-namespaces -o name", "websites.example.com/a\n"},
		"completion of a controller":   {"__complete parents cc/w", "cc/website\n"},
		"completion of a parent":       {"__complete syncs website shop/", "shop/a\nshop/b\n"},
		"of one of a kind and a name":  {"__complete syncs cc website shop/a", "shop/a\n:"},
		"completion of a state":        {"__complete parents website --state=", "Synced\nPending\n"},
		"completion of a format":       {"__complete tree -o ", "wide\njson\nyaml\n"},
		"of a format of two":           {"__complete explain-loop -o ", "json\nyaml\n"},
		"completion of a resource":     {"__complete tree web", "websites.example.com\n"},
		"completion of a kind":         {"__complete tree Web", "Website.example.com/\n"},
		"of an object of a kind":       {"__complete tree Website.example.com/shop/", "Website.example.com/shop/a\nWebsite.example.com/shop/b\n"},
		"of an object of a resource":   {"__complete tree website shop/b", "shop/b\n"},
		"of those of kubectl":          {"__complete parents -o ", "wide\nname\njson\n"},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			root := New(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &bytes.Buffer{}})
			root.SetArgs(append(connectiontest.Arguments(t, cluster), strings.Split(tc.line, " ")...))
			if strings.HasPrefix(tc.line, "__complete") {
				first, rest, _ := strings.Cut(tc.line, " ")
				words := strings.Split(rest, " ")
				root.SetArgs(append(append([]string{first, words[0]}, connectiontest.Arguments(t, cluster)...), words[1:]...))
			}
			if err := Execute(t.Context(), root); err != nil || !strings.HasPrefix(out.String(), tc.want) {
				t.Errorf("printed %q, error %v, want %q", out.String(), err, tc.want)
			}
		})
	}
}
