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

package manager

import (
	"errors"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

func TestPermitted(t *testing.T) {
	account := access.State{Account: "team/web", Known: true}
	with := func(change func(*access.State)) access.State {
		p := account
		change(&p)
		return p
	}
	pods := []rights.Right{{Verb: rights.List, Resource: "pods"}, {Verb: rights.Watch, Resource: "pods"}}
	const lacks = "False RightMissing The service account team/web lacks, in all namespaces unless one is named: list, watch pods. Grant that to it; " +
		`"metacontroller-apiserver rbac compositecontroller/web" prints all that the controller needs. The server looks again every 30 seconds.`
	for name, tc := range map[string]struct {
		permission       access.State
		permitted, ready string
	}{
		"no account": {access.State{}, "True ServerRights", "True Running"},
		"all rights": {account, "True Permitted The service account team/web has", "True Running"},
		"before the first review": {
			with(func(p *access.State) { p.Known, p.Held = false, true }),
			"Unknown Starting Asking the cluster what the service account team/web may do.", "False Starting Asking the cluster",
		},
		"no response": {
			with(func(p *access.State) { p.Known, p.Held, p.Problem = false, true, errors.New("no") }),
			"Unknown RightsUnknown The cluster does not say what the service account team/web may do: no.", "False RightsUnknown",
		},
		"no response for a moment": {with(func(p *access.State) { p.Problem = errors.New("no") }), "True Permitted", "True Running"},
		"no such account": {
			with(func(p *access.State) { p.Held, p.NotFound = true, true }),
			"False ServiceAccountNotFound The service account team/web does not exist. Create it, or change spec.serviceAccountRef. No parent is synced until then.",
			"False ServiceAccountNotFound",
		},
		"a server that may not act as it": {
			with(func(p *access.State) { p.Held, p.NotImpersonated = true, true }),
			"False RightMissing The server lacks: impersonate serviceaccounts team/web. Grant it to the server;", "False RightMissing",
		},
		"a right to read is missing": {
			with(func(p *access.State) { p.Held, p.Missing = true, pods }),
			lacks + " No parent is synced before the account may list and watch what hooks are shown.", "False RightMissing The service account",
		},
		"a right to write is missing": {with(func(p *access.State) { p.Missing = pods }), lacks, "True Running"},
	} {
		t.Run(name, func(t *testing.T) {
			s := reconciler.State{Started: true, Called: true, Parents: 4, Permission: tc.permission, Object: "compositecontroller/web"}
			for condition, want := range map[string]string{v1alpha1.ConditionPermitted: tc.permitted, v1alpha1.ConditionReady: tc.ready} {
				if got := show(t, state{&s}.conditions(), condition); !strings.HasPrefix(got, want) {
					t.Errorf("%s is %q, want %q…", condition, got, want)
				}
			}
		})
	}
}
