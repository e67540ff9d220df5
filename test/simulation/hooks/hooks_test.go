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

package hooks

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

const controller = `{"kind":"CompositeController","metadata":{"name":"c0"},"spec":{"childResources":[
	{"apiVersion":"sim.example.com/v2","resource":"gadgets","updateStrategy":{"method":"InPlace","apply":"Merge"}},
	{"apiVersion":"v1","resource":"configmaps"}]}}`

func ask(t *testing.T, body string) *Request {
	t.Helper()
	r, err := Decode([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWishIsReadAsItIsWritten(t *testing.T) {
	for _, w := range []Wish{
		{}, {Children: 2, Color: "red", Level: 3, Shape: 5}, {Ordered: true, InTurn: true, Memory: true, Expired: true, Related: "names"},
	} {
		body, err := json.Marshal(map[string]any{"controller": map[string]any{}, "parent": map[string]any{"spec": w.Spec()}})
		if err != nil {
			t.Fatal(err)
		}
		if got := WishOf(ask(t, string(body)).Parent); got != w {
			t.Errorf("read %+v, wrote %+v", got, w)
		}
	}
}

func TestRulesAreThoseOfTheController(t *testing.T) {
	r := ask(t, `{"controller":`+controller+`,"parent":{}}`)
	want := []Rule{{Kind: Gadget, Version: "v2", Method: "InPlace", Apply: "Merge"}, {Kind: ConfigMap, Version: "v1"}}
	if got := Rules(r.Controller); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCompositesWantChildrenOfDeclaredKinds(t *testing.T) {
	parent := func(spec string) string {
		return `{"metadata":{"namespace":"ns0","name":"t0"},"spec":{"color":"red","selector":{"matchLabels":{"app":"t0"}},` + spec + `}}`
	}
	observed := `{"ConfigMap.v1":{"a":{"metadata":{"name":"t0-c0-m0","uid":"1"}},"b":{"metadata":{"name":"t0-c0-m1","uid":"2"}}}}`
	for name, tc := range map[string]struct {
		spec, children string
		finalizing     bool
		want           int
		finalized      bool
	}{
		"AllAtOnce":          {spec: `"children":2`, want: 4},
		"OneAfterTheOther":   {spec: `"children":2,"ordered":true`, want: 2},
		"TakenAway":          {spec: `"children":2`, children: observed, finalizing: true},
		"TakenAwayAndGone":   {spec: `"children":2`, finalizing: true, finalized: true},
		"FinalizedAtOnce":    {spec: `"children":2,"shape":64`, children: observed, finalizing: true, finalized: true},
		"TakenAwayOneByOne":  {spec: `"children":2,"shape":128`, children: observed, finalizing: true, want: 1},
		"NoneWithoutAWish":   {spec: `"children":0`},
		"ObservedIsNoReason": {spec: `"children":1`, children: observed, want: 2},
	} {
		if tc.children == "" {
			tc.children = `{}`
		}
		finalizing, err := json.Marshal(tc.finalizing)
		if err != nil {
			t.Fatal(err)
		}
		r := ask(t, `{"controller":`+controller+`,"parent":`+parent(tc.spec)+`,"children":`+tc.children+`,"finalizing":`+string(finalizing)+`}`)
		got := Respond(hook.Sync, r)
		if len(got.Wanted()) != tc.want || got.Finalized != tc.finalized {
			t.Errorf("%s: %d children, finalized: %v; want %d, %v", name, len(got.Wanted()), got.Finalized, tc.want, tc.finalized)
		}
		for _, child := range got.Wanted() {
			if within(child, "metadata", "labels")["app"] != "t0" {
				t.Errorf("%s: %v does not match the parent's selector", name, child)
			}
		}
		if again := Respond(hook.Sync, r); !reflect.DeepEqual(got, again) {
			t.Errorf("%s: the same request has two responses, %v and %v", name, got, again)
		}
	}
}

func TestChildrenComeAndGoInTurn(t *testing.T) {
	deleting := `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
	for name, tc := range map[string]struct {
		// there are the children that are observed, each with what its metadata says besides.
		there      []string
		wanted     int
		finalizing bool
		want       int
	}{
		"TheFirstOne":                  {wanted: 150, want: 1},
		"OneMore":                      {there: []string{"", ""}, wanted: 150, want: 3},
		"AllAreThere":                  {there: []string{"", ""}, wanted: 2, want: 2},
		"OneLess":                      {there: []string{"", "", ""}, wanted: 0, want: 2},
		"OneIsGoing":                   {there: []string{"", "", deleting}, wanted: 0, want: 2},
		"FinalizingHasAnOrderOfItsOwn": {there: []string{"", "", ""}, wanted: 0, finalizing: true, want: 0},
	} {
		children := []string{}
		for i, more := range tc.there {
			children = append(children, fmt.Sprintf(`"m%d":{"kind":"ConfigMap","metadata":{"name":"r0-c1-m%d","uid":"%d"%s}}`, i, i, i, more))
		}
		r := ask(t, fmt.Sprintf(`{"controller":{"kind":"CompositeController","metadata":{"name":"c1"},"spec":{"childResources":[{"apiVersion":"v1","resource":"configmaps"}]}},
			"parent":{"metadata":{"namespace":"ns0","name":"r0"},"spec":{"children":%d,"inTurn":true}},"children":{"ConfigMap.v1":{%s}},"finalizing":%v}`,
			tc.wanted, strings.Join(children, ","), tc.finalizing))
		if got := len(Respond(hook.Sync, r).Wanted()); got != tc.want {
			t.Errorf("%s: %d children are wanted, want %d", name, got, tc.want)
		}
	}
}

func TestMemoryCountsUpToTheLevel(t *testing.T) {
	for status, want := range map[string]int64{`{}`: 1, `{"step":1}`: 2, `{"step":3}`: 3, `{"step":9}`: 3} {
		r := ask(t, `{"controller":`+controller+`,"parent":{"metadata":{"name":"r0"},"spec":{"memory":true,"level":3},"status":`+status+`}}`)
		if got := Respond(hook.Sync, r).Status["step"]; got != want {
			t.Errorf("after %s the step is %v, want %d", status, got, want)
		}
	}
}

func TestDecoratorsDoNotDecorateWithoutEnd(t *testing.T) {
	d := `{"kind":"DecoratorController","metadata":{"name":"d2"},"spec":{"attachments":[{"apiVersion":"v1","resource":"configmaps"}]}}`
	for name, want := range map[string]int{"m0": 1, "t0-c0-m1": 1, "m0-d2-m0": 0} {
		r := ask(t, `{"controller":`+d+`,"object":{"kind":"ConfigMap","metadata":{"namespace":"ns0","name":"`+name+`"},"data":{"level":"1"}}}`)
		if got := Respond(hook.Sync, r); len(got.Attachments) != want || len(got.Children) != 0 {
			t.Errorf("%s gets %d attachments and %d children, want %d and none", name, len(got.Attachments), len(got.Children), want)
		}
	}
}

func TestCustomizeSelectsAsWished(t *testing.T) {
	for related, want := range map[string]int{"": 0, "labels": 1, "names": 1, "namespace": 1, Kinded: 2} {
		r := ask(t, `{"controller":`+controller+`,"parent":{"metadata":{"namespace":"ns0","name":"t0"},"spec":{"color":"red","related":"`+related+`"}}}`)
		rules := Respond(hook.Customize, r).RelatedResources
		if len(rules) != want {
			t.Errorf("%q has %d rules, want %d", related, len(rules), want)
		}
		for _, rule := range rules {
			if err := rule.Validate(); err != nil {
				t.Errorf("%q: %v", related, err)
			}
		}
	}
}
