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
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

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
		"it could not be tried":             {plan.Records{none.NotTried(key, plan.Postponed{Desired: 1, Epoch: 2})}, false},
		"it could not be tried before that": {plan.Records{none.NotTried(key, plan.Postponed{Desired: 1, Epoch: 1})}, true},
		"both, the one in this epoch":       {plan.Records{learnt(1, pruned).NotTried(key, plan.Postponed{Epoch: 2})}, true},
		"both, for what is desired":         {plan.Records{learnt(1, pruned).NotTried(key, plan.Postponed{Desired: 1, Epoch: 2})}, false},
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
