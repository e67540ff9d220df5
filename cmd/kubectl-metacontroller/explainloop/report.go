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

package explainloop

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// report is what is said of one parent.
type report struct {
	controller controllerobject.Object
	// parent is as it is named on command lines.
	parent string
	// syncs is how many syncs of it the server remembers.
	syncs int
	loops []loop
	// objects are those of the loops as they are now; nil for what is gone or cannot be read.
	objects map[v1alpha1.SyncObject]*unstructured.Unstructured
	now     time.Time
}

// print writes a paragraph for each loop, or that there is none.
func (r *report) print(out io.Writer) {
	name := r.controller.Argument()
	if len(r.loops) == 0 {
		fmt.Fprintf(out, "No field is changed back and forth, and no child is deleted and created again, by what the server remembers: %s of %s.\n", outputformat.Count(r.syncs, "sync", "syncs"), r.parent)
		fmt.Fprintf(out, "See what they did with: %s syncs %s %s\n", connection.Program, name, r.parent)
		return
	}
	for i := range r.loops {
		if i > 0 {
			fmt.Fprintln(out)
		}
		r.printLoop(out, &r.loops[i])
	}
	fmt.Fprintf(out, "\nSee the syncs with: %s syncs %s %s\n", connection.Program, name, r.parent)
}

func (r *report) printLoop(out io.Writer, l *loop) {
	name := nameOf(l.object)
	what, wrote, alone := l.path+" of "+name+" is changed back and forth.", "wrote", "leaves "+name+" alone"
	switch {
	case l.dropped:
		what = l.path + " of " + name + " is not stored: the API server drops it."
	case l.path == whole:
		what, wrote, alone = name+" is deleted by somebody else and created again.", "created", "does not create "+name
	}
	fmt.Fprintf(out, "%s\n  %s %s %s it in %d of the last %s, the last time %s ago.\n", what, r.controller.Kind(), r.controller.Name(), wrote, l.writes,
		outputformat.Count(r.syncs, "sync", "syncs"), outputformat.Duration(r.now.Sub(l.last)))
	if !l.dropped && l.path != whole {
		for _, other := range r.others(l) {
			fmt.Fprintf(out, "  %s changes it back.\n", sentence(other))
		}
	}
	if managers := r.managers(l); len(managers) > 0 {
		fmt.Fprintf(out, "  Field managers of it now, the latest first: %s.\n", strings.Join(managers, ", "))
	}
	if l.flapping && !l.dropped {
		fmt.Fprintf(out, "  The controller %s for a while, because that happened too often.\n", alone)
	}
	fmt.Fprintf(out, "  %s\n", r.advice(l))
}

// document is a report for programs.
type document struct {
	Controller string `json:"controller"`
	Parent     string `json:"parent"`
	// Syncs is how many syncs of the parent the server remembers.
	Syncs int    `json:"syncs"`
	Loops []Loop `json:"loops"`
}

// Loop is a place of an object that is changed back and forth.
type Loop struct {
	Object v1alpha1.SyncObject `json:"object"`
	// Field is empty if the object as a whole is created again and again.
	Field         string    `json:"field,omitempty"`
	Writes        int       `json:"writes"`
	LastTime      time.Time `json:"lastTime"`
	ChangedBackBy []string  `json:"changedBackBy,omitempty"`
	FieldManagers []string  `json:"fieldManagers,omitempty"`
	// LeftAlone is true while the controller does not write the object, Dropped if the API server does not store the field.
	LeftAlone bool   `json:"leftAlone,omitempty"`
	Dropped   bool   `json:"dropped,omitempty"`
	Advice    string `json:"advice"`
}

// WrittenBy reports whether a sync wrote the place, or created the object if that is one as a whole.
func (l Loop) WrittenBy(s *v1alpha1.ControllerSync) bool {
	if l.Field == whole {
		return slices.ContainsFunc(s.Children, func(c v1alpha1.SyncChild) bool { return c.SyncObject == l.Object && c.Action == v1alpha1.ChildCreate })
	}
	return (&loop{object: l.Object, path: l.Field}).writtenBy(*s)
}

func (r *report) document() document {
	d := document{Controller: r.controller.Argument(), Parent: r.parent, Syncs: r.syncs, Loops: []Loop{}}
	for i := range r.loops {
		l := &r.loops[i]
		d.Loops = append(d.Loops, Loop{
			Object: l.object, Field: l.path, Writes: l.writes, LastTime: l.last, ChangedBackBy: r.others(l), FieldManagers: r.managers(l),
			LeftAlone: l.flapping, Dropped: l.dropped, Advice: r.advice(l),
		})
	}
	return d
}

// others names who changes a place back: who is known from the syncs, or else the other field managers that own it.
func (r *report) others(l *loop) []string {
	if len(l.by) > 0 {
		return l.by
	}
	return slices.DeleteFunc(r.managers(l), func(name string) bool { return strings.HasPrefix(name, "metacontroller") })
}

// managers are the field managers of a place, the latest first.
func (r *report) managers(l *loop) []string {
	o := r.objects[l.object]
	if o == nil || l.path == whole || l.dropped {
		return nil
	}
	encoded, err := json.Marshal(o.GetManagedFields())
	if err != nil {
		return nil // Not reached: it was decoded from JSON.
	}
	names, err := plan.Managers(encoded, l.path)
	if err != nil {
		return nil // Likewise.
	}
	return names
}

// advice says what to do.
func (r *report) advice(l *loop) string {
	switch {
	case l.dropped:
		return fmt.Sprintf("Declare it in the schema of %s, or have the hook not return it.", schema.GroupResource{Group: l.object.Group, Resource: l.object.Resource})
	case l.path == whole:
		return "The API server's audit log says who deletes it: stop that, or leave it out of the hook's response."
	}
	others := r.others(l)
	record := fmt.Sprintf("'%s record %s %s -o DIRECTORY'", connection.Program, r.controller.Argument(), r.parent)
	if len(others) == 0 && r.controller.Inline() {
		return "Nobody else is known to write it. The inline hook returns the same to the same request: either an expression reads what the write changes, such as " +
			"the status or an observed child; or an admission webhook or a default of the API server changes what is written: return it as it is stored."
	}
	if len(others) == 0 {
		return "Nobody else is known to write it. Either the hook returns something else each time: record a response twice with " + record +
			" and compare; or an admission webhook or a default of the API server changes what is written: return it as it is stored."
	}
	if slices.ContainsFunc(others, isController) {
		return "Let only one of the two controllers write it: leave the field out of the response of one hook, or exclude the object " +
			"by the labelSelector of one controller."
	}
	if slices.ContainsFunc(others, func(name string) bool { return name == "kubectl" || strings.HasPrefix(name, "kubectl-") }) {
		return "Change the parent in place of the object, so that the hook returns what is wanted; or leave the field out of the hook's response, so " +
			"that it belongs to whoever sets it."
	}
	return "Leave the field out of the hook's response, so that it belongs to " + strings.Join(others, " and ") + "; or have that leave it alone."
}

// isController reports whether a name of who changes something back is that of a controller of the server.
func isController(name string) bool {
	return strings.HasPrefix(name, "CompositeController ") || strings.HasPrefix(name, "DecoratorController ") || strings.HasPrefix(name, "the controller of ")
}

// sentence begins a sentence with a name. Names of controllers are words, those of field managers are told from words.
func sentence(name string) string {
	if rest, ok := strings.CutPrefix(name, "the "); ok {
		return "The " + rest
	}
	if isController(name) {
		return name
	}
	return "The field manager " + name
}

// nameOf is an object as it is printed.
func nameOf(o v1alpha1.SyncObject) string {
	return o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}
