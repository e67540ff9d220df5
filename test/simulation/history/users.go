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

package history

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

// user is who does what users and administrators do.
const user = "user"

// place is where an object is.
type place struct {
	kind            int
	namespace, name string
}

func (p place) path() string {
	k := hooks.Kinds[p.kind]
	return k.Path(k.Versions[0], p.namespace, p.name)
}

func (p place) compare(q place) int { return strings.Compare(p.path(), q.path()) }

// placeOfObject returns the place of an object of one of the kinds.
func placeOfObject(o map[string]any) place {
	return place{hooks.KindOf(o), hooks.Meta(o, "namespace"), hooks.Meta(o, "name")}
}

// placeOf returns the place of object i of a kind.
func placeOf(kind, i int) place {
	k := hooks.Kinds[kind]
	p := place{kind: kind, name: fmt.Sprintf("%s%d", k.Letter, i)}
	if k.Namespaced {
		p.namespace = hooks.Namespaces[i%len(hooks.Namespaces)]
	}
	return p
}

// childrenOfParents is the number of children of a parent that steps may refer to without Deployments, and deploymentsOfParents that of these.
const childrenOfParents, deploymentsOfParents = 4, 2

// childOf returns the place of the child that a step refers to.
func childOf(s Step) place {
	parent := placeOf(s.Kind, s.On)
	kind, i := []int{hooks.Gadget, hooks.ConfigMap}[s.Child%2], s.Child/2
	if s.Child >= childrenOfParents {
		kind, i = hooks.Deployment, s.Child-childrenOfParents
	}
	p := place{kind, parent.namespace, fmt.Sprintf("%s-%s-%s%d", parent.name, controllerName(s.Controller), hooks.Kinds[kind].Letter, i)}
	if p.namespace == "" {
		p.namespace = hooks.Namespaces[i%len(hooks.Namespaces)]
	}
	return p
}

func encode(o map[string]any) []byte {
	body, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("encoding an object: %v", err)) //nolint:forbidigo // It is made of JSON values.
	}
	return body
}

func (r *runner) post(path string, o map[string]any) apiserver.Response {
	return r.request(apiserver.Request{Method: http.MethodPost, Path: path, Body: encode(o)})
}

func (r *runner) create(p place, o map[string]any) apiserver.Response {
	k := hooks.Kinds[p.kind]
	o["apiVersion"], o["kind"] = k.APIVersion(k.Versions[0]), k.Name
	meta := field(o, "metadata")
	meta["name"] = p.name
	if p.namespace != "" {
		meta["namespace"] = p.namespace
	}
	return r.post(k.Path(k.Versions[0], p.namespace, ""), o)
}

// get reads an object, nil if there is none.
func (r *runner) get(path string) map[string]any {
	response := r.request(apiserver.Request{Method: http.MethodGet, Path: path})
	if response.Code != http.StatusOK {
		return nil
	}
	var o map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(response.Body, &o); err != nil {
		panic(fmt.Sprintf("decoding %s: %v", path, err)) //nolint:forbidigo // The API server of the simulation is wrong.
	}
	return o
}

// change reads an object, lets it be changed, and writes it. It does nothing if there is none. It reports whether the object is stored as
// changed.
func (r *runner) change(path string, edit func(map[string]any)) bool {
	o := r.get(path)
	if o == nil {
		return false
	}
	edit(o)
	return r.request(apiserver.Request{Method: http.MethodPut, Path: path, Body: encode(o)}).Code == http.StatusOK
}

func (r *runner) merge(path, subresource string, patch map[string]any) {
	if subresource != "" {
		path += "/" + subresource
	}
	r.request(apiserver.Request{Method: http.MethodPatch, Path: path, ContentType: "application/merge-patch+json", Body: encode(patch)})
}

func (r *runner) remove(path, policy string) {
	options := map[string]any{"kind": "DeleteOptions", "apiVersion": "v1"}
	if policy != "" {
		options["propagationPolicy"] = policy
	}
	r.request(apiserver.Request{Method: http.MethodDelete, Path: path, Body: encode(options)})
}

// field returns a map in a map, which it makes if there is none.
func field(o map[string]any, name string) map[string]any {
	m, ok := o[name].(map[string]any)
	if !ok {
		m = map[string]any{}
		o[name] = m
	}
	return m
}

func metadata(fields map[string]any) map[string]any { return map[string]any{"metadata": fields} }

var colors = []string{"red", "green", "blue", "gray"}

func (r *runner) color() string { return colors[r.random.IntN(len(colors))] }

// wish returns what a parent may want.
func (r *runner) wish() hooks.Wish {
	wish := hooks.Wish{
		Children: r.children(), Color: r.color(), Level: int64(r.random.IntN(4)), Shape: int64(r.random.IntN(hooks.Shapes)),
		Ordered: r.random.IntN(4) == 0, Memory: r.random.IntN(5) == 0, Related: []string{"", "labels", "labels", "names", "namespace"}[r.random.IntN(5)],
	}
	if r.history.Options.RelatedKinds && r.random.IntN(2) == 0 {
		wish.Related = hooks.Kinded
	}
	wish.InTurn = r.history.Options.Many > 0 && r.random.IntN(2) == 0
	return wish
}

// children returns how many children a parent may want.
func (r *runner) children() int64 {
	many := int64(r.history.Options.Many)
	if many == 0 {
		return int64(r.random.IntN(3))
	}
	return []int64{0, 1, 2, many, many}[r.random.IntN(5)]
}

func (r *runner) createObject(s Step) { r.createAt(placeOf(s.Kind, s.On)) }

// createAt creates an object as a parent or target.
func (r *runner) createAt(p place) {
	labels := map[string]any{}
	if r.random.IntN(3) > 0 {
		labels[selection] = "yes"
	}
	o := metadata(map[string]any{"labels": labels})
	w := r.wish()
	switch p.kind {
	case hooks.ConfigMap:
		o["data"] = map[string]any{"color": w.Color, "level": fmt.Sprint(w.Level)}
	case hooks.Gadget:
		o["spec"] = map[string]any{"color": w.Color, "level": w.Level, "size": w.Children}
	default:
		spec := w.Spec()
		r.drew(ofChildren, w.Children)
		if p.kind == hooks.Thing {
			spec["selector"] = map[string]any{"matchLabels": map[string]any{"app": p.name}}
		}
		o["spec"] = spec
	}
	r.create(p, o)
}

func (r *runner) editObject(s Step) { r.editAt(placeOf(s.Kind, s.On)) }

// editAt changes what an object wants.
func (r *runner) editAt(p place) {
	w := r.wish()
	spec := map[string]any{}
	switch r.random.IntN(7) {
	case 0, 1:
		spec["color"] = w.Color
	case 2:
		spec["level"] = w.Level
	case 3:
		spec["children"] = w.Children
		r.drew(ofChildren, w.Children)
	case 4:
		spec["shape"] = w.Shape
	case 5:
		spec["related"], spec["memory"], spec["ordered"] = w.Related, w.Memory, w.Ordered
		if r.history.Options.Many > 0 {
			spec["inTurn"] = w.InTurn
		}
		if r.random.IntN(8) == 0 {
			spec["expired"] = true
		}
	case 6:
		r.vary(p)
		return
	}
	switch p.kind {
	case hooks.ConfigMap:
		r.merge(p.path(), "", map[string]any{"data": map[string]any{"color": w.Color}})
	case hooks.Gadget:
		r.merge(p.path(), "", map[string]any{"spec": map[string]any{"color": w.Color, "size": w.Children}})
	default:
		r.merge(p.path(), "", map[string]any{"spec": spec})
	}
}

// vary changes one thing that children have, and nothing else: often one that only its own change shows.
func (r *runner) vary(p place) {
	varied := int64(1) << r.random.IntN(bits.Len(hooks.Shapes)-1)
	switch r.random.IntN(3) {
	case 0:
		varied = hooks.WithMatch
	case 1:
		varied = hooks.WithNotes
	}
	if p.kind != hooks.Gadget {
		r.reshape(p, func(shape int64) int64 { return shape ^ varied })
	}
}

func (r *runner) selectObject(s Step) { r.selectAt(placeOf(s.Kind, s.On)) }

func (r *runner) selectAt(p place) {
	var value any
	if r.random.IntN(2) == 0 {
		value = "yes"
	}
	r.merge(p.path(), "", metadata(map[string]any{"labels": map[string]any{selection: value}}))
}

func (r *runner) annotateObject(s Step) {
	r.merge(placeOf(s.Kind, s.On).path(), "", metadata(map[string]any{"annotations": map[string]any{"note": fmt.Sprint(s.Seed)}}))
}

// pauseObject pauses a parent by its annotation, for Count seconds if it is for a time.
func (r *runner) pauseObject(s Step) {
	values := map[string]any{"ever": "true", "time": time.Now().Add(time.Duration(s.Count) * time.Second).UTC().Format(time.RFC3339)}
	r.merge(placeOf(s.Kind, s.On).path(), "", metadata(map[string]any{"annotations": map[string]any{invariant.PausedAnnotation: values[s.How]}}))
}

// resumeObjects ends the pauses of all parents.
func (r *runner) resumeObjects() {
	r.follow()
	for kind := range hooks.Kinds {
		for _, o := range r.tracker.Objects(kind) {
			if value.At(o, "metadata", "annotations", invariant.PausedAnnotation) != nil {
				r.merge(placeOfObject(o).path(), "", metadata(map[string]any{"annotations": map[string]any{invariant.PausedAnnotation: nil}}))
			}
		}
	}
}

func (r *runner) deleteObject(s Step) { r.remove(placeOf(s.Kind, s.On).path(), s.How) }

func (r *runner) replaceObject(s Step) {
	r.remove(placeOf(s.Kind, s.On).path(), "Background")
	r.createObject(s)
}

func (r *runner) editStatus(s Step) {
	// A controller that ignores changes of the status corrects them at the next resync, which nobody waits for.
	ignored := slices.ContainsFunc(r.definitions[:], func(d *definition) bool { return d != nil && d.ignore })
	if hooks.Kinds[s.Kind].HasStatus && !ignored {
		r.merge(placeOf(s.Kind, s.On).path(), "status", map[string]any{"status": map[string]any{"color": "foreign", "related": nil}})
	}
}

func (r *runner) stripFinalizers(s Step) { r.stripAt(placeOf(s.Kind, s.On)) }

func (r *runner) stripAt(p place) {
	r.merge(p.path(), "", metadata(map[string]any{"finalizers": nil}))
}

// hold is the finalizer of a stranger.
const hold = "example.com/hold"

func (r *runner) setHold(path string, on bool) {
	r.change(path, func(o map[string]any) {
		meta := field(o, "metadata")
		list, _ := meta["finalizers"].([]any) // Absent: none.
		list = slices.DeleteFunc(list, func(f any) bool { return f == hold })
		if on {
			list = append(list, hold)
		}
		meta["finalizers"] = list
	})
}

func (r *runner) holdObject(s Step) { r.setHold(placeOf(s.Kind, s.On).path(), true) }
func (r *runner) freeObject(s Step) { r.setHold(placeOf(s.Kind, s.On).path(), false) }
func (r *runner) holdChild(s Step)  { r.setHold(childOf(s).path(), true) }
func (r *runner) freeChild(s Step)  { r.setHold(childOf(s).path(), false) }

func relatedPlace(s Step) place {
	return place{hooks.ConfigMap, hooks.Namespaces[s.Kind%len(hooks.Namespaces)], fmt.Sprintf("related-%d", s.On)}
}

// relatedPlaces returns the places of the objects that a step with related objects is about.
func (r *runner) relatedPlaces(s Step) []place {
	number := 1
	if many := r.history.Options.Related; many > 0 {
		number = []int{1, 2, many}[r.random.IntN(3)]
	}
	if slices.ContainsFunc(r.definitions[:], func(d *definition) bool { return d != nil && d.handles(hooks.ConfigMap) }) {
		number = min(number, few) // Each of them is a parent then, with children of its own.
	}
	r.drew(ofRelated, int64(number))
	var all []place
	for range number {
		all = append(all, relatedPlace(s))
		s.On += relatedObjects
	}
	return all
}

// createRelated creates related objects, or changes them.
func (r *runner) createRelated(s Step) {
	color := r.color()
	for _, p := range r.relatedPlaces(s) {
		r.relate(p, color)
	}
}

// relate creates a related object, or changes the label by which it is selected, and what it says.
func (r *runner) relate(p place, color string) {
	o := metadata(map[string]any{"labels": map[string]any{hooks.Pick: color}})
	o["data"] = map[string]any{"color": color}
	if r.create(p, o).Code == http.StatusConflict {
		r.merge(p.path(), "", o)
	}
}

func (r *runner) deleteRelated(s Step) {
	for _, p := range r.relatedPlaces(s) {
		r.remove(p.path(), "")
	}
}

// relabelRelated has a customize hook select an object no more by its label, or select one if none is selected.
func (r *runner) relabelRelated(s Step) {
	r.follow()
	var selected []string
	for _, kind := range []int{hooks.Thing, hooks.Realm} {
		for _, o := range r.tracker.Objects(kind) {
			if w := hooks.WishOf(o); w.Related == "labels" {
				selected = append(selected, w.Color)
			}
		}
	}
	at := relatedPlace(s)
	for _, o := range r.tracker.Objects(hooks.ConfigMap) {
		if p := placeOfObject(o); p.namespace == at.namespace && slices.Contains(selected, hooks.Label(o, hooks.Pick)) {
			r.relate(p, "none")
			return
		}
	}
	color := r.color()
	if len(selected) > 0 {
		color = selected[r.random.IntN(len(selected))]
	}
	r.relate(at, color)
}

func (r *runner) apply(p place, manager string, o map[string]any) {
	r.request(apiserver.Request{
		Method: http.MethodPatch, Path: p.path(), Query: url.Values{"fieldManager": {manager}, "force": {"true"}},
		ContentType: "application/apply-patch+yaml", Body: encode(o),
	})
}
