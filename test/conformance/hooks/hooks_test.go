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

import "testing"

// TestHooks runs the tests of this package on one server. Each is named after its section of the contract.
func TestHooks(t *testing.T) {
	s := setUp(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *shared, kind string)
	}{
		{"02_SourcesOfCABundles", testBundles},
		{"02_TLSFaultsAreEvents", testTLSFaults},
		{"02_ClientCertificate", testClientCertificate},
		{"02_AuthorizationHeader", testHeaders},
		{"02_ASecretThatAppearsLater", testMissingSecret},
		{"02_ARotatedToken", testRotation},
		{"02_Tags", testTags},
		{"02_StrictAndLoose", testModes},
		{"05_Resync", testResync},
		{"05_IgnoreStatusChanges", testIgnoreStatus},
		{"05_ParentsAreSelectedByTheAPIServer", testServerSideSelection},
		{"09_Requests", testRequests},
		{"18_RetryAfter", testRetryAfter},
		{"18_BackoffWithoutRetryAfter", testBackoff},
		{"18_MisbehavingHooks", testMisbehaving},
		{"16_NamespaceSelectorFollowsLabels", testNamespaceSelector},
		{"16_RefusedRulesAreEvents", testRefusedRules},
		{"16_ScopeDependsOnTheVersion", testScope},
		{"16_OnlyParentsThatSelectAreCalled", testSelection},
		{"16_AnswersAreKeptUntilTheParentChanges", testAnswersAreKept},
		{"16_AKindThatIsServedLater", testLatecomer},
	} {
		for _, kind := range kinds {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				test.run(t, s, kind)
			})
		}
	}
}
