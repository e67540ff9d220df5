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

package children_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func parse(t *testing.T, metadata string) *object.Object {
	t.Helper()
	o, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"child","resourceVersion":"7",`+
		metadata+`}}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const (
	selected = `"labels":{"app":"a"}`
	other    = `"labels":{"app":"b"}`
	ours     = `"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"p","uid":"parent","controller":true}]`
	theirs   = `"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"q","uid":"other","controller":true}]`
	friends  = `"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"q","uid":"other"}]`
	deleting = `"deletionTimestamp":"2026-01-01T00:00:00Z"`
	attached = `"annotations":{"metacontroller.k8s.io/decorator-controller":"d"}`
)

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name     string
		metadata string
		deleting bool
		want     children.Decision
	}{
		{"ours and selected", selected + "," + ours, false, children.Claim},
		{"ours and selected, parent deleting", selected + "," + ours, true, children.Claim},
		{"ours, selected and deleting", selected + "," + ours + "," + deleting, false, children.Claim},
		{"ours and not selected", other + "," + ours, false, children.Release},
		{"ours and not selected, parent deleting", other + "," + ours, true, children.Ignore},
		{"ours, not selected and a decorator's attachment", other + "," + ours + "," + attached, false, children.Ignore},
		{"ours, selected and a decorator's attachment", selected + "," + ours + "," + attached, false, children.Claim},
		{"another's and selected", selected + "," + theirs, false, children.Ignore},
		{"another's and not selected", other + "," + theirs, false, children.Ignore},
		{"nobody's and selected", selected, false, children.Adopt},
		{"nobody's with an owner that does not control it", selected + "," + friends, false, children.Adopt},
		{"nobody's and not selected", other, false, children.Ignore},
		{"nobody's and selected, parent deleting", selected, true, children.Ignore},
		{"nobody's, selected and deleting", selected + "," + deleting, false, children.Ignore},
	} {
		t.Run(test.name, func(t *testing.T) {
			parent := children.Parent{UID: "parent", Deleting: test.deleting, Selector: labels.SelectorFromSet(labels.Set{"app": "a"})}
			if got := parent.Decide(parse(t, test.metadata)); got != test.want {
				t.Errorf("decision %v, want %v", got, test.want)
			}
		})
	}
}

func TestWithoutSelectorNothingIsAdopted(t *testing.T) {
	if got := (children.Parent{UID: "parent"}).Decide(parse(t, selected)); got != children.Ignore {
		t.Errorf("decision %v", got)
	}
}

func TestPatches(t *testing.T) {
	parent, err := object.Parse([]byte(`{"apiVersion":"example.com/v1","kind":"P","metadata":{"name":"p","uid":"parent"}}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const (
		head   = `{"metadata":{"ownerReferences":[`
		tail   = `],"resourceVersion":"7","uid":"child"}}`
		owner  = `{"apiVersion":"example.com/v1","kind":"P","name":"p","uid":"parent","controller":true,"blockOwnerDeletion":true}`
		friend = `{"apiVersion":"v1","kind":"P","name":"q","uid":"other"}`
	)
	adopt := func(o *object.Object) ([]byte, error) { return children.AdoptPatch(o, children.OwnerOf(parent)) }
	release := func(o *object.Object) ([]byte, error) { return children.ReleasePatch(o, parent.UID()) }
	for _, test := range []struct {
		name     string
		patch    func(*object.Object) ([]byte, error)
		metadata string
		want     string
	}{
		{"adopting", adopt, selected, head + owner + tail},
		{"adopting keeps other owners", adopt, friends, head + friend + "," + owner + tail},
		{"adopting replaces a reference that is there", adopt, ours, head + owner + tail},
		{"releasing", release, ours, head + tail},
		{"releasing keeps other owners", release, friends, head + friend + tail},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.patch(parse(t, test.metadata))
			if err != nil || string(got) != test.want {
				t.Errorf("%s, error %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestRetainPatch(t *testing.T) {
	const keeper = `{"apiVersion":"v1","kind":"Namespace","name":"b","uid":"namespace"}`
	marks := map[string]string{"controller-uid": "parent"}
	for _, test := range []struct {
		name, metadata, want string
	}{
		{"the parent", ours, `{"metadata":{"ownerReferences":[],"resourceVersion":"7","uid":"child"}}`},
		{
			"the parent and the keeper, not others", strings.Replace(ours, `]`, `,`+keeper+`,{"apiVersion":"v1","kind":"P","name":"q","uid":"other"}]`, 1),
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"q","uid":"other"}],"resourceVersion":"7","uid":"child"}}`,
		},
		{
			"the keeper alone, as the garbage collector leaves it", `"ownerReferences":[` + keeper + `]`,
			`{"metadata":{"ownerReferences":[],"resourceVersion":"7","uid":"child"}}`,
		},
		{
			"another namespace stays", strings.Replace(ours, `]`, `,{"apiVersion":"v1","kind":"Namespace","name":"c","uid":"c"}]`, 1),
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"c","uid":"c"}],"resourceVersion":"7","uid":"child"}}`,
		},
		{
			"our label", `"labels":{"controller-uid":"parent","app":"a"},` + ours,
			`{"metadata":{"labels":{"controller-uid":null},"ownerReferences":[],"resourceVersion":"7","uid":"child"}}`,
		},
		{"another's label stays", `"labels":{"controller-uid":"another"},` + ours, `{"metadata":{"ownerReferences":[],"resourceVersion":"7","uid":"child"}}`},
		{
			"our mark, and not what was applied", strings.Replace(attached, `{`, `{"metacontroller.k8s.io/last-applied-configuration":"{}",`, 1) + "," + ours,
			`{"metadata":{"annotations":{"metacontroller.k8s.io/decorator-controller":null},"ownerReferences":[],"resourceVersion":"7","uid":"child"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := children.RetainPatch(parse(t, test.metadata), "parent", marks, map[string]string{children.DecoratorMark: "d"})
			if err != nil || string(got) != test.want {
				t.Errorf("patch %s, %v, want %s", got, err, test.want)
			}
		})
	}
}
