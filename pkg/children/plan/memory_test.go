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
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
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
	if step := s.accept(t, normalizing); step.Action != plan.Update || step.Changed[0] != "data.k" {
		t.Fatalf("somebody's change leads to %s because of %v", step.Action, step.Changed)
	}
	if step := s.step(t); step.Action != plan.Leave {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
}

func TestAfterARestartWhatServersAreKnownToDoIsTheBaseline(t *testing.T) {
	const desired = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"limits":{"cpu":"1000m"},"drop":""}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, desired)
	s.accept(t, server{`"spec":{"drop":"","limits":{"cpu":"1000m"}}}`, `"spec":{"limits":{"cpu":"1"}}}`})
	s.restart()
	if step := s.step(t); step.Action != plan.Leave {
		t.Fatalf("%s because of %v", step.Action, step.Changed)
	}
	// From now on that very text is known: another one is somebody's, even if it means the same.
	s.others(t, `"cpu":"1"`, `"cpu":"1.0"`)
	if step := s.step(t); step.Action != plan.Update || step.Changed[0] != "spec.limits.cpu" {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
}

func TestWhatTheServerWouldNotChangeIsTheBaseline(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateRecreate)
	s.want(t, configMap)
	s.accept(t, normalizing)
	s.restart()
	step := s.step(t)
	if step.Action != plan.Recreate || !strings.Contains(string(step.Body), `"k":"v"},"kind"`) {
		t.Fatalf("%s with %s", step.Action, step.Body)
	}
	s.Memory.Accepted(s.Input, step)
	if step := s.step(t); step.Action != plan.Leave || step.Reason != plan.Same {
		t.Errorf("%s because of %v", step.Action, step.Changed)
	}
	s.others(t, `"k":"V"`, `"k":"somebody's"`)
	if step := s.step(t); step.Action != plan.Recreate || step.Body != nil {
		t.Errorf("somebody's change leads to %s with %s", step.Action, step.Body)
	}
}

func TestAChangeOfOneFieldDoesNotTouchWhatTheServerMadeOfOthers(t *testing.T) {
	const desired = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"l":[{"k":1}],"limits":{"cpu":"1000m"},"n":1}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, desired)
	s.accept(t, server{`"spec":{"l":[{"k":1}],"limits":{"cpu":"1000m"},"n":1}}`, `"spec":{"l":[{"k":1,"d":2}],"limits":{"cpu":"1"},"n":1}}`})
	s.want(t, strings.Replace(desired, `"n":1`, `"n":2`, 1))
	step := s.step(t)
	if step.Changed[0] != "spec.n" || !strings.Contains(string(step.Body), `"spec":{"l":[{"d":2,"k":1}],"limits":{"cpu":"1"},"n":2}`) {
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
				left := s.Memory.RetryAfter(s.Parent)
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

func TestAFlappingChildIsToldOfOnce(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, nil)
	told := 0
	for range 30 {
		s.others(t, `"k":"v"`, `"k":"theirs"`)
		p := s.make(t)
		told += len(p.News)
		for _, step := range p.News {
			if step.Changed[0] != "data.k" {
				t.Errorf("told of %v", step.Changed)
			}
		}
		if p.Writes() == 0 {
			s.others(t, `"k":"theirs"`, `"k":"v"`)
			continue
		}
		s.accept(t, nil)
	}
	if told != 1 {
		t.Errorf("told %d times", told)
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
	s.Memory.Forget(s.Parent)
	s.others(t, `"name":"a"`, `"name":"a","labels":{"somebody":"else"}`)
	if step := s.step(t); step.Action != plan.Update {
		t.Errorf("%s", step.Action)
	}
}

func TestChildrenThatAreGoneAreForgotten(t *testing.T) {
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, normalizing)
	observed := s.Observed
	s.Observed, s.Desired = nil, nil
	s.Memory.Prune(s.Parent, s.make(t))
	s.Observed = observed
	s.want(t, configMap)
	if step := s.step(t); step.Action != plan.Update {
		t.Errorf("%s", step.Action)
	}
}

func TestAChildThatCannotBeMergedIsNotForgotten(t *testing.T) {
	const other = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`
	s := newScene(v1alpha1.ChildUpdateInPlace)
	s.want(t, configMap)
	s.accept(t, normalizing)
	s.want(t, strings.Replace(configMap, `"data":{"k":"v"}`, `"data":"v"`, 1))
	p, err := plan.Make(s.Input)
	if err == nil || len(p.Steps) != 0 {
		t.Fatalf("steps %v", p.Steps)
	}
	s.Memory.Prune(s.Parent, p)
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
		s.clock.SetTime(s.clock.Now().Add(s.Memory.RetryAfter(s.Parent)))
	}
	s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
	if writes := s.flip(t); writes != 11 {
		t.Errorf("left alone after %d writes", writes)
	}
	if left := s.Memory.RetryAfter(s.Parent); left > time.Minute {
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
		s.Memory.Wrote(s.Input, step, written)
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
	s.Memory.Forget(s.Parent)
}

// use returns the memory in use.
func use() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
