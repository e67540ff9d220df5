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

package plan_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// normalizing is a server that stores another text for one value.
var normalizing = server{`"k":"v"},"kind"`, `"k":"V"},"kind"`}

func TestWhatTheServerReturnedIsTheBaseline(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	if step := s.accept(t, normalizing); step.Action != plan.Create {
		t.Fatalf("%s", step.Action)
	}
	for range 3 {
		s.others(t, `"name":"a"`, `"name":"a","labels":{"somebody":"else"}`)
		if step := s.step(t); step.Action != plan.Leave {
			t.Fatalf("%s because of %v", step.Action, step.Changed)
		}
		s.others(t, `,"labels":{"somebody":"else"}`, ``)
	}
	s.others(t, `"k":"V"`, `"k":"somebody's"`)
	if step := s.accept(t, normalizing); step.Action != plan.Update || step.Changed[0].Path != "data.k" {
		t.Fatalf("somebody's change leads to %s because of %v", step.Action, step.Changed)
	}
	if step := s.step(t); step.Action != plan.Leave {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
}

func TestAfterARestartTheAPIServerIsAskedAndNothingIsWritten(t *testing.T) {
	const desired = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"limits":{"cpu":"1000m"},"drop":""}}`
	normalizes := server{
		`"spec":{"drop":"","limits":{"cpu":"1000m"}}}`, `"spec":{"limits":{"cpu":"1"}}}`,
		`"spec":{"limits":{"cpu":"1"},"drop":""}}`, `"spec":{"limits":{"cpu":"1"}}}`,
	}
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		s := newScene(method)
		s.want(t, desired)
		s.accept(t, normalizes)
		s.restart()
		for range 3 {
			if step := s.step(t); step.Action != plan.Leave || step.Reason != plan.Same {
				t.Fatalf("%s: %s because of %v", method, step.Action, step.Changed)
			}
			// A version that is not known yet.
			s.see(t, string(s.Observed[0].JSON()))
		}
		if s.tried != 1 {
			t.Errorf("%s: %d dry runs, want 1", method, s.tried)
		}
		// From now on that very text is known: another one is drift, even if it means the same.
		s.others(t, `"cpu":"1"`, `"cpu":"1.0"`)
		if step := s.step(t); step.Action == plan.Leave || step.Changed[0].Path != "spec.limits.cpu" {
			t.Errorf("%s: %s because of %v", method, step.Action, step.Changed)
		}
		if s.tried != 1 {
			t.Errorf("%s: %d dry runs, want 1", method, s.tried)
		}
	}
}

func TestAWriteWhoseOutcomeIsUnknownLeavesInDoubtWhatTheServerMadeOfIt(t *testing.T) {
	const desired = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"cpu":"1000m"}}`
	normalizes := server{`"cpu":"1000m"`, `"cpu":"1"`, `"cpu":"2000m"`, `"cpu":"2"`}
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		s := newScene(method)
		s.want(t, desired)
		s.accept(t, normalizes)
		s.want(t, strings.Replace(desired, "1000m", "2000m", 1))
		if method == v1alpha1.ChildUpdateRecreate {
			s.accept(t, normalizes)
		}
		step := s.step(t)
		if step.Action != plan.Create && step.Action != plan.Update {
			t.Fatalf("%s: %s because of %v", method, step.Action, step.Changed)
		}
		s.record(plan.Outcome{Step: step, Unknown: true})
		s.see(t, normalizes.store(step.Body))
		if step := s.step(t); step.Action != plan.Leave || step.Reason != plan.Same || s.tried == 0 {
			t.Errorf("%s: %s because of %v after %d dry runs", method, step.Action, step.Changed, s.tried)
		}
	}
}

func TestDriftBeforeARestartIsNotTakenForTheAPIServers(t *testing.T) {
	const desired = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"cpu":"1000m","image":"good"}}`
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		s := newScene(method)
		s.want(t, desired)
		s.accept(t, server{`"spec":{"cpu":"1000m"`, `"spec":{"cpu":"1"`})
		s.others(t, `"image":"good"`, `"image":"evil"`)
		s.restart()
		step := s.step(t)
		if step.Action == plan.Leave || pathsOf(step.Changed) != "spec.image" {
			t.Errorf("%s: %s because of %v", method, step.Action, step.Changed)
		}
		if method == v1alpha1.ChildUpdateInPlace && !strings.Contains(string(step.Body), `"spec":{"cpu":"1","image":"good"}`) {
			t.Errorf("body %s", step.Body)
		}
	}
}

func TestAChangeOfOneFieldDoesNotTouchWhatTheServerMadeOfOthers(t *testing.T) {
	const desired = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"l":[{"k":1}],"limits":{"cpu":"1000m"},"n":1}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, desired)
	s.accept(t, server{`"spec":{"l":[{"k":1}],"limits":{"cpu":"1000m"},"n":1}}`, `"spec":{"l":[{"k":1,"d":2}],"limits":{"cpu":"1"},"n":1}}`})
	s.want(t, strings.Replace(desired, `"n":1`, `"n":2`, 1))
	step := s.step(t)
	if step.Changed[0].Path != "spec.n" || !strings.Contains(string(step.Body), `"spec":{"l":[{"d":2,"k":1}],"limits":{"cpu":"1"},"n":2}`) {
		t.Errorf("changed %v, body %s", step.Changed, step.Body)
	}
}

func TestSettledChildrenAreNotLookedAt(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateOnDelete} {
		s := newScene(method)
		s.want(t, configMap)
		s.see(t, annotated(t, placed, applied))
		if method == v1alpha1.ChildUpdateOnDelete {
			s.others(t, `"k":"v"`, `"k":"other"`)
		}
		first := s.step(t)
		// An object of the same version cannot be another one, unless by a test.
		s.version--
		s.others(t, `"data":{`, `"data":{"more":"x",`)
		if step := s.step(t); step.Reason != first.Reason || step.Changed != nil {
			t.Errorf("%s: %s %s because of %v", method, step.Action, step.Reason, step.Changed)
		}
	}
}

// flip lets somebody else change the child back and the parent write it again, until it is left alone.
func (s *scene) flip(t *testing.T) (writes int) {
	t.Helper()
	for range 100 {
		if len(s.Observed) > 0 {
			s.others(t, `"k":"v"`, `"k":"theirs"`)
		}
		step := s.accept(t, nil)
		switch {
		case step.Reason == plan.Flapping:
			s.others(t, `"k":"theirs"`, `"k":"v"`)
			return writes
		case step.Action != plan.Create:
			writes++
		}
		s.clock.SetTime(s.clock.Now().Add(time.Second))
	}
	t.Fatal("the child is written for ever")
	return 0
}

func TestAChildThatFlipsIsLeftAloneForAWhile(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		t.Run(string(method), func(t *testing.T) {
			s := newScene(method)
			s.want(t, configMap)
			s.accept(t, nil)
			if writes := s.flip(t); writes != 11 {
				t.Errorf("left alone after %d writes", writes)
			}
			pauses := []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute}
			for _, pause := range pauses {
				left := s.last.Again()
				if left <= pause-5*time.Second || left > pause {
					t.Errorf("tried again after %v, want about %v", left, pause)
				}
				s.clock.SetTime(s.clock.Now().Add(left))
				if writes := s.flip(t); writes != 1 {
					t.Errorf("%d writes after a pause", writes)
				}
			}
			s.want(t, strings.Replace(configMap, `"name":"a"`, `"name":"a","labels":{"a":"b"}`, 1))
			if step := s.step(t); step.Action == plan.Leave {
				t.Error("a changed desired state is not applied")
			}
		})
	}
}

// unpublished says that the schema of ConfigMaps is not known.
func unpublished() map[schema.GroupVersionKind]error {
	return map[schema.GroupVersionKind]error{{Version: "v1", Kind: "ConfigMap"}: errors.New("not published")}
}

// gone lets somebody else delete the child after each creation, until it is left alone.
func (s *scene) gone(t *testing.T) (creations int) {
	t.Helper()
	for range 100 {
		s.Observed = nil
		step := s.accept(t, nil)
		switch {
		case step.Reason == plan.Flapping:
			return creations
		case step.Action != plan.Create:
			t.Fatalf("a child that is not there leads to %s", step.Action)
		}
		creations++
		s.clock.SetTime(s.clock.Now().Add(time.Second))
	}
	t.Fatal("the child is created for ever")
	return 0
}

func TestAChildThatSomebodyElseDeletesEachTimeIsLeftAloneForAWhile(t *testing.T) {
	for name, tc := range map[string]struct {
		method  v1alpha1.ChildUpdateMethod
		guesses bool
	}{
		"Merged": {method: v1alpha1.ChildUpdateInPlace}, "Recreated": {method: v1alpha1.ChildUpdateRecreate},
		"LeftAsItIs": {method: v1alpha1.ChildUpdateOnDelete}, "WithoutItsSchema": {method: v1alpha1.ChildUpdateInPlace, guesses: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(tc.method)
			if tc.guesses {
				s.SchemaErrors = unpublished()
			}
			s.want(t, configMap)
			if creations := s.gone(t); creations != 12 {
				t.Errorf("left alone after %d creations, want the first one and 11 more", creations)
			}
			if again := s.last.Again(); again <= 55*time.Second || again > time.Minute {
				t.Errorf("created again after %v, want about a minute", again)
			}
			if !s.last.Steps[0].Report || s.step(t).Report {
				t.Error("the pause is not reported once")
			}
			s.clock.SetTime(s.clock.Now().Add(time.Minute))
			if creations := s.gone(t); creations != 1 {
				t.Errorf("%d creations after a pause", creations)
			}
			s.want(t, strings.Replace(configMap, `"k":"v"`, `"k":"w"`, 1))
			if step := s.step(t); step.Action != plan.Create {
				t.Errorf("a changed desired state leads to %s %s", step.Action, step.Reason)
			}
		})
	}
}

func TestAChildThatIsLeftAloneBecauseOfItsFieldsIsCreatedWhenItIsGone(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, nil)
	s.flip(t)
	s.Observed = nil
	if step := s.accept(t, nil); step.Action != plan.Create {
		t.Errorf("%s %s", step.Action, step.Reason)
	}
	s.Observed = nil
	if step := s.accept(t, nil); step.Reason != plan.Flapping {
		t.Errorf("%s of a child that was deleted after a creation, too", step.Action)
	}
}

func TestAChildThatTheControllerItselfReplacesIsNotCountedTwice(t *testing.T) {
	for name, guesses := range map[string]bool{"WithItsSchema": false, "WithoutItsSchema": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateRecreate)
			if guesses {
				s.SchemaErrors = unpublished()
			}
			s.want(t, configMap)
			s.accept(t, nil)
			for i := range 10 {
				s.others(t, `"k":"v"`, `"k":"theirs"`)
				for _, want := range []plan.Action{plan.Recreate, plan.Create} {
					if step := s.accept(t, nil); step.Action != want {
						t.Fatalf("%s %s in round %d, want %s", step.Action, step.Reason, i, want)
					}
				}
			}
			// The deletion of somebody else is one write more.
			s.Observed = nil
			if step := s.accept(t, nil); step.Action != plan.Create {
				t.Fatalf("%s %s", step.Action, step.Reason)
			}
			s.Observed = nil
			if step := s.accept(t, nil); step.Reason != plan.Flapping {
				t.Errorf("%s after 11 writes", step.Action)
			}
		})
	}
}

func TestAFlappingChildIsReportedOnce(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, nil)
	reported := 0
	for range 30 {
		s.others(t, `"k":"v"`, `"k":"theirs"`)
		step := s.accept(t, nil)
		if step.Report {
			reported++
			if step.Changed[0].Path != "data.k" {
				t.Errorf("reported %v", step.Changed)
			}
		}
		if step.Action == plan.Leave {
			s.others(t, `"k":"theirs"`, `"k":"v"`)
		}
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
}

func TestSlowWritesAreNoFlapping(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, nil)
	for range 50 {
		s.others(t, `"k":"v"`, `"k":"theirs"`)
		if step := s.accept(t, nil); step.Action != plan.Update {
			t.Fatalf("%s %s", step.Action, step.Reason)
		}
		s.clock.SetTime(s.clock.Now().Add(7 * time.Second))
	}
}

func TestForgottenParentsAreUnknown(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, normalizing)
	s.records = nil
	s.others(t, `"name":"a"`, `"name":"a","labels":{"somebody":"else"}`)
	if s.step(t); s.tried != 1 {
		t.Errorf("%d dry runs of a child of which nothing is known", s.tried)
	}
}

func TestChildrenThatAreGoneAreForgotten(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, normalizing)
	observed := s.Observed
	s.Observed, s.Desired = nil, nil
	s.make(t)
	s.Observed = observed
	s.want(t, configMap)
	if s.step(t); s.tried != 1 {
		t.Errorf("%d dry runs of a child of which nothing is known", s.tried)
	}
}

func TestAChildThatCannotBeMergedIsNotForgotten(t *testing.T) {
	const other = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, normalizing)
	s.want(t, strings.Replace(configMap, `"data":{"k":"v"}`, `"data":"v"`, 1))
	p, err := s.plan(t)
	if err == nil || len(p.Steps) != 0 {
		t.Fatalf("steps %v", p.Steps)
	}
	s.record()
	s.want(t, configMap, other)
	s.others(t, `"name":"a"`, `"name":"a","labels":{"somebody":"else"}`)
	if p := s.make(t); p.Writes() != 1 || p.Steps[0].Reason != plan.Same {
		t.Errorf("steps %+v", p.Steps)
	}
}

func TestAfterAQuietTimePausesAreShortAgain(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, nil)
	for range 3 {
		s.flip(t)
		s.clock.SetTime(s.clock.Now().Add(s.last.Again()))
	}
	s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
	if writes := s.flip(t); writes != 11 {
		t.Errorf("left alone after %d writes", writes)
	}
	if left := s.last.Again(); left > time.Minute {
		t.Errorf("tried again after %v", left)
	}
}

func TestWhatIsRememberedDoesNotHoldObjects(t *testing.T) {
	const size, count = 1 << 18, 32
	s := newScene(v1alpha1.ChildUpdateInPlace)
	in := use()
	for i := range count {
		s.want(t, strings.Replace(configMap, `"a"`, fmt.Sprintf(`"child-%d"`, i), 1))
		step := s.step(t)
		written := s.parse(t, strings.Replace(string(step.Body), `"metadata":{`, `"more":"`+strings.Repeat("x", size)+`","metadata":{`, 1))
		s.wrote(step, written)
		s.Observed = []*object.Object{written}
		if step := s.step(t); step.Action != plan.Leave {
			t.Fatalf("%s because of %v", step.Action, step.Changed)
		}
		s.Observed = nil
	}
	s.Desired = nil
	if grown := use() - in; grown > count*size/4 {
		t.Errorf("%d objects of %d bytes that are gone keep %d bytes in use", count, size, grown)
	}
	s.records = nil
}

// use returns the memory in use.
func use() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestReviewAFieldThatTheSchemaLearnsLater has a hook desire a field that the API server drops until the CRD is upgraded.
func TestReviewAFieldThatTheSchemaLearnsLater(t *testing.T) {
	const desired = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"extra":"x","n":1}}`
	prunes := server{`"spec":{"extra":"x","n":1}`, `"spec":{"n":1}`}
	s := newScene(v1alpha1.ChildUpdateInPlace)
	a := s.response(t, desired)
	s.accept(t, prunes)
	s.records = s.last.Next(s.records, nil, a)
	s.others(t, `"name":"a"`, `"name":"a","labels":{"somebody":"else"}`)
	p := s.carryOut(t, a)
	if p.Writes() > 0 || !s.records.Settled(a, s.Observed, s.clock.Now()) {
		t.Fatalf("what was pruned is sent again: %+v", p.Steps)
	}
	s.Epochs = map[schema.GroupKind]int64{{Group: "apps", Kind: "Deployment"}: 1}
	if s.make(t).Writes() > 0 || s.tried > 0 {
		t.Errorf("the child is tried before its turn: %d dry runs", s.tried)
	}
	s.turn()
	if s.records.Settled(a, s.Observed, s.clock.Now()) {
		t.Error("the child is settled although its CRD changed")
	}
	if step := s.accept(t, nil); step.Action != plan.Update || pathsOf(step.Changed) != "spec.extra" {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
	if step := s.step(t); step.Action != plan.Leave {
		t.Errorf("then %s because of %v", step.Action, step.Changed)
	}
}

func TestWhatIsKnownOfTheAPIServerAges(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	a := s.response(t, configMap)
	s.accept(t, normalizing)
	s.carryOut(t, a)
	settled := func() bool { return s.records.Settled(a, s.Observed, s.clock.Now()) }
	if !settled() {
		t.Fatal("not settled")
	}
	s.clock.SetTime(s.clock.Now().Add(plan.MaxAge))
	if settled() {
		t.Error("settled for ever")
	}
	s.make(t)
	if s.tried != 1 || !settled() && s.carryOut(t, a).Writes() > 0 {
		t.Errorf("%d dry runs, %+v", s.tried, s.last.Steps)
	}
}

func TestAChildThatIsStoredAsItWasSentDependsOnNoEpoch(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	a := s.response(t, configMap)
	s.carryOut(t, a)
	s.Epochs = map[schema.GroupKind]int64{{Kind: "ConfigMap"}: 7}
	s.clock.SetTime(s.clock.Now().Add(2 * plan.MaxAge))
	if !s.records.Settled(a, s.Observed, s.clock.Now()) || s.tried > 0 {
		t.Errorf("not settled, %d dry runs", s.tried)
	}
}

// TestAChildThatIsKnownToHaveWhatIsDesiredIsTriedWithoutTheHook takes from a child what was desired of it, if it says that.
func TestAChildThatIsKnownToHaveWhatIsDesiredIsTriedWithoutTheHook(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*testing.T, *scene)
		want bool
	}{
		"merged, and stored as it was sent": {func(t *testing.T, s *scene) {
			s.want(t, configMap)
			s.accept(t, nil)
		}, true},
		"merged, and stored in another way": {func(t *testing.T, s *scene) {
			s.want(t, configMap)
			s.accept(t, normalizing)
		}, true},
		"changed by somebody": {func(t *testing.T, s *scene) {
			s.want(t, configMap)
			s.accept(t, normalizing)
			s.others(t, `"k":"V"`, `"k":"W"`)
		}, true},
		"recorded by somebody else": {func(t *testing.T, s *scene) {
			s.want(t, configMap)
			s.accept(t, normalizing)
			s.others(t, `\"k\":\"v\"`, `\"k\":\"w\"`)
		}, false},
		"not known": {func(t *testing.T, s *scene) {
			s.want(t, configMap)
			s.accept(t, normalizing)
			s.restart()
		}, false},
		"a Secret": {func(t *testing.T, s *scene) {
			s.want(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"k":"MQ=="}}`)
			s.accept(t, nil)
		}, false},
		"applied by the API server": {func(t *testing.T, s *scene) {
			s.serverSide(true)
			s.applied(t, "1")
			s.step(t)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateInPlace)
			tc.do(t, s)
			s.gather(t)
			d, ok := s.Applied(s.Observed[0])
			if ok != tc.want {
				t.Fatalf("what is desired is known: %t, want %t", ok, tc.want)
			}
			if !ok {
				return
			}
			before := s.step(t)
			s.Desired = []children.Desired{d}
			if got := s.step(t); got.Action != before.Action || got.Reason != before.Reason || !reflect.DeepEqual(got.Changed, before.Changed) {
				t.Errorf("the step for it is %+v, want %+v", got, before)
			}
		})
	}
}

var (
	now = time.Unix(1e9, 0)
	key = children.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
)

func TestARecordIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(plan.Record{}); size > 128 {
		t.Errorf("a record has %d bytes; there is one for every child", size)
	}
}

func TestWhatWasReturnedOutlivesADesiredState(t *testing.T) {
	returned := []plan.Returned{{Path: 1, Sent: 2, Got: 3}}
	var none *plan.Record
	first := none.For(key, 1)
	first.Learnt(returned, 7, now)
	first.NeededNothing("5", plan.StateSame)
	first.Counted(first.Breaker().Count(false, now))
	second := first.For(key, 2)
	if second.Version != "" || second.Breaker() != (plan.Breaker{}) || len(second.Returned()) != 1 {
		t.Errorf("%+v", second)
	}
	if first.NeedsNothing(1, "5", now) != plan.StateSame || first.Breaker() == (plan.Breaker{}) {
		t.Errorf("the first record changed: %+v", first)
	}
}

func TestKnowledgeEndsWithItsEpochAndWithTime(t *testing.T) {
	var none *plan.Record
	r := none.For(key, 1)
	if r.Current(0, now) || none.Current(0, now) {
		t.Error("nothing was learnt")
	}
	r.Learnt([]plan.Returned{{Path: 1}}, 7, now)
	r.NeededNothing("5", plan.StateSame)
	for _, test := range []struct {
		epoch int64
		after time.Duration
		want  bool
	}{{7, 0, true}, {8, 0, false}, {7, plan.MaxAge - time.Second, true}, {7, plan.MaxAge, false}} {
		at := now.Add(test.after)
		if r.Current(test.epoch, at) != test.want {
			t.Errorf("epoch %d after %v: current is %t", test.epoch, test.after, !test.want)
		}
		if got, want := r.NeedsNothing(1, "5", at) == plan.StateSame, test.after < plan.MaxAge; got != want {
			t.Errorf("after %v: needs nothing is %t", test.after, got)
		}
	}
	if u := r.Unsettled(); u.NeedsNothing(1, "5", now) != plan.StateUnknown || !u.Current(7, now) || r.NeedsNothing(1, "5", now) != plan.StateSame {
		t.Errorf("unsettled is %+v, from %+v", u, r)
	}
	r.Learnt(nil, 7, now)
	if r.NeedsNothing(1, "5", now.Add(10*plan.MaxAge)) != plan.StateSame {
		t.Error("a child that is stored as it was sent depends on time")
	}
}

func TestFingerprintsDependOnTheResponseAndTheScope(t *testing.T) {
	f := plan.FingerprintOf([]byte(`[{}]`), "a=b")
	if f == 0 || f != plan.FingerprintOf([]byte(`[{}]`), "a=b") || f == plan.FingerprintOf([]byte(`[]`), "a=b") ||
		f == plan.FingerprintOf([]byte(`[{}]`), "") {
		t.Error("fingerprints do not tell responses apart")
	}
}

func TestKnowledgeIsOutdatedByAnotherEpoch(t *testing.T) {
	var none *plan.Record
	learnt := func(epoch int64, returned ...plan.Returned) *plan.Record {
		r := none.For(key, 1)
		r.Learnt(returned, epoch, now)
		return r
	}
	pruned := plan.Returned{Path: 1, Sent: 2}
	for name, tc := range map[string]struct {
		records plan.Records
		want    bool
	}{
		"nothing":                           {nil, false},
		"stored as it was sent":             {plan.Records{learnt(1)}, false},
		"another value, in this epoch":      {plan.Records{learnt(2, pruned)}, false},
		"another value, in a former epoch":  {plan.Records{learnt(2), learnt(1, pruned)}, true},
		"it could not be tried":             {plan.Records{none.NotTried(key, plan.Asked{Desired: 1, Epoch: 2})}, false},
		"it could not be tried before that": {plan.Records{none.NotTried(key, plan.Asked{Desired: 1, Epoch: 1})}, true},
		"both, the one in this epoch":       {plan.Records{learnt(1, pruned).NotTried(key, plan.Asked{Epoch: 2})}, true},
		"both, for what is desired":         {plan.Records{learnt(1, pruned).NotTried(key, plan.Asked{Desired: 1, Epoch: 2})}, false},
		"another value, in a later epoch":   {plan.Records{learnt(3, pruned)}, false},
	} {
		if got := tc.records.Outdated(func(schema.GroupKind) int64 { return 2 }); len(got) == 1 != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// allUnsettled prepares that all of so many children may need something.
func allUnsettled(_ testing.TB, n int) func() {
	var records plan.Records
	keys := make([]children.Key, n)
	for i := range n {
		keys[i] = children.Key{Kind: "ConfigMap", Namespace: "ns", Name: fmt.Sprintf("child-%05d", i)}
		records = append(records, &plan.Record{Key: keys[i], Desired: 1, Version: "5", State: plan.StateSame})
	}
	return func() { records.With(records.Unsettled(keys...)...) }
}

func TestToUnsettleRecordsCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 1000, slope.Linear, allUnsettled)
}
