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

package reconciler

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Several children may fail at once, each for its own reason.
func TestRefusalsAreFoundInErrors(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no"))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("no"))
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"itself":         {refused, true},
		"wrapped":        {fmt.Errorf("creating: %w", refused), true},
		"one of several": {fmt.Errorf("writing: %w", errors.Join(conflict, fmt.Errorf("creating: %w", refused))), true},
		"other errors":   {errors.Join(conflict, errors.New("no")), false},
		"none":           {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := forbidden(tc.err); got != tc.want {
				t.Errorf("%v: got %v", tc.err, got)
			}
		})
	}
}
