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

package escalation_test

import (
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

func TestRefusal(t *testing.T) {
	object := composite(func(s *v1alpha1.CompositeControllerSpec) {
		s.Hooks.Customize = hook("http://hook/customize")
		s.Hooks.Sync.Webhook.ClientTLS = &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "ns", Name: "pair"}}
	})
	p := newPlugin(t, &cluster{may: but("create configmaps", "delete configmaps", "patch foos.example.com/status", "list *.*", "get secrets ns/pair")})
	const want = `compositecontrollers.metacontroller.k8s.io "x" is forbidden: this controller would use the server's rights for what ` +
		`its author may not do; user "eve" (groups ["a" "b"]) lacks, in all namespaces unless one is named:
- patch foos.example.com/status
- create, delete configmaps
- list all resources, because a customize hook may read any kind
- get secrets ns/pair
Grant these rights, or the verb escalate on compositecontrollers.metacontroller.k8s.io`
	for _, dryRun := range []bool{false, true} {
		err := p.Validate(t.Context(), write(object, nil, dryRun, "a", "b"), nil)
		if err == nil || err.Error() != want {
			t.Errorf("dry run %v: got %v", dryRun, err)
		}
	}
}

func TestARefusalSaysWhyPoliciesTakeAllKinds(t *testing.T) {
	object := composite(func(s *v1alpha1.CompositeControllerSpec) {
		s.ChildResources[0].ResourceRule = rule("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings")
	})
	err := newPlugin(t, &cluster{may: but("get *.*", "list *.*")}).Validate(t.Context(), write(object, nil, false), nil)
	if want := "\n- get, list all resources, because an admission policy may refer to any kind\n"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}
