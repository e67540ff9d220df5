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

package pause

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// fleet serves the Deployment web of the namespace shop, which a decorator may have as a target.
type fleet struct {
	connectiontest.Documents

	// paused is the annotation that the Deployment has, in JSON; empty for none.
	paused string
	// patch is the body of the patch that came.
	patch string
}

func newFleet(paused, targets string) *fleet {
	const list = `"apiVersion":"metacontroller.k8s.io/v1alpha1","items":[`
	return &fleet{paused: paused, Documents: connectiontest.Documents{
		"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[` +
			`{"name":"nodes","singularName":"node","kind":"Node","namespaced":false,"verbs":["get"]}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[` +
			`{"name":"deployments","singularName":"deployment","kind":"Deployment","namespaced":true,"verbs":["get"]}]}`,
		"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers": `{"kind":"CompositeControllerList",` + list + `]}`,
		"/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers": `{"kind":"DecoratorControllerList",` + list +
			`{"metadata":{"name":"guard"},"spec":{"resources":[{"apiVersion":"apps/v1","resource":"` + targets + `"}]}}]}`,
	}}
}

func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/apps/v1/namespaces/shop/deployments/web" {
		f.Documents.ServeHTTP(w, r)
		return
	}
	annotations := ""
	if f.paused != "" {
		annotations = `,"annotations":{"metacontroller.k8s.io/paused":` + f.paused + `}`
	}
	if r.Method == http.MethodPatch {
		body, _ := io.ReadAll(r.Body)
		f.patch = string(body) + " by " + r.URL.Query().Get("fieldManager")
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"%s}}`, annotations)
}

func TestOneParentIsPausedAndResumed(t *testing.T) {
	const by = " by kubectl-metacontroller"
	set := func(value string) string {
		return `{"metadata":{"annotations":{"metacontroller.k8s.io/paused":` + value + `}}}` + by
	}
	for name, tc := range map[string]struct {
		args    []string
		resumes bool
		// paused is the annotation before, and targets are those of the only controller.
		paused, targets string
		// patch, printed and err are expressions for what is written, printed, and wrong.
		patch, printed, err string
	}{
		"until it is resumed": {
			args: []string{"Deployment.apps/web"}, patch: set(`"true"`),
			printed: "Deployment.apps/shop/web is paused until it is resumed.\n(.|\n)*kubectl metacontroller resume Deployment.apps/shop/web\n",
		},
		"for a time": {
			args: []string{"deployment/shop/web", "--for", "2h"}, paused: `"true"`, patch: set(`"20[0-9T:-]*Z"`),
			printed: "Deployment.apps/shop/web is paused until 20[0-9T:-]*Z.\n",
		},
		"by a resource and a name":   {args: []string{"deployments", "web"}, patch: set(`"true"`), printed: "Deployment.apps/shop/web is paused"},
		"twice":                      {args: []string{"deployment/web"}, paused: `"true"`, printed: "Deployment.apps/shop/web is paused already.\n"},
		"as a document":              {args: []string{"deployment/web", "-o", "name"}, patch: set(`"true"`), printed: "deployment.apps/web\n"},
		"no parent of a controller":  {args: []string{"deployment/web"}, targets: "statefulsets", err: "no controller has parents or targets of deployments.apps: "},
		"one that does not exist":    {args: []string{"deployment/wob"}, err: "reading deployments.apps/wob: "},
		"a kind that does not exist": {args: []string{"Banana/web"}, err: `the cluster serves no kind "banana"`},
		"a time that is over":        {args: []string{"deployment/web", "--for", "-2h"}, err: "--for must be more than 0"},
		"a time for a controller":    {args: []string{"cc/web", "--for", "2h"}, err: "--for is for a parent"},
		"the end of it": {
			args: []string{"deployment/web"}, resumes: true, paused: `"2026-01-02T03:04:05Z"`, patch: set(`null`),
			printed: "Deployment.apps/shop/web is resumed.\n",
		},
		"the end of none": {args: []string{"deployment/web"}, resumes: true, printed: "Deployment.apps/shop/web is not paused.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.targets == "" {
				tc.targets = "deployments"
			}
			f, command := newFleet(tc.paused, tc.targets), NewPauseCommand
			if tc.resumes {
				command = NewResumeCommand
			}
			printed, err := connectiontest.Run(t, command, f, tc.args...)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("the error is %v, want %q", err, tc.err)
			}
			for what, got := range map[string][2]string{"written": {f.patch, tc.patch}, "printed": {printed, tc.printed}} {
				if !regexp.MustCompile("^"+strings.NewReplacer("{", "\\{", "}", "\\}").Replace(got[1])).MatchString(got[0]) || got[1] == "" && got[0] != "" {
					t.Errorf("%s is %q, want %q", what, got[0], got[1])
				}
			}
		})
	}
}
