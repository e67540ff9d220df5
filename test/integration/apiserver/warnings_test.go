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

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestAuthorsAreToldWhatTheClusterMisses prints what kubectl prints, and creates nothing but the neighbor.
func TestAuthorsAreToldWhatTheClusterMisses(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	namespace := c.Namespace(t)
	c.Kubectl(t, "-n", namespace, "create", "service", "clusterip", "starting", "--tcp=80")
	c.Kubectl(t, "-n", namespace, "create", "secret", "generic", "credentials", "--from-literal=token=x")
	manifest := func(name, rest string) string {
		return strings.NewReplacer("NAMESPACE", namespace, "NAME", name).Replace(
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"NAME"},"spec":{"generateSelector":true,` + rest + `}}`)
	}
	hook := func(webhook string) string {
		return `"parentResource":{"apiVersion":"v1","resource":"pods"},"hooks":{"sync":{"webhook":{` + webhook + `}}}`
	}
	neighbor := manifest("neighbor", `"parentResource":{"apiVersion":"apps/v1","resource":"deployments","labelSelector":{"matchLabels":{"test":"neighbor"}}},`+
		`"childResources":[{"apiVersion":"v1","resource":"pods"}],"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}}`)
	c.KubectlInput(t, neighbor, "create", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, neighbor, "delete", "-f", "-") })

	const reachable = `"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}}`
	for name, test := range map[string]struct {
		rest string
		want []string
	}{
		"all-is-well": {rest: `"parentResource":{"apiVersion":"v1","resource":"pods"},"childResources":[{"apiVersion":"v1","resource":"configmaps"}],` + reachable},
		"kinds": {
			`"parentResource":{"apiVersion":"v1","resource":"deployment"},"childResources":[{"apiVersion":"v1","resource":"configmap"}],` + reachable,
			[]string{
				"spec.parentResource: the cluster does not serve deployment in v1; the controller starts when it does; did you mean deployments in apps/v1?",
				"spec.childResources[0]: the cluster does not serve configmap in v1; the controller goes without it until it does; did you mean configmaps?",
			},
		},
		"scope": {
			`"parentResource":{"apiVersion":"v1","resource":"configmaps"},"childResources":[{"apiVersion":"v1","resource":"nodes"}],` + reachable,
			[]string{
				"spec.parentResource: configmaps have no status subresource",
				"spec.childResources[0]: nodes are cluster-scoped and configmaps are namespaced",
			},
		},
		"service-missing":   {hook(`"service":{"name":"hook","namespace":"NAMESPACE"},"path":"/"`), []string{"Service " + namespace + "/hook does not exist"}},
		"service-unready":   {hook(`"service":{"name":"starting","namespace":"NAMESPACE"},"path":"/"`), []string{"Service " + namespace + "/starting has no ready endpoints"}},
		"service-port":      {hook(`"url":"http://starting.NAMESPACE.svc:81/"`), []string{"spec.hooks.sync.webhook.url: Service " + namespace + "/starting has no port 81"}},
		"secret-key":        {hook(`"url":"https://127.0.0.1:1/","authorization":{"secretRef":{"name":"credentials","namespace":"NAMESPACE","key":"tokn"}}`), []string{`Secret ` + namespace + `/credentials has no key "tokn"`}},
		"config-map":        {hook(`"url":"https://127.0.0.1:1/","caBundle":{"configMapRef":{"name":"authority","namespace":"NAMESPACE"}}`), []string{"ConfigMap " + namespace + "/authority does not exist"}},
		"the-same-parents":  {`"parentResource":{"apiVersion":"apps/v1","resource":"deployments"},` + reachable, []string{"spec.parentResource: CompositeController neighbor handles deployments.apps too"}},
		"a-circle-over-two": {`"parentResource":{"apiVersion":"v1","resource":"pods"},"childResources":[{"apiVersion":"apps/v1","resource":"deployments"}],` + reachable, []string{"CompositeController neighbor makes pods of deployments.apps, which this controller handles"}},
	} {
		t.Run(name, func(t *testing.T) {
			var output string
			// An answer has no warning whose lookup takes too long.
			cluster.Eventually(t, time.Minute, fmt.Sprintf("kubectl to say %q", test.want), func(context.Context) (bool, string) {
				output = c.KubectlInput(t, manifest(name, test.rest), "create", "--dry-run=server", "-f", "-")
				return !slices.ContainsFunc(test.want, func(want string) bool { return !strings.Contains(output, want) }), output
			})
			if len(test.want) == 0 && strings.Contains(output, "Warning") {
				t.Errorf("kubectl warns of nothing:\n%s", output)
			}
		})
	}
}
