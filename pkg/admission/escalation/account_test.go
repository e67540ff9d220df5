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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// as lets a controller act as a service account.
func as(namespace, name string) func(*v1alpha1.CompositeControllerSpec) {
	return func(s *v1alpha1.CompositeControllerSpec) {
		s.ServiceAccountRef = &v1alpha1.ServiceAccountReference{Namespace: namespace, Name: name}
	}
}

// What the account may do is the account's, whatever the definition says.
func TestWhoLetsAControllerActAsAServiceAccount(t *testing.T) {
	everything := func(s *v1alpha1.CompositeControllerSpec) {
		s.Hooks.Customize = hook("http://hook/customize")
		s.Hooks.Sync.Webhook.ClientTLS = &v1alpha1.ClientTLS{SecretRef: v1alpha1.SecretReference{Namespace: "ns", Name: "pair"}}
	}
	const impersonate = "impersonate serviceaccounts team/web"
	account := &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "web"}
	for name, test := range map[string]struct{ object, old runtime.Object }{
		"a creation":               {composite(as("team", "web"), everything), nil},
		"a decorator":              {decorator(func(s *v1alpha1.DecoratorControllerSpec) { s.ServiceAccountRef = account }), nil},
		"a change of the account":  {composite(as("team", "web")), composite(as("team", "other"))},
		"the first account":        {composite(as("team", "web")), composite()},
		"another child":            {composite(as("team", "web")), composite(as("team", "web"), everything)},
		"the account of a dry run": {composite(as("team", "web")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			dryRun := strings.HasSuffix(name, "dry run")
			c := &cluster{may: all(impersonate)}
			if err := newPlugin(t, c).Validate(t.Context(), write(test.object, test.old, dryRun), nil); err != nil {
				t.Errorf("who may impersonate the account is refused: %v", err)
			}
			if got := c.questions(); len(got) != 2 || got[1] != impersonate {
				t.Errorf("asked for %q", got)
			}
			err := newPlugin(t, &cluster{may: but(impersonate)}).Validate(t.Context(), write(test.object, test.old, dryRun), nil)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "this controller would act as a service account that its author "+
				"may not impersonate; user \"eve\" lacks, in all namespaces unless one is named:\n- "+impersonate+"\nGrant these rights, or the verb escalate") {
				t.Errorf("who may do all else got %v", err)
			}
		})
	}
	t.Run("and takes it off again", func(t *testing.T) {
		err := newPlugin(t, &cluster{may: all(impersonate)}).Validate(t.Context(), write(composite(), composite(as("team", "web")), false), nil)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the server's rights") {
			t.Errorf("the controller would act as the server, and its author got %v", err)
		}
	})
}
