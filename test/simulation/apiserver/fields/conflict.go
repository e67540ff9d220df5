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

package fields

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
)

// conflict is the error of an apply that would change fields of other managers.
func (m *managed) conflict(conflicts merge.Conflicts) error {
	conflicts = slices.Clone(conflicts)
	slices.SortFunc(conflicts, func(a, b merge.Conflict) int {
		return cmp.Or(cmp.Compare(m.describe(a.Manager), m.describe(b.Manager)), a.Path.Compare(b.Path))
	})
	causes := make([]metav1.StatusCause, len(conflicts))
	for i, c := range conflicts {
		causes[i] = metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + m.describe(c.Manager), Field: c.Path.String(),
		}
	}
	if len(conflicts) == 1 {
		return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with 1 conflict: %s: %v", causes[0].Message, conflicts[0].Path))
	}
	var lines []string
	for i, c := range conflicts {
		if i == 0 || conflicts[i-1].Manager != c.Manager {
			lines = append(lines, fmt.Sprintf("conflicts with %s:", m.describe(c.Manager)))
		}
		lines = append(lines, fmt.Sprintf("- %v", c.Path))
	}
	return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n")))
}

// describe names an entry for people.
func (m *managed) describe(name string) string {
	i := m.identity(name)
	text := fmt.Sprintf("%q", i.manager)
	if i.subresource != "" {
		text += fmt.Sprintf(" with subresource %q", i.subresource)
	}
	if i.operation == string(metav1.ManagedFieldsOperationUpdate) {
		text += " using " + i.apiVersion
	}
	return text
}
