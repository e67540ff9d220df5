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

package parent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Changes are changes of an object that another client owns. What they do not mention stays as it is.
type Changes struct {
	// Labels and Annotations are set; nil values remove.
	Labels, Annotations map[string]*string
	// Status becomes the status as a whole. Nil: the status stays. Kinds with a status subresource take it there, and nothing else.
	Status map[string]any
	// DropFinalizer is taken off. Empty: none.
	DropFinalizer string
	// BuiltIn says that the kind is Kubernetes' own, whose status another controller writes. One with a field that the kind does not have is
	// refused then, which [UnknownFields] tells; else the API server would drop the field and empty the rest.
	BuiltIn bool
}

// OfMetadata reports whether labels, annotations or finalizers of o have to be written.
func (c Changes) OfMetadata(o *object.Object) bool {
	c.Status = nil
	operations, _ := c.operations(o) // Without a status nothing is decoded that could fail.
	return len(operations) > 0
}

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// conditional returns the patch of o, which the API server refuses when o was changed since. The version stands for the UID too: no two
// objects ever share a version.
func conditional(o *object.Object, operations []operation) ([]byte, error) {
	body, err := json.Marshal(append([]operation{{"replace", "/metadata/resourceVersion", o.ResourceVersion()}}, operations...))
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return body, nil
}

// Write makes the changes in one patch that holds nothing else, and returns the object as written. It writes nothing, and
// returns nil, when o is like that already. When the object was changed since o, the error is a conflict.
func (c Changes) Write(ctx context.Context, api *client.Client, t client.Target, o *object.Object) (*object.Object, error) {
	operations, err := c.operations(o)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	body, err := conditional(o, operations)
	if err != nil {
		return nil, err
	}
	patch := api.Patch
	if c.BuiltIn && c.Status != nil {
		patch = api.PatchStrictly
	}
	written, err := patch(ctx, t, types.JSONPatchType, body)
	if err != nil {
		return nil, c.failed(o, operations, len(body), err)
	}
	return written, nil
}

// operations returns what differs. Each sets a field of the object or of its metadata as a whole: API servers patch before they
// compare versions, and would refuse, as invalid, a path into a map that was removed meanwhile.
func (c Changes) operations(o *object.Object) ([]operation, error) {
	operations := c.texts(nil, "labels", o.Labels(), c.Labels)
	operations = c.texts(operations, "annotations", o.Annotations(), c.Annotations)
	if finalizers := o.Finalizers(); c.DropFinalizer != "" && slices.Contains(finalizers, c.DropFinalizer) {
		rest := slices.DeleteFunc(finalizers, func(name string) bool { return name == c.DropFinalizer })
		operations = append(operations, operation{"add", "/metadata/finalizers", rest})
	}
	if c.Status == nil {
		return operations, nil
	}
	current, there, err := StatusOf(o)
	if err != nil || there && merge.Equal(current, c.Status) {
		return operations, err
	}
	return append(operations, operation{"add", "/status", c.Status}), nil
}

// Field is a field of an object, with the value that it gets.
type Field struct {
	// Path leads to the field, as in metadata, labels.
	Path []string
	// Value is what it becomes as a whole.
	Value any
}

// Fields returns what Write would change of o.
func (c Changes) Fields(o *object.Object) ([]Field, error) {
	operations, err := c.operations(o)
	if err != nil {
		return nil, err
	}
	fields := make([]Field, len(operations))
	for i, each := range operations {
		fields[i] = Field{Path: strings.Split(each.Path[1:], "/"), Value: each.Value}
	}
	return fields, nil
}

// texts appends the operation that changes a map of strings in the metadata, if it changes.
func (c Changes) texts(operations []operation, field string, present map[string]string, change map[string]*string) []operation {
	if len(change) == 0 {
		return operations
	}
	desired := Changed(present, change)
	if maps.Equal(present, desired) {
		return operations
	}
	return append(operations, operation{"add", "/metadata/" + field, desired})
}

// Changed returns labels or annotations with changes, of which those that are nil remove.
func Changed(before map[string]string, changes map[string]*string) map[string]string {
	after := make(map[string]string, len(before)+len(changes))
	maps.Copy(after, before)
	for name, value := range changes {
		if value == nil {
			delete(after, name)
		} else {
			after[name] = *value
		}
	}
	return after
}

// IgnoreGone drops the error of a write to a parent that is gone.
func IgnoreGone(err error) error {
	if client.IsGone(err) {
		return nil
	}
	return err
}

// HasStatus reports whether status is the status of o. The error says that what o has cannot be decoded.
func HasStatus(o *object.Object, status map[string]any) (bool, error) {
	current, ok, err := StatusOf(o)
	return ok && merge.Equal(current, status), err
}

// StatusOf decodes the status of o; ok is false if it has none.
func StatusOf(o *object.Object) (status map[string]any, ok bool, err error) {
	raw, ok := o.Field("status")
	if !ok {
		return nil, false, nil
	}
	if err := utiljson.Unmarshal(raw, &status); err != nil {
		return nil, false, fmt.Errorf("decoding the current status: %w", err)
	}
	return status, true, nil
}

// Finalizer is the finalizer that one controller adds to its parents while it has a finalize hook, or children that stay without them (docs/reference/contract.md#s15).
type Finalizer struct {
	// Name is the finalizer's name, see CompositeFinalizer and DecoratorFinalizer.
	Name string
	// Enabled says whether the controller has a finalize hook, or children that stay.
	Enabled bool
}

// CompositeFinalizer returns the name of the finalizer of a CompositeController.
func CompositeFinalizer(controller string) string {
	return "metacontroller.io/compositecontroller-" + controller
}

// DecoratorFinalizer returns the name of the finalizer of a DecoratorController.
func DecoratorFinalizer(controller string) string {
	return "metacontroller.io/decoratorcontroller-" + controller
}

// On reports whether the finalizer is on o.
func (f Finalizer) On(o *object.Object) bool { return slices.Contains(o.Finalizers(), f.Name) }

// ShouldFinalize reports whether children of a parent that is being deleted are still managed: the finalize hook is
// declared, its finalizer is on the parent, and the parent was not deleted with a propagation policy by which the garbage collector
// deletes or orphans the children (docs/reference/contract.md#s15).
func (f Finalizer) ShouldFinalize(o *object.Object) bool {
	if !f.Enabled || !f.On(o) {
		return false
	}
	return !slices.Contains(o.Finalizers(), metav1.FinalizerDeleteDependents) &&
		!slices.Contains(o.Finalizers(), metav1.FinalizerOrphanDependents)
}

// Wanted returns the finalizers of a parent with the finalizer, if it has to be on it, or without, if the controller has no finalize hook; and whether
// these are others than it has.
func (f Finalizer) Wanted(o *object.Object) (finalizers []string, changes bool) {
	switch on := f.On(o); {
	case f.Enabled && !on && !o.Deleting():
		return append(slices.Clone(o.Finalizers()), f.Name), true
	case !f.Enabled && on:
		return f.Without(o), true
	}
	return o.Finalizers(), false
}

// Without returns the other finalizers of a parent.
func (f Finalizer) Without(o *object.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.Finalizers()), func(name string) bool { return name == f.Name })
}

// Write gives a parent other finalizers. When it was changed since o, the error is a conflict.
func (f Finalizer) Write(ctx context.Context, c *client.Client, t client.Target, o *object.Object, finalizers []string) (*object.Object, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             o.UID(),
		"resourceVersion": o.ResourceVersion(),
		"finalizers":      finalizers,
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the finalizers: %w", err)
	}
	written, err := c.Patch(ctx, t, types.MergePatchType, patch)
	if err != nil {
		return nil, fmt.Errorf("writing finalizer %s: %w", f.Name, err)
	}
	return written, nil
}

// large is the size of a patch, in bytes, from which on an error says it.
const large = 100 << 10

// failed says of the error of a patch what was to be written, and what the author of the hook can do.
func (c Changes) failed(o *object.Object, operations []operation, size int, err error) error {
	fields := make([]string, len(operations))
	for i, each := range operations {
		fields[i] = path.Base(each.Path)
	}
	shown := ""
	if size >= large {
		shown = fmt.Sprintf(", %.1f MB", float64(size)/1e6)
	}
	return fmt.Errorf("writing the %s of %s%s: %w%s", strings.Join(fields, " and "), o, shown, err, c.advice(fields, err))
}

// advice says how a hook can return what the API server takes.
func (c Changes) advice(fields []string, err error) string {
	last := fields[len(fields)-1]
	switch {
	case last == "finalizers":
		return ""
	case tooLarge(err) && last == "status":
		return "; return a smaller status"
	case tooLarge(err):
		return "; return smaller " + last
	case !apierrors.IsInvalid(err):
		return ""
	case c.Status == nil:
		return "; return valid " + strings.Join(fields, " and ")
	case c.BuiltIn:
		return "; this status is that of a controller of Kubernetes: have the hook return none"
	}
	return "; return a status that the kind allows"
}

// tooLarge reports whether an API server, or its store, says that an object is too large.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(), "request is too large") ||
		strings.Contains(err.Error(), "larger than max") || strings.Contains(err.Error(), "may not be more than")
}

const strictly = "strict decoding error: "

var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// UnknownFields returns the fields, such as status.phase or status itself, for which the API server refused a status as that of a kind which does not have
// them; none if that is not what the error says.
func UnknownFields(err error) (fields []string) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return nil
	}
	// Before it stands the whole object, in which anything may be.
	at := strings.LastIndex(status.ErrStatus.Message, strictly)
	if at < 0 {
		return nil
	}
	for _, found := range unknownField.FindAllStringSubmatch(status.ErrStatus.Message[at:], -1) {
		if found[1] != "status" && !strings.HasPrefix(found[1], "status.") {
			return nil
		}
		fields = append(fields, found[1])
	}
	return fields
}

// LostOfStatus returns the paths, such as status.phase, of fields that were sent as the status of an object and that it lacks as the API
// server returned it, in order. A field stands for all that was in it; one of elements of a list has a path such as status.nodes[].ready, as
// often as it is missing. Values that are empty are not missed: kinds that are built in leave them out.
func LostOfStatus(sent map[string]any, written *object.Object) []string {
	stored, _, err := StatusOf(written)
	if err != nil {
		return nil
	}
	found := lost(nil, "status", sent, stored)
	slices.Sort(found)
	return found
}

func lost(found []string, path string, sent, stored any) []string {
	switch s := sent.(type) {
	case map[string]any:
		now, _ := stored.(map[string]any)
		for name, value := range s {
			at := path + "." + name
			if kept, there := now[name]; there {
				found = lost(found, at, value, kept)
			} else if !isEmpty(value) {
				found = append(found, at)
			}
		}
	case []any:
		now, _ := stored.([]any)
		for i := range min(len(s), len(now)) {
			found = lost(found, path+"[]", s[i], now[i])
		}
	}
	return found
}

// isEmpty reports whether a value, or everything in it, is the zero value of its type.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, each := range v {
			if !isEmpty(each) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return value == nil || value == false || value == "" || value == int64(0) || value == float64(0)
}

// Restoration returns the JSON patch that gives o the fields of former, which is o but for the fields of a former revision; nil if they are
// the same. It applies to the version of o alone. Fields that only API servers set, and the status where a subresource of its own writes
// it, cannot be restored: the error names them.
func Restoration(o *object.Object, former map[string]any, hasStatus bool) ([]byte, error) {
	present, err := o.Decode()
	if err != nil {
		return nil, err
	}
	var operations []operation
	for _, field := range union(present, former) {
		value, wanted := former[field]
		before, there := present[field]
		switch {
		case reflect.DeepEqual(before, value) && there == wanted:
		case field == "metadata":
			more, err := restoreMetadata(before, value)
			if err != nil {
				return nil, err
			}
			operations = append(operations, more...)
		case field == "apiVersion" || field == "kind" || field == "status" && hasStatus:
			return nil, fmt.Errorf("the revision has another %s, which is not written together with the other fields", field)
		default:
			operations = append(operations, restore("", field, value, wanted))
		}
	}
	if len(operations) == 0 {
		return nil, nil
	}
	return conditional(o, operations)
}

// restoreMetadata restores labels and annotations.
func restoreMetadata(before, after any) ([]operation, error) {
	present, _ := before.(map[string]any)
	former, _ := after.(map[string]any)
	var operations []operation
	for _, field := range union(present, former) {
		value, wanted := former[field]
		if was, there := present[field]; reflect.DeepEqual(was, value) && there == wanted {
			continue
		}
		if field != "labels" && field != "annotations" {
			return nil, fmt.Errorf("the revision has another metadata.%s, which no rollback changes", field)
		}
		operations = append(operations, restore("/metadata", field, value, wanted))
	}
	return operations, nil
}

// Restored returns o with those fields as written has them that a restoration may write. The others, such as the status where a subresource
// of its own writes it, are as they were.
func Restored(o, written *object.Object, hasStatus bool) (map[string]any, error) {
	present, err := o.Decode()
	if err != nil {
		return nil, err
	}
	after, err := written.Decode()
	if err != nil {
		return nil, err
	}
	was, _ := present["metadata"].(map[string]any)
	is, _ := after["metadata"].(map[string]any)
	metadata := maps.Clone(was)
	for _, field := range []string{"labels", "annotations"} {
		take(metadata, is, field)
	}
	after["metadata"] = metadata
	if hasStatus {
		take(after, present, "status")
	}
	return after, nil
}

// take sets a field as another object has it, or removes it.
func take(of, from map[string]any, field string) {
	if value, there := from[field]; there {
		of[field] = value
	} else {
		delete(of, field)
	}
}

// union returns the fields that one of two objects has, in order.
func union(one, other map[string]any) []string {
	all := map[string]any{}
	maps.Copy(all, one)
	maps.Copy(all, other)
	return slices.Sorted(maps.Keys(all))
}

// escaped writes the name of a field in a JSON pointer (RFC 6901, 3).
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

// restore sets or removes a field of what a JSON pointer names.
func restore(of, field string, value any, wanted bool) operation {
	at := of + "/" + escaped.Replace(field)
	if !wanted {
		return operation{Op: "remove", Path: at}
	}
	return operation{"add", at, value}
}
