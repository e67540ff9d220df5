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

package reconciler

import (
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
)

func TestTheOptionsSayWhatAnUpdateStrategyDoesNot(t *testing.T) {
	merging, serverSide := Options{}, Options{ServerSideApply: true}
	for name, tc := range map[string]struct {
		options    Options
		method     v1alpha1.ChildUpdateMethod
		apply      v1alpha1.ChildApplyStrategy
		force      *bool
		want       v1alpha1.ChildUpdateMethod
		serverSide bool
		forced     bool
	}{
		"nothing":                  {merging, "", "", nil, v1alpha1.ChildUpdateOnDelete, false, true},
		"a method":                 {merging, v1alpha1.ChildUpdateRecreate, "", nil, v1alpha1.ChildUpdateRecreate, false, true},
		"nothing, by ServerSide":   {serverSide, "", "", nil, v1alpha1.ChildUpdateOnDelete, true, true},
		"Merge, by ServerSide":     {serverSide, "", v1alpha1.ChildApplyMerge, nil, v1alpha1.ChildUpdateOnDelete, false, true},
		"ServerSide, by Merge":     {merging, "", v1alpha1.ChildApplyServerSide, nil, v1alpha1.ChildUpdateOnDelete, true, true},
		"ServerSide with no force": {merging, "", v1alpha1.ChildApplyServerSide, new(false), v1alpha1.ChildUpdateOnDelete, true, false},
		"ServerSide with force":    {merging, "", v1alpha1.ChildApplyServerSide, new(true), v1alpha1.ChildUpdateOnDelete, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			rule := tc.options.childRule(discovery.Resource{Kind: "Pod", Namespaced: true}, tc.method, tc.apply, tc.force)
			if rule.Method != tc.want || rule.ServerSide != tc.serverSide || rule.Force != tc.forced {
				t.Errorf("got %s, server side %v, force %v", rule.Method, rule.ServerSide, rule.Force)
			}
			if rule.Kind.Kind != "Pod" || !rule.Namespaced {
				t.Errorf("got %+v", rule)
			}
		})
	}
}
