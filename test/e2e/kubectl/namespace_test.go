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

package kubectl

import (
	"context"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// aNamespaceWithRevisionsIsDeletable guards docs/design/0002-json-only.md: the namespace controller asks for protobuf
// first when it deletes what a namespace holds, and must not be promised what the server cannot write.
func aNamespaceWithRevisionsIsDeletable(t *testing.T, c *cluster.Cluster) {
	c.Kubectl(t, "create", "namespace", "with-revisions")
	for _, name := range []string{"one", "two"} {
		c.KubectlInput(t, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"`+name+`"},
			"parentPatch":{"spec":{"who":"`+name+`"}},
			"children":[{"apiGroup":"","kind":"Pod","names":["pod-of-`+name+`"]}]}`,
			"-n", "with-revisions", "create", "-f", "-")
	}
	revisions := "controllerrevisions.metacontroller.k8s.io"
	expect(t, c.Kubectl(t, "-n", "with-revisions", "get", revisions), "one", "two")
	expect(t, c.Kubectl(t, "-n", "with-revisions", "get", revisions, "one", "-o", "jsonpath={.parentPatch.spec.who}"), "one")

	c.Kubectl(t, "delete", "namespace", "with-revisions", "--wait=false")

	// The controller of namespaces looks again after pauses that grow when something was left.
	cluster.Eventually(t, 3*limit, "the namespace to be gone", func(ctx context.Context) (bool, string) {
		output, err := c.TryKubectl(ctx, "", "get", "namespace", "with-revisions", "-o", "yaml")
		return err != nil && strings.Contains(output, "(NotFound)"), output
	})
}
