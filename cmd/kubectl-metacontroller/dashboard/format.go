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
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/tree"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// functions are those of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"link": link, "tone": tone, "json": indented, "short": tree.Short, "name": v1alpha1.ParentReference.FullName, "hidden": subresource.Hidden,
		"verbatim": verbatim,
		"resource": func(p v1alpha1.ParentReference) string { return p.GroupResource().String() },
		"clock":    func(t time.Time) string { return t.Local().Format("Jan 2, 15:04:05") },
		"stamp":    func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"ms":       func(n int64) string { return (time.Duration(n) * time.Millisecond).String() },
		"join":     func(list []string) string { return strings.Join(list, ", ") },
	}
}

// Tones of words, which style.css colors.
const (
	good    = "good"
	bad     = "bad"
	waiting = "waiting"
	plain   = "plain"
)

// tones are those of words of states; all others are plain.
var tones = map[string][]string{
	good:    {"Synced", "Ready", "True", "Running", "Available", "Complete", "Succeeded", "Established"},
	bad:     {"Failing", "NotReady", "False", "Failed", "Forbidden"},
	waiting: {"Pending", "Syncing", "Waiting", "Held", "Paused", "being deleted", "Unknown"},
}

// tone is that of a state, of several the worst.
func tone(state string) string {
	found := plain
	for word := range strings.FieldsFuncSeq(state, func(r rune) bool { return r == ',' || r == ':' }) {
		word = strings.TrimSpace(word)
		is := plain
		for _, kind := range []string{bad, waiting, good} {
			if slices.Contains(tones[kind], word) {
				is = kind
			}
		}
		var ready, all int
		if n, err := fmt.Sscanf(word, "%d/%d", &ready, &all); n == 2 && err == nil {
			is = map[bool]string{true: good, false: waiting}[ready == all]
		}
		if slices.Index(severity, is) > slices.Index(severity, found) {
			found = is
		}
	}
	return found
}

// severity has the worst tone last.
var severity = []string{plain, good, waiting, bad}

// indented is JSON as people read it.
func indented(raw *runtime.RawExtension) string {
	var b bytes.Buffer
	if raw == nil || json.Indent(&b, raw.Raw, "", "  ") != nil {
		return ""
	}
	return b.String()
}

// spark is a line of the time that hooks took in recent syncs, the oldest first, in a box of 120 by 24.
type spark struct {
	Points string
	Calls  int
	Most   int64
}

const (
	sparkWidth, sparkHeight = 120, 24
	sparkCalls              = 60
)

// sparkOf is nil where fewer than two syncs called a hook.
func sparkOf(syncs []v1alpha1.ControllerSync) *spark {
	var times []int64
	for i := range syncs {
		if s := &syncs[i]; !s.Abridged && len(times) < sparkCalls {
			times = append(times, s.HookMilliseconds)
		}
	}
	if len(times) < 2 {
		return nil
	}
	slices.Reverse(times)
	s := &spark{Calls: len(times), Most: slices.Max(times)}
	var points []string
	for i, t := range times {
		x := float64(i) * sparkWidth / float64(len(times)-1)
		y := sparkHeight - 2 - float64(t)*(sparkHeight-4)/float64(max(1, s.Most))
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	s.Points = strings.Join(points, " ")
	return s
}
