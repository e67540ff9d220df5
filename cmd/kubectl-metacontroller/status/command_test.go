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

package status

import (
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connectiontest"
)

// cluster has a controller of each kind.
var cluster = connectiontest.Documents{
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers":     `{"kind":"CompositeControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"web"}}]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers":     `{"kind":"DecoratorControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"labels"}}]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web": `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"web"}}`,
}

func TestControllersAreThemselvesPrintedInFormats(t *testing.T) {
	for what, tc := range map[string]struct {
		args []string
		want string
		err  string
	}{
		"no format":                  {[]string{"cc/web"}, "CompositeController web was not taken up by the engine yet.\n", ""},
		"a name":                     {[]string{"cc/web", "-o", "name"}, "compositecontroller.metacontroller.k8s.io/web\n", ""},
		"names":                      {[]string{"-o", "name"}, "compositecontroller.metacontroller.k8s.io/web\ndecoratorcontroller.metacontroller.k8s.io/labels\n", ""},
		"a path":                     {[]string{"-o", "jsonpath={.items[*].metadata.name}"}, "web labels", ""},
		"a template alone":           {[]string{"--template", "{{range .items}}{{.kind}} {{end}}"}, "CompositeController DecoratorController ", ""},
		"a format that is not known": {[]string{"cc/none", "-o", "wide"}, "", `--output: "wide" is not known: use one of json, `},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, NewCommand, cluster, tc.args...)
			if !strings.HasPrefix(printed, tc.want) || (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("printed %q, error %v; want %q, %q", printed, err, tc.want, tc.err)
			}
		})
	}
}
