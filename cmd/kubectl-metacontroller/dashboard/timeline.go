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
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/explainloop"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/syncs"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// timeline are the recent syncs of a parent, the latest first, with their times to one scale.
type timeline struct {
	Rows []syncRow
	// Scale is how many milliseconds the width of the bars is, and Older counts the syncs that are not shown.
	Scale int64
	Older int
}

// syncRow is one sync.
type syncRow struct {
	v1alpha1.ControllerSync

	Why   []did
	Did   []did
	Bars  []bar
	Write int64
	Quiet bool
	// Again says that it failed as the sync above it.
	Again bool
}

// did is why there was a sync, or what it did with one child, with the fields that changed.
type did struct {
	Text   string
	Fields []string
	More   bool
}

// bar is a part of a sync's time.
type bar struct {
	What     string
	X, Width float64
}

// leastBar is how wide a bar is at least, so that it is seen that there was something.
const leastBar = 2

// timelineOf makes the timeline of syncs.
func timelineOf(list []v1alpha1.ControllerSync) timeline {
	t := timeline{Scale: 1, Older: max(0, len(list)-syncsShown)}
	list = list[:min(len(list), syncsShown)]
	for i := range list {
		t.Scale = max(t.Scale, list[i].WaitMilliseconds+list[i].DurationMilliseconds)
	}
	for i := range list {
		s := &list[i]
		row := syncRow{ControllerSync: *s, Quiet: syncs.Nothing(s), Write: max(0, s.DurationMilliseconds-s.HookMilliseconds)}
		row.Again = i > 0 && s.Error != "" && s.Error == list[i-1].Error
		for n, text := range syncs.Causes(s) {
			row.Why = append(row.Why, did{text, s.Triggers[n].Fields, s.Triggers[n].MoreFields})
		}
		for n, text := range syncs.Children(s) {
			row.Did = append(row.Did, did{text, s.Children[n].Fields, s.Children[n].MoreFields})
		}
		x := 0.0
		for _, b := range []struct {
			what string
			time int64
		}{{"wait", s.WaitMilliseconds}, {"hook", s.HookMilliseconds}, {"write", row.Write}} {
			if b.time > 0 {
				width := max(leastBar, float64(b.time)*(barWidth-3*leastBar)/float64(t.Scale))
				row.Bars = append(row.Bars, bar{b.what, x, width})
				x += width
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// fight is a field that is changed back and forth, with who wrote it when.
type fight struct {
	explainloop.Loop

	Controller string
	// Ours are where the controller wrote on a line of time that is barWidth wide, and theirs where somebody else changed the place.
	Ours, Theirs []float64
	From, To     time.Time
}

// fightsOf adds to what is changed back and forth when each side did it, as the syncs and their triggers say.
func fightsOf(object controllerobject.Object, loops []explainloop.Loop, list []v1alpha1.ControllerSync) []fight {
	var found []fight
	for _, l := range loops {
		f := fight{Loop: l, Controller: object.Kind() + " " + object.Name()}
		var ours, theirs []time.Time
		for i := range list {
			s := &list[i]
			if l.WrittenBy(s) {
				ours = append(ours, s.Time.Time)
			}
			if slices.ContainsFunc(s.Triggers, func(t v1alpha1.SyncTrigger) bool {
				return t.Reason != v1alpha1.SyncOwnWrite && t.Object != nil && *t.Object == l.Object &&
					(slices.Contains(t.Fields, l.Field) || l.Field == "" && t.Reason == v1alpha1.SyncChildDeleted)
			}) {
				theirs = append(theirs, s.Time.Add(-time.Duration(s.WaitMilliseconds)*time.Millisecond))
			}
		}
		if all := slices.Concat(ours, theirs); len(all) > 1 {
			f.From, f.To = slices.MinFunc(all, time.Time.Compare), slices.MaxFunc(all, time.Time.Compare)
			f.Ours, f.Theirs = f.places(ours), f.places(theirs)
		}
		found = append(found, f)
	}
	return found
}

// places are where times are on the line.
func (f *fight) places(times []time.Time) []float64 {
	var places []float64
	all := max(1, f.To.Sub(f.From))
	for _, t := range times {
		places = append(places, 4+float64(t.Sub(f.From))*(barWidth-8)/float64(all))
	}
	return places
}
