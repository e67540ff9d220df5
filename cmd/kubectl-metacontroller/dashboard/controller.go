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

package dashboard

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/status"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

const (
	// parentsOfAPage are shown at most, and searched are looked at for them.
	parentsOfAPage = 100
	searched       = 20_000
)

// states are those by which parents are filtered, those first that want to be looked at.
var states = []v1alpha1.ParentState{
	v1alpha1.ParentFailing, v1alpha1.ParentHeld, v1alpha1.ParentWaiting, v1alpha1.ParentPaused, v1alpha1.ParentPending, v1alpha1.ParentSyncing,
	v1alpha1.ParentSynced,
}

// controllerView is what is shown of one controller.
type controllerView struct {
	summary

	Paused, ReadOnly bool
	States           []stateCount
	Account          *v1alpha1.ServiceAccountReference
}

type stateCount struct {
	State v1alpha1.ParentState
	Count int64
	Link  string
}

// filter is what parents are shown of.
type filter struct {
	Controller, State, Namespace, Labels, Search string
	States                                       []v1alpha1.ParentState
}

// parentList is a page of parents.
type parentList struct {
	Controller        string
	Resources         bool
	Items             []v1alpha1.ControllerParent
	First, Next       string
	Searching         bool
	Remaining, Hidden int64
}

// controller is the page of one controller.
func (s *server) controller(ctx context.Context, q url.Values) *page {
	p := &page{Title: q.Get("c"), Up: []crumb{{home, "/"}}, Live: true}
	object, err := s.c.Find(ctx, q.Get("c"))
	if err != nil {
		p.Parts = []part{{ID: "state", Problem: err}}
		return p
	}
	f := filter{object.Argument(), q.Get("state"), strings.TrimSpace(q.Get("ns")), strings.TrimSpace(q.Get("labels")), strings.TrimSpace(q.Get("q")), states}
	v := controllerView{summary: s.summaryOf(ctx, object), Paused: object.Paused(), ReadOnly: s.readOnly, Account: object.Account()}
	v.Report.Warnings = status.ReportOf(object, nil, status.WarningsOf(ctx, s.c), time.Now(), false).Warnings
	for _, state := range states {
		if n := v.Report.Parents.States[state]; n > 0 {
			v.States = append(v.States, stateCount{state, n, link("/controller", "c", object.Argument(), "state", string(state))})
		}
	}
	p.Title = object.Kind() + " " + object.Name()
	list := part{ID: "parents", Template: "parents"}
	list.Data, list.Problem = s.parentsOf(ctx, object, f, q.Get("continue"))
	p.Parts = []part{
		{ID: "state", Template: "controller", Data: v},
		{ID: "conditions", Template: "conditions", Data: v.Report.Conditions},
		{ID: "hooklist", Template: "hooklist", Data: v.summary},
		{ID: "filter", Template: "filter", Data: f},
		list,
	}
	return p
}

// parentsOf reads a page of the parents for which the filter asks.
func (s *server) parentsOf(ctx context.Context, object controllerobject.Object, f filter, from string) (*parentList, error) {
	client, err := subresource.New(s.c, object)
	if err != nil {
		return nil, err
	}
	asked := v1alpha1.ControllerParentOptions{
		State: f.State, Namespace: f.Namespace, LabelSelector: f.Labels, Limit: parentsOfAPage, Continue: from,
	}
	found := &parentList{Controller: object.Argument(), Resources: len(object.Parents()) > 1, Searching: f.Search != ""}
	address := []string{"c", object.Argument(), "state", f.State, "ns", f.Namespace, "labels", f.Labels, "q", f.Search}
	if from != "" {
		found.First = link("/controller", address...)
	}
	if f.Search != "" {
		asked.Limit = subresource.MostParents
	}
	looked := 0
	err = client.EachPage(ctx, asked, func(list *v1alpha1.ControllerParentList) error {
		found.Hidden, looked = list.Hidden, looked+len(list.Items)
		for i := range list.Items {
			if f.matches(&list.Items[i]) {
				found.Items = append(found.Items, list.Items[i])
			}
		}
		if list.Continue == "" {
			return nil
		}
		if list.RemainingItemCount != nil {
			found.Remaining = *list.RemainingItemCount
		}
		found.Next = link("/controller", append(address, "continue", list.Continue)...)
		if f.Search == "" || len(found.Items) >= parentsOfAPage || looked >= searched {
			return errEnough
		}
		found.Next, found.Remaining = "", 0
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, err
}

// errEnough ends the reading of pages.
var errEnough = errors.New("no more pages are wanted")

// matches reports whether a text is in the name, the message or the error of a parent.
func (f filter) matches(p *v1alpha1.ControllerParent) bool {
	text := strings.ToLower(strings.Join([]string{p.FullName(), p.Message, p.LastError}, "\n"))
	return strings.Contains(text, strings.ToLower(f.Search))
}

// open finds the controller and the parent that an address names.
func (s *server) open(ctx context.Context, q url.Values) (controllerobject.Object, v1alpha1.ParentReference, *subresource.Client, error) {
	resource, group, _ := strings.Cut(q.Get("resource"), ".")
	p := v1alpha1.ParentReference{Group: group, Resource: resource, Namespace: q.Get("ns"), Name: q.Get("name")}
	object, err := s.c.Find(ctx, q.Get("c"))
	if err == nil && (p.Name == "" || resource == "") {
		err = errors.New("the address names no parent: choose one on the page of its controller")
	}
	if err != nil {
		return object, p, nil, err
	}
	client, err := subresource.New(s.c, object)
	return object, p, client, err
}
