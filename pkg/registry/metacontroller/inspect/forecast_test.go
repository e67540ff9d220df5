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

package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
)

// outlook is an engine whose candidates have plans by the names of parents, whose words are actions of children, and errors that begin with !. Numbers
// tell parents apart.
type outlook struct {
	engine

	// fails is the error of candidates, stuck has them wait as long as they may, and panics is a fault.
	fails         error
	stuck, panics bool

	mu         sync.Mutex
	candidates []string
	// deletions says how many plans were about deletions alone, and shut how many candidates were shut.
	deletions, shut int
}

func (o *outlook) Candidate(ctx context.Context, object runtime.Object) (inspection.Controller, func(), error) {
	o.candidates = append(o.candidates, object.(*v1alpha1.CompositeController).Name)
	switch {
	case o.panics:
		panic("no luck")
	case o.stuck:
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return o, func() { o.shut++ }, o.fails
}

func (o *outlook) Plan(ctx context.Context, p v1alpha1.ParentReference, options inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if options.Deletions {
		o.deletions++
	}
	plan := v1alpha1.ParentPlan{ParentReference: p}
	for word := range strings.FieldsSeq(strings.ReplaceAll(p.Name, ".", " ")) {
		switch {
		case word == "slow":
			o.mu.Unlock()
			<-ctx.Done()
			o.mu.Lock()
		case word[0] <= '9' && word[0] >= '0':
		case strings.HasPrefix(word, "!"):
			plan.Error = "calling the hook:\n" + word[1:]
		default:
			plan.Children = append(plan.Children, v1alpha1.ChildPlan{Action: v1alpha1.ChildAction(word)})
		}
	}
	return plan, nil
}

// warnings records warnings.
type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

const mayPlan, mayGet = "create compositecontrollers/plan", "get things,get secrets"

func TestWritesAreWarnedOfWhatSyncsWouldDo(t *testing.T) {
	const see = "; see 'kubectl metacontroller plan --all -f FILE'"
	const stop = "; 'kubectl metacontroller pause cc/c' stops them"
	many := make([]string, maxLimit+80)
	for i := range many {
		many[i] = fmt.Sprintf("Leave.%d", i)
	}
	for name, tc := range map[string]struct {
		parents []string
		outlook *outlook
		absent  bool
		allowed string // Empty: everything that it takes.
		paused  bool
		// was is the state before an update.
		was     *metacontroller.CompositeController
		manager string
		dry     string
		live    string
	}{
		"no parents": {},
		"no changes": {parents: []string{"Leave.1", "Leave.2"}, dry: "0 of 2 parents would change" + see},
		"a change":   {parents: []string{"Leave", "Create"}, dry: "1 of 2 parents would change: 1 child created" + see},
		"every state": {
			parents: []string{"Create.Create", "Update", "Recreate", "Delete.Delete.Delete", "Adopt", "Release", "Refuse", "Leave"},
			dry:     "6 of 8 parents would change: 2 children created, 1 updated, 1 recreated, 3 deleted, 1 adopted, 1 released, 1 refused" + see,
			live:    "syncs with this definition: 1 child recreated, 3 deleted" + stop,
		},
		"hooks that are down": {
			parents: []string{"!no.1", "!no.2"}, dry: "0 of 2 parents would change; 2 syncs would fail, the first with: calling the hook: no" + see,
		},
		"a failure and a deletion": {
			parents: []string{"!no", "Delete"}, dry: "1 of 2 parents would change: 1 child deleted; 1 sync would fail, the first with: calling the hook: no" + see,
			live: "syncs with this definition: 1 child deleted" + stop,
		},
		"more parents than are looked at": {
			parents: append([]string{"Delete"}, many...), dry: "1 of 500 parents would change: 1 child deleted; 81 parents were not looked at" + see,
			live: "syncs with this definition: 1 child deleted; 81 parents were not looked at" + stop,
		},
		"a hook that becomes slow": {
			parents: []string{"Delete.1", "Delete.2", "Delete.3", "Delete.4", "slow.5"},
			dry:     "4 of 4 parents would change: 4 children deleted; 1 parent was not looked at" + see,
			live:    "syncs with this definition: 4 children deleted; 1 parent was not looked at" + stop,
		},
		"a slow hook": {
			parents: []string{"slow.1", "slow.2"},
			dry:     "what syncs would do was not looked at: no parent was planned within 2s; is the hook slow?",
		},
		"caches that do not fill": {
			outlook: &outlook{stuck: true}, dry: "what syncs would do was not looked at: no parent was planned within 2s; is the hook slow?",
		},
		"a candidate that cannot run": {
			outlook: &outlook{fails: errors.New("things are not served")}, dry: "what syncs would do was not looked at: things are not served",
		},
		"a fault of ours": {
			outlook: &outlook{panics: true},
			dry:     "what syncs would do was not looked at: panic while planning for a warning: no luck; this is a bug, and the server's log says where",
		},
		"no engine": {
			absent: true,
			dry: "what syncs would do was not looked at: nothing is known here of the parents of controllers: this server does not run controllers at present. " +
				"It may be starting or ending: try again",
		},
		"a caller without the right to plan": {
			parents: []string{"Delete"}, allowed: mayGet,
			dry: `what syncs would do was not looked at: user "jane" may not create compositecontrollers/plan`,
		},
		"a caller who sees no parent": {
			parents: []string{"Delete"}, allowed: mayPlan,
			dry: "no parent was looked at; 1 parent was left out, because you may not get them, their children or their related objects" + see,
		},
		"a caller who sees some parents": {
			parents: []string{"Delete", "elsewhere/Delete"}, allowed: mayPlan + ",get things one,get secrets one",
			dry:  "1 of 1 parent would change: 1 child deleted; 1 parent was left out, because you may not get them, their children or their related objects" + see,
			live: "syncs with this definition: 1 child deleted; 1 parent was left out, because you may not get them, their children or their related objects" + stop,
		},
		"a paused controller": {
			parents: []string{"Delete"}, paused: true,
			dry: "1 of 1 parent would change: 1 child deleted; nothing is synced while the controller is paused" + see,
		},
		"the end of a pause": {
			parents: []string{"Delete"}, was: &metacontroller.CompositeController{Spec: v1alpha1.CompositeControllerSpec{Paused: new(true)}},
			dry: "1 of 1 parent would change: 1 child deleted" + see,
		},
		"another pace": {
			parents: []string{"Delete"}, was: &metacontroller.CompositeController{Spec: v1alpha1.CompositeControllerSpec{
				Workers: new(int32(3)), ResyncPeriodSeconds: new(int32(30)),
			}},
			dry: "1 of 1 parent would change: 1 child deleted" + see,
		},
		"another definition": {
			parents: []string{"Delete"}, was: &metacontroller.CompositeController{Spec: v1alpha1.CompositeControllerSpec{GenerateSelector: new(true)}},
			dry: "1 of 1 parent would change: 1 child deleted" + see, live: "syncs with this definition: 1 child deleted" + stop,
		},
		"the candidate of a plan": {parents: []string{"Delete"}, manager: candidateManager},
	} {
		for _, dryRun := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, dry run %t", name, dryRun), func(t *testing.T) {
				t.Parallel()
				o := &outlook{}
				if tc.outlook != nil {
					o.fails, o.stuck, o.panics = tc.outlook.fails, tc.outlook.stuck, tc.outlook.panics
				}
				for _, each := range tc.parents {
					namespace, parent, found := strings.Cut(each, "/")
					if !found {
						namespace, parent = "one", each
					}
					o.parents = append(o.parents, thing(namespace, parent))
				}
				got, want := warn(t, o, tc.allowed, tc.absent, tc.paused, tc.was, controller.Write{DryRun: dryRun, Manager: tc.manager}), tc.live
				if dryRun {
					want = tc.dry
				}
				if diff := cmp.Diff(strings.TrimSpace(want), strings.Join(got, "\n")); diff != "" {
					t.Errorf("the warnings (-want +got):\n%s", diff)
				}
				if dryRun && o.deletions > 0 {
					t.Errorf("%d plans of a dry run were about deletions alone", o.deletions)
				}
				if n := len(o.candidates); !o.stuck && !o.panics && o.fails == nil && o.shut != n {
					t.Errorf("%d of %d candidates were shut", o.shut, n)
				}
			})
		}
	}
}

// warn writes the controller c as jane, and returns the warnings.
func warn(t *testing.T, o *outlook, allowed string, absent, paused bool, was *metacontroller.CompositeController, write controller.Write) []string {
	t.Helper()
	if allowed == "" {
		allowed = mayPlan + "," + mayGet
	}
	s, ctx := scene(t, o, &reviews{allowed: strings.Split(allowed, ",")})
	if absent {
		s.config.Engine = &inspection.Link{}
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object := &metacontroller.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if paused {
		object.Spec.Paused = new(true)
	}
	var got warnings
	var stored runtime.Object
	if was != nil {
		stored = was
	}
	s.WarnOfPlans(scheme, s.kind, s.resource)(warning.WithWarningRecorder(ctx, &got), object, stored, write)
	return got
}

func TestARealWriteLooksForDeletionsAlone(t *testing.T) {
	o := &outlook{engine: engine{parents: []inspection.Parent{thing("one", "Delete"), thing("one", "Leave")}}}
	warn(t, o, "", false, false, nil, controller.Write{})
	if o.deletions != 2 {
		t.Errorf("%d of 2 plans were about deletions alone", o.deletions)
	}
}

func TestPauseOfANewControllerCostsNothing(t *testing.T) {
	o := &outlook{engine: engine{parents: []inspection.Parent{thing("one", "Delete")}}}
	warn(t, o, "", false, true, nil, controller.Write{})
	if len(o.candidates) > 0 {
		t.Error("a candidate was made of a paused controller that is written")
	}
}

func TestPlansForWarningsWaitForTheirTurn(t *testing.T) {
	const refused = "what syncs would do was not looked at: 2 plans for warnings are being worked out already, which is the most at the same time; try again"
	for name, tc := range map[string]struct {
		dryRun, leaves bool
		want           string
	}{
		"a dry run that it never is": {dryRun: true, want: refused},
		"a write that it never is":   {},
		"a write that it is soon":    {leaves: true, want: "syncs with this definition: 1 child deleted; 'kubectl metacontroller pause cc/c' stops them"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &outlook{engine: engine{parents: []inspection.Parent{thing("one", "Delete")}}}
				s, ctx := scene(t, o, &reviews{allowed: slices.Concat(strings.Split(mayGet, ","), []string{mayPlan})})
				for range maxPlans {
					_, leave, err := s.forecasts.enter(ctx)
					if err != nil {
						t.Fatal(err)
					}
					if tc.leaves {
						time.AfterFunc(forecastLimit/2, leave)
					} else {
						t.Cleanup(leave)
					}
				}
				scheme := runtime.NewScheme()
				install.Install(scheme)
				var got warnings
				object, began := &metacontroller.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, time.Now()
				s.WarnOfPlans(scheme, s.kind, s.resource)(warning.WithWarningRecorder(ctx, &got), object, nil, controller.Write{DryRun: tc.dryRun})
				if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
					t.Errorf("the warning (-want +got):\n%s", diff)
				}
				if took := time.Since(began); took > forecastLimit {
					t.Errorf("the write waited for %s", took)
				}
			})
		})
	}
}

func TestWritesWithoutAUserAreNotWarned(t *testing.T) {
	o := &outlook{}
	s, ctx := scene(t, o, &reviews{})
	scheme := runtime.NewScheme()
	install.Install(scheme)
	var got warnings
	ctx = warning.WithWarningRecorder(genericapirequest.WithUser(ctx, nil), &got)
	s.WarnOfPlans(scheme, s.kind, s.resource)(ctx, &metacontroller.CompositeController{}, nil, controller.Write{})
	if len(got) > 0 || len(o.candidates) > 0 {
		t.Errorf("warnings %q, candidates %q", got, o.candidates)
	}
}
