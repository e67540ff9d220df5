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
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

// TestChildrenThatStayHaveAKeeper has a rule whose children stay without their parent: beside it, the namespace owns them.
func TestChildrenThatStayHaveAKeeper(t *testing.T) {
	const (
		keeper   = `{"apiVersion":"v1","kind":"Namespace","name":"ns","uid":"the-namespace"}`
		owner    = `{"apiVersion":"example.com/v1","blockOwnerDeletion":true,"controller":true,"kind":"Parent","name":"p","uid":"parent"}`
		desired  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`
		returned = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","ownerReferences":[` + keeper + `]},"data":{"a":"1"}}`
		without  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ns","ownerReferences":[` + owner +
			`],"annotations":{"metacontroller.k8s.io/last-applied-configuration":` +
			`"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"1\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\"}}"}},"data":{"a":"1"}}`
	)
	kept := strings.Replace(without, owner, owner+`,`+keeper, 1)
	kept = strings.Replace(kept, `\"namespace\":\"ns\"`, `\"namespace\":\"ns\",\"ownerReferences\":[`+strings.ReplaceAll(keeper, `"`, `\"`)+`]`, 1)
	for name, tc := range map[string]struct {
		reason          string
		method          v1alpha1.ChildUpdateMethod
		observed, wants string
		retain          bool
		unread          error
		action          plan.Action
		// keeps says that the body has the keeper, and fails that there is no step. Within says that the parent is the namespace itself.
		keeps, fails, within bool
	}{
		"created":                       {reason: "It is safe from the first moment on.", retain: true, action: plan.Create, keeps: true},
		"created without Retain":        {reason: "Nothing changes for others.", action: plan.Create},
		"as it is":                      {reason: "Nothing is written again.", observed: kept, retain: true, action: plan.Leave},
		"returned by a hook":            {reason: "Hooks return what they were sent.", observed: kept, wants: returned, retain: true, action: plan.Leave},
		"before the rule said so":       {reason: "It is made safe.", observed: without, retain: true, action: plan.Update, keeps: true},
		"with Recreate":                 {reason: "No child is deleted for that.", method: v1alpha1.ChildUpdateRecreate, observed: without, retain: true, action: plan.Update, keeps: true},
		"with OnDelete":                 {reason: "Nothing that the hook wants is changed.", method: v1alpha1.ChildUpdateOnDelete, observed: without, retain: true, action: plan.Update, keeps: true},
		"with OnDelete, different":      {reason: "The hook's change would go with it.", method: v1alpha1.ChildUpdateOnDelete, observed: strings.Replace(without, `"data":{"a":"1"}}`, `"data":{"a":"2"}}`, 1), retain: true, action: plan.Leave},
		"when the rule does not any":    {reason: "It is deleted with its parent again.", observed: kept, action: plan.Update},
		"nor with Recreate":             {reason: "No child is deleted for that.", method: v1alpha1.ChildUpdateRecreate, observed: kept, action: plan.Update},
		"nor with OnDelete":             {reason: "Else it would stay for ever.", method: v1alpha1.ChildUpdateOnDelete, observed: kept, action: plan.Update},
		"of the namespace":              {reason: "It goes with that anyway.", retain: true, within: true, unread: errors.New("it need not be read"), action: plan.Create},
		"of a namespace that is unread": {reason: "A child that may be lost is not created.", retain: true, unread: errors.New("forbidden"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = v1alpha1.ChildUpdateInPlace
			}
			s := newScene(method)
			s.Rules = children.NewRules([]children.Rule{{
				Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
				Namespaced: true, Method: method, Retain: tc.retain,
			}})
			if tc.within {
				s.Owner = map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "ns", "uid": string(s.Parent)}
			}
			if s.want(t, desired); tc.wants != "" {
				s.want(t, tc.wants)
			}
			if tc.observed != "" {
				s.see(t, tc.observed)
			}
			s.Keepers = map[string]plan.Keeper{}
			for _, unknown := range plan.UnknownKeepers(s.Input) {
				s.Keepers[unknown] = plan.Keeper{UID: "the-namespace", Err: tc.unread}
			}
			if tc.fails {
				if p, err := s.plan(t); err == nil || !strings.Contains(err.Error(), "reading namespace ns") || len(p.Steps) > 0 {
					t.Errorf("%s\nplanned %+v, %v", tc.reason, p.Steps, err)
				}
				return
			}
			step := s.step(t)
			if keeps := strings.Contains(string(step.Body), keeper); step.Action != tc.action || keeps != tc.keeps {
				t.Errorf("%s\n%s (%s) with %s, want %s, with the keeper: %t", tc.reason, step.Action, step.Reason, step.Body, tc.action, tc.keeps)
			}
		})
	}
}
