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
	"testing"
	"time"
	"unsafe"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

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
