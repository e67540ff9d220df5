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

package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

const (
	// lately is how old a Warning may be, and maxWarnings how many of a controller are printed.
	lately      = time.Hour
	maxWarnings = 3
	// warningPage is how many Warnings are read.
	warningPage = 500
)

// toldElsewhere are the reasons of Warnings of which conditions and errors of parents tell more, and which are over when these say so.
var toldElsewhere = []string{"CreateError", "SyncError", "DeletionsHeld", "ResponseDiffers", "ParentFlapping"}

// A Warning is an event of a controller.
type Warning struct {
	// controller is the event's component: the qualified name of a controller, or that of all.
	controller string
	// about is an object of kind, with its namespace.
	kind, name, about string
	reason, message   string
	time              metav1.Time
}

// WarningsOf reads the Warnings of all controllers, the latest first. Whoever may not list events reads none.
func WarningsOf(ctx context.Context, c *connection.Connection) []Warning {
	client, err := c.Objects()
	if err != nil {
		return nil
	}
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("events")).List(ctx, metav1.ListOptions{
		FieldSelector: "type=Warning,source=metacontroller", Limit: warningPage,
	})
	if err != nil {
		return nil
	}
	var warnings []Warning
	for i := range list.Items {
		var e corev1.Event
		if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &e) != nil || slices.Contains(toldElsewhere, e.Reason) {
			continue
		}
		about := e.InvolvedObject
		warnings = append(warnings, Warning{
			controller: e.ReportingController, kind: about.Kind, name: about.Name, about: strings.TrimPrefix(about.Namespace+"/"+about.Name, "/"),
			reason: e.Reason, message: oneLine(e.Message), time: e.LastTimestamp,
		})
	}
	slices.SortStableFunc(warnings, func(a, b Warning) int { return cmp.Compare(b.time.UnixNano(), a.time.UnixNano()) })
	return warnings
}

// warningLines tell of the Warnings about a controller and its parents, each once.
func warningLines(object controllerobject.Object, warnings []Warning, now time.Time) []string {
	var lines []string
	seen := map[string]bool{}
	qualified := "metacontroller.io/" + strings.ToLower(object.Kind()) + "-" + object.Name()
	for _, w := range warnings {
		mine := w.controller == qualified || w.kind == object.Kind() && w.name == object.Name()
		if text := w.reason + w.message; mine && !seen[text] && now.Sub(w.time.Time) < lately && len(lines) < maxWarnings {
			seen[text] = true
			lines = append(lines, fmt.Sprintf("%s, %s %s, %s ago: %s", w.reason, w.kind, w.about, age(w.time, now), w.message))
		}
	}
	return lines
}
