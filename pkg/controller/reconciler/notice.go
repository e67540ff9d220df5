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
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
)

// notices remember what was said about the definition of a controller, which only responses show. Each is said once.
type notices struct{ labels, status atomic.Bool }

// notice says what is wrong with the definition in the light of a response.
func (s *Sync) notice() {
	c, d := s.controller, s.controller.config.Definition
	if d.Kind == definition.KindDecorator && c.hooks.Finalize == nil && !c.noticed.labels.Load() {
		s.noticeLabels()
	}
	if d.Kind == definition.KindComposite && len(s.Decision.Status) > 0 && !s.Source.Resource.HasStatus && c.noticed.status.CompareAndSwap(false, true) {
		c.shared.Recorder.Warning(d.Reference(), eventrecorder.ReasonStatusIgnored, fmt.Sprintf(
			"The status that the hook returns is not written: %s have no status subresource. Add subresources: {status: {}} to the version in "+
				"their CustomResourceDefinition, or return no status", s.Source.Resource.GroupResource()))
	}
}

func (s *Sync) noticeLabels() {
	c, d := s.controller, s.controller.config.Definition
	if names := s.sets(); len(names) > 0 && c.noticed.labels.CompareAndSwap(false, true) {
		c.shared.Recorder.Warning(d.Reference(), eventrecorder.ReasonLabelsStay, fmt.Sprintf(
			"The hook sets %s of %s, and there is no finalize hook to take such labels and annotations off: they stay when an object is not "+
				"selected any more, and when the controller is deleted. Declare spec.hooks.finalize, which returns null for them, unless "+
				"they may stay", strings.Join(names, ", "), s.Parent))
	}
}

// sets returns the labels and annotations that the response sets.
func (s *Sync) sets() (names []string) {
	for _, part := range []struct {
		noun   string
		values map[string]*string
	}{{"label", s.Decision.Labels}, {"annotation", s.Decision.Annotations}} {
		for _, name := range slices.Sorted(maps.Keys(part.values)) {
			if part.values[name] != nil {
				names = append(names, part.noun+" "+name)
			}
		}
	}
	return names[:min(len(names), 3)]
}
