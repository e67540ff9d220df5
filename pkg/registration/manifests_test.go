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

package registration

import (
	"encoding/base64"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestManifestsPointToTheServer(t *testing.T) {
	objects, err := manifests(Options{Host: "server.test", Port: 8443, CABundle: []byte("authority")})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	var order []string
	for _, object := range objects {
		if _, err := resourceFor(dynamic.NewForConfigOrDie(&rest.Config{}), object); err != nil {
			t.Error(err)
		}
		found[describe(object)] = object
		order = append(order, object.GetKind())
	}
	if order[0] != "Namespace" || order[len(order)-1] != "APIService" {
		t.Errorf("applied in order %v; the namespace must be there first, and the cluster asks for the server as soon as the "+
			"APIService is there", order)
	}
	for _, name := range []string{
		"Namespace metacontroller", "ClusterRole metacontroller-apiserver", "ClusterRole metacontroller-controllers",
		"ClusterRole aggregate-metacontroller-view", "ClusterRole aggregate-metacontroller-edit",
		"Role metacontroller/metacontroller-apiserver:leader-election",
	} {
		if found[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	service := found["Service metacontroller/metacontroller-apiserver"]
	if service == nil {
		t.Fatal("the Service is missing")
	}
	host, _, _ := unstructured.NestedString(service.Object, "spec", "externalName")
	kind, _, _ := unstructured.NestedString(service.Object, "spec", "type")
	_, selects, _ := unstructured.NestedMap(service.Object, "spec", "selector")
	if host != "server.test" || kind != "ExternalName" || selects {
		t.Errorf("Service has host %q, type %q, selector %v", host, kind, selects)
	}
	apiService := found["APIService "+APIServiceName]
	if apiService == nil {
		t.Fatal("the APIService is missing")
	}
	port, _, _ := unstructured.NestedInt64(apiService.Object, "spec", "service", "port")
	bundle, _, _ := unstructured.NestedString(apiService.Object, "spec", "caBundle")
	if port != 8443 || bundle != base64.StdEncoding.EncodeToString([]byte("authority")) {
		t.Errorf("APIService has port %d and authority %q", port, bundle)
	}
}

func TestNobodyGetsRightsThatAreNotUsed(t *testing.T) {
	objects, err := manifests(Options{Host: "localhost", Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if strings.HasSuffix(object.GetKind(), "Binding") || object.GetKind() == "ServiceAccount" {
			t.Errorf("%s is applied for a server that acts as the user of its kubeconfig", describe(object))
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Config: &rest.Config{}, Host: "localhost", Port: 6443, CABundle: []byte("authority")}
	for name, test := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"Good":          {change: func(*Options) {}},
		"IPv4":          {change: func(o *Options) { o.Host = "192.0.2.1" }},
		"NoConfig":      {change: func(o *Options) { o.Config = nil }, want: "no configuration"},
		"NoPort":        {change: func(o *Options) { o.Port = 0 }, want: "port 0 is not between"},
		"HugePort":      {change: func(o *Options) { o.Port = 65536 }, want: "port 65536 is not between"},
		"NoHost":        {change: func(o *Options) { o.Host = "" }, want: `host ""`},
		"HostWithPort":  {change: func(o *Options) { o.Host = "localhost:6443" }, want: `host "localhost:6443"`},
		"IPv6":          {change: func(o *Options) { o.Host = "::1" }, want: "use a DNS name"},
		"NoAuthority":   {change: func(o *Options) { o.CABundle = nil }, want: "no certificate authority"},
		"NegativeWait":  {change: func(o *Options) { o.Timeout = -1 }, want: "is negative"},
		"AllOfThemSaid": {change: func(o *Options) { *o = Options{} }, want: "no certificate authority"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			test.change(&o)
			err := o.Validate()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}
