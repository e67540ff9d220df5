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

package preflight

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

func TestVersionsAreJudged(t *testing.T) {
	for version, want := range map[string]struct {
		result  Result
		message string
	}{
		"v1.28.15":          {Failed, "too old: 1.29 and later"},
		"v1.29.0":           {Warning, "works harder when the server starts than 1.31"},
		"v1.30.5-eks-1":     {Warning, "works harder"},
		"v1.31.0":           {OK, "Kubernetes v1.31.0 is supported."},
		"v1.36.3":           {OK, "is supported"},
		"v1.37.9+k3s1":      {OK, "is supported"},
		"v1.38.0":           {Warning, "newer than this server, whose libraries are those of 1.37"},
		"built yesterday":   {Warning, "cannot be read"},
		"v1.33.1-gke.15400": {OK, "is supported"},
	} {
		if got := judgeVersion(version); got.Result != want.result || !strings.Contains(got.Message, want.message) {
			t.Errorf("%s: got %+v, want %s and %q", version, got, want.result, want.message)
		}
	}
}

func TestTheAggregationLayerIsJudged(t *testing.T) {
	files, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	authority := read(t, files.CAFile)
	for name, test := range map[string]struct {
		data  map[string]string
		worst Result
		want  string
	}{
		"as it should be":    {map[string]string{proxyAuthorityKey: authority, clientAuthorityKey: "another", allowedNamesKey: `["front-proxy-client"]`}, OK, "is set up"},
		"users of no others": {map[string]string{proxyAuthorityKey: authority}, OK, "is set up"},
		"one authority and names": {
			map[string]string{proxyAuthorityKey: authority, clientAuthorityKey: authority, allowedNamesKey: `["front-proxy-client"]`}, OK, "is set up",
		},
		"one authority":          {map[string]string{proxyAuthorityKey: authority, clientAuthorityKey: authority, allowedNamesKey: `[]`}, Warning, "can be anybody"},
		"not set up":             {map[string]string{clientAuthorityKey: authority}, Failed, "every user would be anonymous"},
		"nothing of a PEM in it": {map[string]string{proxyAuthorityKey: "none"}, Failed, "every user would be anonymous"},
	} {
		t.Run(name, func(t *testing.T) {
			report := newReport(judgeAggregation(&corev1.ConfigMap{Data: test.data}))
			last := report.Findings[len(report.Findings)-1]
			if report.Result != test.worst || !strings.Contains(last.Message, test.want) {
				t.Errorf("got %+v, want %s and %q", report, test.worst, test.want)
			}
			if report.Result != OK && last.Next == "" {
				t.Error("nobody says what to do")
			}
		})
	}
}

func TestWhatServesTheGroupIsJudged(t *testing.T) {
	own := registration.Existing{Registered: true, ServiceNamespace: "metacontroller", ServiceName: "metacontroller-apiserver"}
	available, other := own, own
	available.Available = true
	other.ServiceName = "wardle"
	for name, test := range map[string]struct {
		existing *registration.Existing
		result   Result
		want     string
	}{
		"nothing":              {&registration.Existing{}, OK, "Nothing serves metacontroller.k8s.io"},
		"this server":          {&available, OK, "registered already, and available"},
		"this server, down":    {&own, Warning, "is not available"},
		"another server":       {&other, Failed, "belongs to another server: Service wardle in namespace metacontroller"},
		"definitions":          {&registration.Existing{Definitions: []string{"compositecontrollers.metacontroller.k8s.io"}}, Failed, "CustomResourceDefinitions serve"},
		"definitions that go":  {&registration.Existing{Registered: true, ByDefinitions: true}, Failed, "that are being deleted"},
		"definitions and more": {&registration.Existing{Definitions: []string{"a"}, Registered: true, ByDefinitions: true}, Failed, "CustomResourceDefinitions serve"},
	} {
		t.Run(name, func(t *testing.T) {
			got := judgeExisting(test.existing, "metacontroller", "metacontroller-apiserver")
			if got.Result != test.result || !strings.Contains(got.Message, test.want) {
				t.Errorf("got %+v, want %s and %q", got, test.result, test.want)
			}
			if got.Result != OK && got.Next == "" {
				t.Error("nobody says what to do")
			}
		})
	}
}

func TestMetacontrollerIsKnownByItsImage(t *testing.T) {
	one, none := int32(1), int32(0)
	for image, want := range map[string]bool{
		"example.org/metacontroller/metacontroller:v4.17.2": true,
		"metacontrollerio/metacontroller":                   true,
		"registry:5000/mirror/metacontroller@sha256:0":      true,
		"example.org/metacontroller-apiserver:v1":           false,
		"example.org/metacontroller/hooks:v1":               false,
		"example.org/metacontroller/nodejs-server:latest":   false,
		"example.org/metacontroller/jsonnetd:0.1":           false,
		"example.org/not-metacontroller:v1":                 false,
	} {
		if got := runsMetacontroller(&one, []corev1.Container{{Image: "other"}, {Image: image}}); got != want {
			t.Errorf("%s: got %t", image, got)
		}
		if runsMetacontroller(&none, []corev1.Container{{Image: image}}) {
			t.Errorf("%s is said to run without replicas", image)
		}
	}
}

func TestRightsAreWrittenForPeople(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
		{Verbs: []string{"patch"}, APIGroups: []string{"flowcontrol.apiserver.k8s.io"}, Resources: []string{"flowschemas/status"}},
		{Verbs: []string{"create", "get"}, APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, ResourceNames: []string{"v1.a", "v1.b"}},
	}
	got := describe(expand(rules, ""))
	want := []string{
		"get, list namespaces",
		"patch flowschemas/status.flowcontrol.apiserver.k8s.io",
		"create, get apiservices.apiregistration.k8s.io v1.a",
		"create, get apiservices.apiregistration.k8s.io v1.b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := describe(expand(rules[:1], "kube-system")); !slices.Equal(got, []string{"get, list namespaces in kube-system"}) {
		t.Errorf("got %q", got)
	}
}

// TestRightsOfTheEngine asks for what a server needs whose ClusterRole names its kinds.
func TestRightsOfTheEngine(t *testing.T) {
	all, err := roles("ns", "metacontroller-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r role) bool { return r.check == "rights-engine" })
	asked := describe(expand(all[i].rules, ""))
	for _, want := range []string{"get serviceaccounts", "get services", "list endpointslices.discovery.k8s.io", "get, list, watch secrets"} {
		if !slices.Contains(asked, want) {
			t.Errorf("%q is not among %q", want, asked)
		}
	}
}

func TestTheRolesHaveTheNameOfTheService(t *testing.T) {
	for _, name := range []string{"metacontroller-apiserver", "mc"} {
		all, err := roles("ns", name)
		if err != nil {
			t.Fatal(err)
		}
		if read := "get clusterroles.rbac.authorization.k8s.io " + name; !slices.Contains(describe(expand(all[0].rules, "")), read) {
			t.Errorf("%q is not among %q", read, describe(expand(all[0].rules, "")))
		}
		if want := "ClusterRole " + name; all[0].name != want {
			t.Errorf("the role is %q, want %q", all[0].name, want)
		}
		last := all[len(all)-1]
		if want := "Role " + name + ":leader-election in ns"; last.name != want || !strings.Contains(last.give, " --role="+name+":leader-election ") {
			t.Errorf("the role is %q, given by %q, want %q", last.name, last.give, want)
		}
	}
}
