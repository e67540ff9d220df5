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
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/status"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

const (
	// controllersOfAPage are read by two requests each, so many at a time.
	controllersOfAPage = 20
	requestsAtATime    = 4
	// home is the title of the page of all.
	home = "Controllers"
)

// summary is a controller on the page of all.
type summary struct {
	Argument, Name, State, Tone string
	Report                      *status.Report
	Hooks                       []v1alpha1.HookStatus
	Spark                       *spark
}

type summaries struct {
	Items    []summary
	Total    int
	Previous string
	Next     string
}

// overview is the page of all controllers.
func (s *server) overview(ctx context.Context, q url.Values) *page {
	p := &page{Title: home, Live: true}
	objects, err := s.c.List(ctx)
	if err != nil {
		p.Parts = []part{{ID: "controllers", Problem: err}}
		return p
	}
	// What is now takes requests; the objects themselves say which page a controller is on.
	slices.SortStableFunc(objects, func(a, b controllerobject.Object) int { return worstFirst(storedTone(a), storedTone(b)) })
	found := summaries{Total: len(objects)}
	number, _ := strconv.Atoi(q.Get("page")) // What is no number is the first page.
	from := min(max(0, number)*controllersOfAPage, len(objects))
	shown := objects[from:min(from+controllersOfAPage, len(objects))]
	if from > 0 {
		found.Previous = link("/", "page", strconv.Itoa(number-1))
	}
	if from+len(shown) < len(objects) {
		found.Next = link("/", "page", strconv.Itoa(max(0, number)+1))
	}
	found.Items = make([]summary, len(shown))
	var group sync.WaitGroup
	slots := make(chan struct{}, requestsAtATime)
	for i := range shown {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found.Items[i] = s.summaryOf(ctx, shown[i])
		})
	}
	group.Wait()
	slices.SortStableFunc(found.Items, func(a, b summary) int { return worstFirst(a.Tone, b.Tone) })
	p.Parts = []part{{ID: "controllers", Template: "controllers", Data: found}}
	return p
}

func (s *server) summaryOf(ctx context.Context, object controllerobject.Object) summary {
	r := status.ReportOf(object, status.Live(ctx, s.c, object), nil, time.Now(), false)
	one := summary{Argument: object.Argument(), Name: object.Name(), State: stateOf(r), Report: r, Hooks: object.Status().Hooks}
	one.Tone = toneOf(r)
	if client, err := subresource.New(s.c, object); err == nil {
		if list, err := client.Syncs(ctx, v1alpha1.ControllerSyncOptions{Limit: sparkCalls}); err == nil {
			one.Spark = sparkOf(list.Items)
		}
	}
	return one
}

// storedTone is the tone of a controller as its status has it.
func storedTone(object controllerobject.Object) string {
	return toneOf(status.ReportOf(object, nil, nil, time.Now(), false))
}

// toneOf is the tone of a controller: one that is ready may have something to look at.
func toneOf(r *status.Report) string {
	found := tone(stateOf(r))
	if found == good && slices.ContainsFunc(r.Conditions, func(c status.Condition) bool { return c.Trouble }) {
		return waiting
	}
	return found
}

// worstFirst compares tones.
func worstFirst(a, b string) int { return slices.Index(severity, b) - slices.Index(severity, a) }

// stateOf is the state of a controller in a word.
func stateOf(r *status.Report) string {
	for _, c := range r.Conditions {
		switch {
		case c.Type != v1alpha1.ConditionReady:
		case c.Reason == v1alpha1.ReasonPaused:
			return "Paused"
		case c.Status != "True":
			return "NotReady"
		case r.Parents.States[v1alpha1.ParentFailing] > 0:
			return "Failing"
		default:
			return "Ready"
		}
	}
	return "Pending"
}
