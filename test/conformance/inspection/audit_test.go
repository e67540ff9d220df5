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

package inspection

import (
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// written returns what the server wrote in the stage's namespace, in its order, events included, each as in "patch things/status a". Dry runs,
// and what was refused, is left out.
func (s *stage) written() []string {
	s.T.Helper()
	list := []string{}
	for _, e := range s.Audited(s.T, s.Name) {
		if strings.HasPrefix(e.UserAgent, "metacontroller-apiserver/") && !strings.Contains(e.RequestURI, "dryRun=All") &&
			(e.ResponseStatus == nil || e.ResponseStatus.Code < 300) {
			list = append(list, cluster.AuditedRequest(&e)+" "+e.ObjectRef.Name)
		}
	}
	return list
}

// withoutEvents are the writes that are no events, in no order.
func withoutEvents(writes []string) []string {
	list := slices.DeleteFunc(slices.Clone(writes), func(w string) bool { return strings.Contains(w, " events ") })
	slices.Sort(list)
	return list
}

// resources are the resources of the kinds that hooks return.
var resources = map[string]string{"ConfigMap": "configmaps", "Secret": "secrets"}

// writesOf are the writes that plans announce, and the creation that follows a recreation, in no order.
func writesOf(plans []v1alpha1.ParentPlan) []string {
	list := []string{}
	for i := range plans {
		for _, c := range plans[i].Children {
			resource, update := resources[c.Kind], "update"
			create := "create"
			if c.FieldManager != "" {
				update, create = "patch", "patch"
			}
			switch c.Action {
			case v1alpha1.ChildCreate:
				list = append(list, create+" "+resource+" "+c.Name)
			case v1alpha1.ChildUpdate:
				list = append(list, update+" "+resource+" "+c.Name)
			case v1alpha1.ChildAdopt, v1alpha1.ChildRelease:
				list = append(list, "patch "+resource+" "+c.Name)
			case v1alpha1.ChildDelete:
				list = append(list, "delete "+resource+" "+c.Name)
			case v1alpha1.ChildRecreate:
				list = append(list, "delete "+resource+" "+c.Name, create+" "+resource+" "+c.Name)
			case v1alpha1.ChildLeave, v1alpha1.ChildRefuse:
			}
		}
		list = append(list, parentWrites(&plans[i])...)
	}
	slices.Sort(list)
	return list
}

// parentWrites are those of the parent itself: the finalizer, the status, and labels and annotations are one write each.
func parentWrites(p *v1alpha1.ParentPlan) []string {
	var list []string
	for _, part := range [][]string{{"metadata.finalizers"}, {"status"}, {"metadata.labels", "metadata.annotations"}} {
		if !slices.ContainsFunc(p.Changes, func(c v1alpha1.FieldChange) bool {
			return slices.ContainsFunc(part, func(path string) bool { return strings.HasPrefix(c.Path, path) })
		}) {
			continue
		}
		resource := "things"
		if part[0] == "status" {
			resource += "/status"
		}
		list = append(list, "patch "+resource+" "+p.Name)
	}
	return list
}

// remembered is what the server says that it remembers and has done.
func (s *stage) remembered() map[string]float64 {
	s.T.Helper()
	page, err := s.Server.Metrics(s.T.Context(), "metacontroller_remembered", "metacontroller_expectations_pending", "workqueue_adds_total")
	if err != nil {
		s.T.Fatal(err)
	}
	name := s.controller.Kind + "-" + s.controller.Name
	values := map[string]float64{}
	for _, what := range []string{"parents", "children", "customize_responses", "etag_responses", "own_writes", "synced_parents"} {
		if n, ok := page.Value("metacontroller_remembered", "controller", name, "what", what); ok {
			values[what] = n
		}
	}
	values["expectations"], _ = page.Value("metacontroller_expectations_pending", "controller", name)
	values["adds"], _ = page.Value("workqueue_adds_total", "name", name)
	return values
}
