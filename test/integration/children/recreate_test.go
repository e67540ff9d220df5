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

package children

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// TestChildrenOfBuiltInKindsAreRecreatedOnlyWhenTheyChange is what counts most for the method Recreate: a difference that is
// none costs the child.
func TestChildrenOfBuiltInKindsAreRecreatedOnlyWhenTheyChange(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file.Name(), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			content := s.load(t, file.Name(), v1alpha1.ChildUpdateRecreate)
			before := s.gets(t, plan.Create, content).Written
			s.quiet(t, "after the create", content)
			s.restart()
			s.quiet(t, "after the create and a restart", content)

			metadata, _ := content["metadata"].(map[string]any)
			metadata["annotations"] = map[string]any{"changed": "yes"}
			s.gets(t, plan.Recreate, content)
			// Some kinds have finalizers or a grace period.
			cluster.Eventually(t, time.Minute, "the new child", func(context.Context) (bool, string) {
				outcomes, err := s.sync(t, s.input(t, nil, content))
				if err != nil || len(outcomes) != 1 || outcomes[0].Action != plan.Create || !outcomes[0].Done {
					return false, fmt.Sprintf("outcomes %+v, error %v", outcomes, err)
				}
				return outcomes[0].Written.UID() != before.UID(), "it is the same object"
			})
			s.quiet(t, "after it was created anew", content)
		})
	}
}
