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

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestChildrenOfBuiltInKindsSettle(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range map[string]struct{ guess, serverSide bool }{
		"lists merged by schema":   {false, false},
		"lists merged by guessing": {true, false},
		"server-side apply":        {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range files {
				t.Run(strings.TrimSuffix(file.Name(), ".yaml"), func(t *testing.T) {
					t.Parallel()
					s := newScene(t)
					s.noSchema, s.serverSide = how.guess, how.serverSide
					content := s.load(t, file.Name(), v1alpha1.ChildUpdateInPlace)
					if how.serverSide {
						withoutDuplicates(content)
					}
					settles(t, s, content)
				})
			}
		})
	}
}

// withoutDuplicates takes out of a Pod the variable that is there twice, which merging takes and server-side apply refuses.
func withoutDuplicates(content map[string]any) {
	if content["kind"] != "Pod" {
		return
	}
	spec, _ := content["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	main, _ := containers[0].(map[string]any)
	env, _ := main["env"].([]any)
	main["env"] = env[:len(env)-1]
}

func TestServerSideApplyRefusesItemsThatAreThereTwice(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.serverSide = true
	_, err := s.sync(t, s.input(t, nil, s.load(t, "pod.yaml", v1alpha1.ChildUpdateInPlace)))
	const want = `.spec.containers[name="main"].env: duplicate entries for key [name="TWICE"]`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// settles creates a child, changes it, and looks for writes after each step and after a restart.
func settles(t *testing.T, s *scene, content map[string]any) {
	t.Helper()
	s.gets(t, plan.Create, content)
	s.quiet(t, "after the create", content)
	s.restart()
	s.quiet(t, "after the create and a restart", content)

	relabel(content)
	s.gets(t, plan.Update, content)
	s.quiet(t, "after the update", content)
	s.restart()
	s.quiet(t, "after the update and a restart", content)
}

// relabel changes what is desired.
func relabel(content map[string]any) {
	metadata, _ := content["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
		metadata["labels"] = labels
	}
	labels["changed"] = "yes"
}

// gets syncs until the child was written in the way that is expected: controllers may write it at the same time.
func (s *scene) gets(t *testing.T, want plan.Action, content map[string]any) plan.Outcome {
	t.Helper()
	for range 20 {
		outcomes, err := s.sync(t, s.input(t, nil, content))
		if err != nil {
			t.Fatal(err)
		}
		if len(outcomes) == 1 && outcomes[0].Stale {
			continue
		}
		if len(outcomes) != 1 || outcomes[0].Action != want {
			t.Fatalf("the child is not subject to %s: %+v", want, outcomes)
		}
		if outcomes[0].Done {
			return outcomes[0]
		}
	}
	t.Fatalf("%s always comes too late", want)
	return plan.Outcome{}
}

// TestChildrenOfBuiltInKindsAreRecreatedOnlyWhenTheyChange is what counts most for the method Recreate: a difference that is
// none costs the child.
func TestChildrenOfBuiltInKindsAreRecreatedOnlyWhenTheyChange(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for name, serverSide := range both(files) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.serverSide = serverSide
			file, _, _ := strings.Cut(name, " ")
			content := s.load(t, file+".yaml", v1alpha1.ChildUpdateRecreate)
			unscheduled(content)
			if serverSide {
				withoutDuplicates(content)
			}
			before := s.gets(t, plan.Create, content).Written
			s.quiet(t, "after the create", content)
			s.restart()
			s.quiet(t, "after the create and a restart", content)

			relabel(content)
			s.gets(t, plan.Recreate, content)
			// Some kinds have finalizers or a grace period.
			cluster.Eventually(t, cluster.Limit, "the new child", func(context.Context) (bool, string) {
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

// both returns the names of tests of files with both strategies, and whether they use server-side apply.
func both(files []os.DirEntry) map[string]bool {
	names := make(map[string]bool, 2*len(files))
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".yaml")
		names[name] = false
		names[name+" applied server-side"] = true
	}
	return names
}

// TestARestartRecreatesNothingThatTheServerWouldNotChange has children with fields that the server drops or that cannot be
// changed.
func TestARestartRecreatesNothingThatTheServerWouldNotChange(t *testing.T) {
	t.Parallel()
	for name, manifest := range map[string]string{
		"unknown fields": `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {slector: {app: web}, ports: [{port: 80, protcol: UDP}]}}`,
		"unknown fields of a Pod": `{apiVersion: v1, kind: Pod, metadata: {name: a, lables: {a: b}}, spec: {restartpolicy: Never,
			containers: [{name: a, image: a, imagePullPolcy: Never}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, content := declared(t, manifest, v1alpha1.ChildUpdateRecreate)
			before := s.gets(t, plan.Create, content).Written
			s.quiet(t, "after the create", content)
			s.restart()
			s.isAccepted(t, content)
			s.quiet(t, "after a restart", content)
			s.restart()
			s.patchChild(t, content, `{"metadata":{"annotations":{"theirs":"x"}}}`)
			s.isAccepted(t, content)
			if observed := s.input(t, nil, content).Observed[0]; observed.UID() != before.UID() {
				t.Error("it was made anew")
			}
		})
	}
}

// isAccepted syncs until nothing is to be done, and fails the test for each write.
func (s *scene) isAccepted(t *testing.T, content map[string]any) {
	t.Helper()
	for range 20 { // Controllers may write the child at the same time.
		outcomes, err := s.sync(t, s.input(t, nil, content))
		if err != nil {
			t.Fatal(err)
		}
		if len(outcomes) == 0 {
			return
		}
		if outcomes[0].Done {
			t.Fatalf("%+v", outcomes)
		}
	}
	t.Fatal("it is never accepted")
}

func TestDriftBeforeARestartIsSeenAfterIt(t *testing.T) {
	t.Parallel()
	s, content := declared(t, configMap, v1alpha1.ChildUpdateRecreate)
	s.gets(t, plan.Create, content)
	s.patchChild(t, content, `{"data":{"k":"theirs"}}`)
	s.restart()
	s.gets(t, plan.Recreate, content)
	s.gets(t, plan.Create, content)
	s.quiet(t, "after it was created anew", content)
}
