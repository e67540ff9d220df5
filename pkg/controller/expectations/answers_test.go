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

package expectations_test

import (
	"fmt"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// writers are the parents of several controllers of one process, which write objects because of others.
type writers struct {
	*scene

	registry expectations.Registry
	all      map[string]*expectations.Expectations
	version  int
}

func (w *writers) of(controller string) *expectations.Expectations {
	if w.all[controller] == nil {
		w.all[controller] = w.registry.New(controller, nil, nil)
	}
	return w.all[controller]
}

// write has a parent of a controller, both of that name, write an object because of others, and returns its version.
func (w *writers) write(name string, because ...uint64) uint64 {
	w.version++
	o := w.parse(name, "uid-"+name, fmt.Sprint(w.version), "")
	e := w.of(name)
	e.Because = func(parent.Key) []uint64 { return because }
	e.Wrote(parent.Key{Name: name}, w.informer, o)
	return history.Version(o)
}

func (w *writers) answers(name string, version uint64) bool {
	return w.of(name).Answers(parent.Key{Name: name}, version)
}

func TestWhichWritesAnswerThoseOfAParent(t *testing.T) {
	for name, test := range map[string]struct {
		play func(*writers) uint64
		want bool
	}{
		"another parent, because of this one": {func(w *writers) uint64 { return w.write("b", w.write("a")) }, true},
		"another parent, for reasons of its own": {func(w *writers) uint64 {
			w.write("a")
			return w.write("b")
		}, false},
		"another parent, because of a third one": {func(w *writers) uint64 { return w.write("b", w.write("c")) }, false},
		"by way of two others":                   {func(w *writers) uint64 { return w.write("c", w.write("b", w.write("a"))) }, true},
		"by way of three others":                 {func(w *writers) uint64 { return w.write("d", w.write("c", w.write("b", w.write("a")))) }, true},
		"one of several causes":                  {func(w *writers) uint64 { return w.write("b", w.write("c"), w.write("a")) }, true},
		"another client":                         {func(*writers) uint64 { return 12345 }, false},
		"too many writes ago": {func(w *writers) uint64 {
			version := w.write("b", w.write("a"))
			for range 5000 {
				w.write("c")
			}
			return version
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &writers{scene: newScene(t), all: map[string]*expectations.Expectations{}}
			if got := w.answers("a", test.play(w)); got != test.want {
				t.Errorf("it answers: %v", got)
			}
		})
	}
}

func TestAParentOfTheSameNameOfAnotherControllerIsNotAnswered(t *testing.T) {
	w := &writers{scene: newScene(t), all: map[string]*expectations.Expectations{}}
	version := w.write("b", w.write("a"))
	if w.of("c").Answers(parent.Key{Name: "a"}, version) {
		t.Error("it is taken for an answer")
	}
}
