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

package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// annotationPlace is where a merged child has our own record.
const annotationPlace = "metadata.annotations[" + merge.Annotation + "]"

// compareMerged compares a child that is merged here.
func (c *child) compareMerged(returned []Returned) (findings, error) {
	var f findings
	if c.holds {
		return f, nil
	}
	var err error
	f.merged, err = merge.Objects(c.observed, observable(c.last), c.step.shown, c.step.schema, f.note(&f.values, returned))
	if !c.fresh {
		f.record = annotationPlace
	}
	c.separateKeeper(&f)
	return f, err
}

// readRecord reads from the annotation what was applied last to the observed child.
func (c *child) readRecord() error {
	recorded, ok := c.step.Observed.Annotation(merge.Annotation)
	if !ok {
		return nil
	}
	c.recorded = true
	c.last = c.in.applicable(merge.Decode(recorded))
	if recorded == c.text || c.last == nil || merge.IsSecret(c.last) {
		// What Metacontroller recorded of a Secret in clear is never up to date.
		c.fresh = recorded == c.text
		return nil
	}
	// Metacontroller recorded fields, too, that are not ours to apply; that alone is no reason to write the child.
	again, err := merge.Encode(c.last)
	c.fresh = err == nil && again == c.text
	return err
}

// appliedBefore returns what server-side apply has applied to the observed child; nil if nothing.
func (c *child) appliedBefore(leaf func(any) any) (map[string]any, error) {
	o := c.step.Observed
	set, err := ownedBy(o, append(c.in.former(o), c.in.Manager))
	if err != nil || set == nil {
		return nil, err
	}
	c.owned = true
	part := c.in.applicable(owned(c.observed, set, leaf))
	part["kind"], part["apiVersion"] = o.Kind(), o.APIVersion()
	return part, nil
}

// differences returns where an object differs from what is desired, as what the API server returned for it. Last is what was
// applied before.
func (s Step) differences(o *object.Object, content, last map[string]any) []Returned {
	var list []Returned
	known := sets.New[Returned]()
	add := func(d merge.Difference) bool {
		if pair := pairOf(d); !ofSystem(d.Path) && !known.Has(pair) {
			known.Insert(pair)
			list = append(list, pair)
		}
		return true
	}
	compared := []map[string]any{content}
	// What is created without apply, as for a trial, has no owner.
	if fields, ok := o.AppliedFields(s.Manager); ok && s.Manager != "" {
		set, err := setOf(s.Manager, fields)
		if err != nil {
			return nil
		}
		compared = append(compared, owned(content, set, whole))
	}
	for _, has := range compared {
		// An object that cannot be merged teaches nothing; the next plan says why.
		_, _ = merge.Objects(has, last, s.shown, s.schema, add)
	}
	return list
}

// learn returns where an object that the API server returned for the step is not what was sent.
func (s Step) learn(o *object.Object) []Returned {
	if s.Manager == "" && o.Holds(s.shown) {
		return nil
	}
	content, err := o.Decode()
	if err != nil {
		return nil
	}
	kept := map[Returned]Hash{}
	for _, pair := range s.explained {
		kept[Returned{Path: pair.Path, Sent: pair.Sent}] = pair.Got
	}
	return slices.DeleteFunc(s.differences(o, content, s.shown), func(pair Returned) bool {
		// In place of a value that stays, the observed one was sent: what came back for it says nothing of the desired one.
		got, stays := kept[Returned{Path: pair.Path, Sent: pair.Sent}]
		return s.Manager == "" && stays && got != pair.Got
	})
}

// createBody returns the body that creates a child. The status is sent as the hook returned it: kinds without a status
// subresource take it (docs/reference/contract.md#s12.2).
func (in *Input) createBody(content map[string]any, status any, text string) ([]byte, error) {
	created := withAnnotation(withMetadata(content, in.addOwner), text)
	if status != nil {
		created["status"] = status
	}
	body, err := json.Marshal(created)
	if err != nil {
		return nil, fmt.Errorf("encoding the new object: %w", err)
	}
	return body, nil
}

// withAnnotation returns a copy of an object, as deep as needed, with the last-applied annotation.
func withAnnotation(content map[string]any, text string) map[string]any {
	return withMetadata(content, func(metadata map[string]any) {
		annotations, _ := metadata["annotations"].(map[string]any)
		changed := make(map[string]any, len(annotations)+1)
		maps.Copy(changed, annotations)
		changed[merge.Annotation] = text
		metadata["annotations"] = changed
	})
}

// withMetadata returns a copy of an object, as deep as needed, with its metadata changed, if it has any.
func withMetadata(content map[string]any, change func(metadata map[string]any)) map[string]any {
	result := maps.Clone(content)
	if metadata, ok := result["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		change(metadata)
		result["metadata"] = metadata
	}
	return result
}

// addOwner adds the parent to the owners in the metadata of a child.
func (in *Input) addOwner(metadata map[string]any) {
	owners, _ := metadata["ownerReferences"].([]any)
	metadata["ownerReferences"] = append(slices.Clone(owners), any(in.Owner))
}

// systemFields are the fields of metadata that a hook does not decide (docs/reference/contract.md#s12.2).
var systemFields = []string{
	"selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
	"managedFields",
}

// applicable returns what of an object that a hook returned is applied: not what the system decides, nor the status, nor
// the annotation and the owner reference that are ours. Hooks return such fields when they change and return an object that
// they were sent; they differ after every write (docs/reference/contract.md#s12.5). The object itself stays as it is.
func (in *Input) applicable(content map[string]any) map[string]any {
	if content == nil {
		return nil
	}
	result := withMetadata(content, func(metadata map[string]any) {
		for _, field := range systemFields {
			delete(metadata, field)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			if _, ours := annotations[merge.Annotation]; ours {
				annotations = maps.Clone(annotations)
				delete(annotations, merge.Annotation)
				metadata["annotations"] = annotations
				if len(annotations) == 0 {
					delete(metadata, "annotations")
				}
			}
		}
		if owners, ok := metadata["ownerReferences"].([]any); ok {
			others := slices.DeleteFunc(slices.Clone(owners), func(o any) bool {
				owner, ok := o.(map[string]any)
				return ok && owner["uid"] == in.Owner["uid"]
			})
			metadata["ownerReferences"] = others
			if len(others) == 0 {
				delete(metadata, "ownerReferences")
			}
		}
	})
	delete(result, "status")
	return result
}

// observable returns what is applied in the form in which it can be compared with an observed object.
func observable(applied map[string]any) map[string]any {
	if applied == nil {
		return nil
	}
	shown := maps.Clone(merge.Observable(applied))
	// The version in which the object is written may differ from the one that was applied last.
	delete(shown, "apiVersion")
	return shown
}

// ofSystem reports whether a path is that of a field that is the system's. What is applied has none; it is a second guard.
func ofSystem(path string) bool {
	if within(path, "status") {
		return true
	}
	field, ok := strings.CutPrefix(path, "metadata.")
	return ok && slices.Contains(systemFields, field)
}

const (
	// room is what is left of the API server's limit of annotations for those that others add later: admission, controllers and people. Without
	// it their writes of the child would be refused.
	room = 4 << 10
	// maxAnnotations is how long the names and values of all annotations of a merged child may be, with our own record, in bytes.
	maxAnnotations = validation.TotalAnnotationSizeLimitB - room
)

// recordFits reports whether the text of what is applied has room in an annotation of a child, beside the annotations that are desired and those
// that others have set on it. O is the child as it is, nil if it is not there. The answer does not depend on who merges the child now.
func recordFits(text string, content map[string]any, o *object.Object) bool {
	var raw []byte
	if o != nil {
		raw = o.RawAnnotations()
	}
	// What is desired is in the text, and JSON is no shorter than what it stands for.
	if len(merge.Annotation)+2*len(text)+len(raw) <= maxAnnotations {
		return true
	}
	annotations := map[string]string{}
	if len(raw) > 0 {
		maps.Copy(annotations, o.Annotations())
	}
	for dropped := range AnnotationsOf(merge.Decode(annotations[merge.Annotation])) {
		delete(annotations, dropped)
	}
	for name, value := range AnnotationsOf(content) {
		annotations[name], _ = value.(string)
	}
	annotations[merge.Annotation] = text
	size := 0
	for name, value := range annotations {
		size += len(name) + len(value)
	}
	return size <= maxAnnotations
}

// AnnotationsOf returns the annotations of a decoded object.
func AnnotationsOf(content map[string]any) map[string]any {
	metadata, _ := content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return annotations
}

// surelyFits reports whether recordFits is known without the text.
func surelyFits(content map[string]any, o *object.Object) bool {
	// The text may have a namespace that the content has not.
	longest := longestJSON(content) + len(o.Namespace())
	return len(merge.Annotation)+2*longest+len(o.RawAnnotations()) <= maxAnnotations
}

// longestJSON returns a length that the JSON of a decoded value does not exceed: no number is longer, and no byte stands for more.
func longestJSON(value any) int {
	const number, escape = 32, len(`\u0000`)
	size := number
	switch value := value.(type) {
	case string:
		size += escape * len(value)
	case map[string]any:
		for name, field := range value {
			size += number + escape*len(name) + longestJSON(field)
		}
	case []any:
		for _, item := range value {
			size += longestJSON(item)
		}
	}
	return size
}
