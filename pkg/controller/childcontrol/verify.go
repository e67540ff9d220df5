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

package childcontrol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

// verifyVariable is the environment variable that, with the value "plans", has every plan made twice: a plan is a value, so
// the two must be equal, and making them must change nothing. A difference panics, which the worker reports as a failed sync. It is
// for tests (docs/design/0013-plans-and-records.md).
const verifyVariable = "METACONTROLLER_VERIFY"

// makeTwice makes a plan, and panics unless that is a value.
func makeTwice(in plan.Input) (plan.Plan, error) {
	before := copyOf(in.Records)
	p, err := plan.Make(in)
	encoded, printed := encode(p)
	again, errAgain := plan.Make(in)
	encodedAgain, printedAgain := encode(again)
	var violated string
	switch {
	case fmt.Sprint(err) != fmt.Sprint(errAgain):
		violated = fmt.Sprintf("two plans from one input fail differently: %v, %v", err, errAgain)
	case !bytes.Equal(encoded, encodedAgain) || printed != printedAgain:
		violated = "two plans from one input differ: " + printed + printedAgain
	case !reflect.DeepEqual(before, copyOf(in.Records)):
		violated = "making a plan changed the records of " + in.ParentName
	}
	if violated != "" {
		panic(violated) //nolint:forbidigo // It is for tests, which look for panics.
	}
	return p, err
}

func encode(p plan.Plan) ([]byte, string) {
	encoded, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("a plan cannot be encoded: %v", err)) //nolint:forbidigo // It is for tests, which look for panics.
	}
	return encoded, p.String()
}

func copyOf(records plan.Records) []plan.Record {
	list := make([]plan.Record, len(records))
	for i, r := range records {
		list[i] = *r
		if r.More != nil {
			more := *r.More
			list[i].More = &more
		}
	}
	return list
}
