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

package record_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

func TestRecordsAreCounted(t *testing.T) {
	s := record.NewStore()
	for i, step := range []struct {
		reason           string
		parent           types.UID
		records          int
		parents, counted int
	}{
		{"A parent is added.", "a", 3, 1, 3},
		{"Another one is.", "b", 1, 2, 4},
		{"The records of a parent are replaced.", "a", 2, 2, 3},
		{"The same ones change nothing.", "a", 2, 2, 3},
		{"A parent has no children any more.", "a", 0, 1, 1},
		{"A parent without records is not counted.", "a", 0, 1, 1},
	} {
		s.Commit(step.parent, make(record.Records, step.records))
		if parents, counted := s.Len(); parents != step.parents || counted != step.counted {
			t.Errorf("step %d: %d parents, %d records; want %d, %d: %s", i, parents, counted, step.parents, step.counted, step.reason)
		}
	}
	s.Forget("b")
	if parents, counted := s.Len(); parents != 0 || counted != 0 {
		t.Errorf("%d parents and %d records are left", parents, counted)
	}
}

func TestKnowledgeIsOutdatedByAnotherEpoch(t *testing.T) {
	var none *record.Record
	learnt := func(epoch int64, returned ...record.Returned) *record.Record {
		r := none.For(key, 1)
		r.Learnt(returned, epoch, now)
		return r
	}
	pruned := record.Returned{Path: 1, Sent: 2}
	for name, tc := range map[string]struct {
		records record.Records
		want    bool
	}{
		"nothing":                           {nil, false},
		"stored as it was sent":             {record.Records{learnt(1)}, false},
		"another value, in this epoch":      {record.Records{learnt(2, pruned)}, false},
		"another value, in a former epoch":  {record.Records{learnt(2), learnt(1, pruned)}, true},
		"it could not be tried":             {record.Records{none.NotTried(key, record.Untried{Desired: 1, Epoch: 2})}, false},
		"it could not be tried before that": {record.Records{none.NotTried(key, record.Untried{Desired: 1, Epoch: 1})}, true},
		"both, the one in this epoch":       {record.Records{learnt(1, pruned).NotTried(key, record.Untried{Epoch: 2})}, true},
		"both, for what is desired":         {record.Records{learnt(1, pruned).NotTried(key, record.Untried{Desired: 1, Epoch: 2})}, false},
		"another value, in a later epoch":   {record.Records{learnt(3, pruned)}, false},
	} {
		if got := tc.records.Outdated(func(schema.GroupKind) int64 { return 2 }); len(got) == 1 != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// allUnsettled prepares that all of so many children may need something.
func allUnsettled(_ testing.TB, n int) func() {
	var records record.Records
	keys := make([]children.Key, n)
	for i := range n {
		keys[i] = children.Key{Kind: "ConfigMap", Namespace: "ns", Name: fmt.Sprintf("child-%05d", i)}
		records = append(records, &record.Record{Key: keys[i], Desired: 1, Version: "5", Reason: record.Same})
	}
	return func() { records.With(records.Unsettled(keys...)) }
}

func TestToUnsettleRecordsCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 1000, slope.Linear, allUnsettled)
}
