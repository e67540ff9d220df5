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

package hooks

import (
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// TestHooks runs the tests of this package on one server. Each is named after its section of the contract. What is the same
// code for both kinds of controllers is tested with one of them.
func TestHooks(t *testing.T) {
	s := setUp(t)
	both, one := []fixture.Kind{fixture.Composite, fixture.Decorator}, []fixture.Kind{fixture.Decorator}
	for _, test := range []struct {
		name  string
		kinds []fixture.Kind
		run   func(t *testing.T, s *shared, kind fixture.Kind)
	}{
		{"02_ASecretThatAppearsLater", both, testMissingSecret},
		{"02_ARotatedToken", both, testRotation},
		{"16_AKindThatIsServedLater", both, testLatecomer},
		{"16_OnlyParentsThatSelectAreCalled", both, testSelection},
		{"16_NamespaceSelectorFollowsLabels", both, testNamespaceSelector},
		{"16_RefusedRulesAreEvents", both, testRefusedRules},
		{"16_ScopeDependsOnTheVersion", both, testScope},
		{"16_ResponsesAreKeptUntilTheParentChanges", both, testResponsesAreKept},
		{"02_SourcesOfCABundles", one, testBundles},
		{"02_TLSFaultsAreEvents", one, testTLSFaults},
		{"02_ClientCertificate", one, testClientCertificate},
		{"02_AuthorizationHeader", one, testHeaders},
		{"02_Tags", both, testTags},
		{"02_StrictAndLoose", one, testModes},
		{"05_Resync", both, testResync},
		{"05_IgnoreStatusChanges", both, testIgnoreStatus},
		{"05_ParentsAreSelectedByTheAPIServer", both, testServerSideSelection},
		{"09_Requests", both, testRequests},
		{"18_RetryAfter", both, testRetryAfter},
		{"18_BackoffWithoutRetryAfter", one, testBackoff},
		{"18_MisbehavingHooks", one, testMisbehaving},
	} {
		for _, kind := range test.kinds {
			t.Run(test.name+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				test.run(t, s, kind)
			})
		}
	}
}
