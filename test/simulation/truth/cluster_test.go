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

package truth_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
)

var definitionName = regexp.MustCompile(`"metadata":\{"name":"([^"]+)"`)

// define creates a CustomResourceDefinition and waits until its kind is served at a path.
func (c *client) define(definition, path string) {
	c.t.Helper()
	c.silently(func() { c.post(201, crds, definition) })
	c.settle(200, path)
	if c.simulation != nil {
		return
	}
	name := definitionName.FindStringSubmatch(definition)[1]
	c.t.Cleanup(func() { c.remove(crds + "/" + name) })
	// It is served a moment before its conditions say so.
	c.until(crds+"/"+name, isEstablished)
}

func isEstablished(definition object) bool {
	status, _ := definition["status"].(object)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(object)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}

// remove deletes an object at the end of a row.
func (c *client) remove(path string) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, c.host+path, http.NoBody) //nolint:forbidigo // The test's context has ended.
	if err != nil {
		c.t.Error(err)
		return
	}
	deleted, err := c.http.Do(request)
	if err != nil {
		c.t.Error(err)
		return
	}
	_ = deleted.Body.Close()
}

// redefine changes a CustomResourceDefinition by a JSON patch, and waits until a function sees that it is served so.
func (c *client) redefine(name, patch string, seen func() bool) {
	c.t.Helper()
	c.silently(func() {
		c.patch(200, jsonPatchType, crds+"/"+name, patch)
		cluster.Eventually(c.t, limit, "the definition "+name+" as it was changed", func(context.Context) (bool, string) {
			return seen(), ""
		})
	})
}

// forget makes the simulation forget its history. The real one has forgotten its first versions at its start.
func (c *client) forget() {
	if c.simulation != nil {
		c.simulation.Use(func(s *apiserver.Server) { s.Compact() })
	}
}
