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
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Changes are changes of an object that another client owns. What they do not mention stays as it is.
type Changes struct {
	// Labels and Annotations are set; nil values remove.
	Labels, Annotations map[string]*string
	// Status becomes the status as a whole. Nil: the status stays. It is for kinds without a status subresource; see
	// WriteStatus for the others.
	Status map[string]any
	// DropFinalizer is taken off. Empty: none.
	DropFinalizer string
}

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Write makes the changes in one patch that holds nothing else, and returns the object as written. It writes nothing, and
// returns nil, when o is like that already. When the object was changed since o, the error is a conflict.
func (c Changes) Write(ctx context.Context, api *client.Client, t client.Target, o *object.Object) (*object.Object, error) {
	operations, err := c.operations(o)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	// The version makes the write conditional. It stands for the UID too: no two objects ever share a version.
	body, err := json.Marshal(append([]operation{{"replace", "/metadata/resourceVersion", o.ResourceVersion()}}, operations...))
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return api.Patch(ctx, t, types.JSONPatchType, body)
}

// operations returns what differs. Each sets a field of the object or of its metadata as a whole: API servers patch before they
// compare versions, and would refuse, as invalid, a path into a map that was removed meanwhile.
func (c Changes) operations(o *object.Object) ([]operation, error) {
	operations := texts(nil, "labels", o.Labels(), c.Labels)
	operations = texts(operations, "annotations", o.Annotations(), c.Annotations)
	if finalizers := o.Finalizers(); c.DropFinalizer != "" && slices.Contains(finalizers, c.DropFinalizer) {
		rest := slices.DeleteFunc(finalizers, func(name string) bool { return name == c.DropFinalizer })
		operations = append(operations, operation{"add", "/metadata/finalizers", rest})
	}
	if c.Status == nil {
		return operations, nil
	}
	same, err := HasStatus(o, c.Status)
	if err != nil || same {
		return operations, err
	}
	return append(operations, operation{"add", "/status", c.Status}), nil
}

// texts appends the operation that changes a map of strings in the metadata, if it changes.
func texts(operations []operation, field string, present map[string]string, change map[string]*string) []operation {
	desired := make(map[string]string, len(present)+len(change))
	maps.Copy(desired, present)
	for key, value := range change {
		if value == nil {
			delete(desired, key)
		} else {
			desired[key] = *value
		}
	}
	if maps.Equal(present, desired) {
		return operations
	}
	return append(operations, operation{"add", "/metadata/" + field, desired})
}

// IgnoreGone drops the error of a write to a parent that is gone.
func IgnoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// WriteStatus makes status the status of o, as a whole, and returns the object as written. It writes nothing, and returns
// nil, when o already has that status. It is for kinds with a status subresource.
func WriteStatus(ctx context.Context, api *client.Client, t client.Target, o *object.Object, status map[string]any) (*object.Object, error) {
	t.Subresource = "status"
	return Changes{Status: status}.Write(ctx, api, t, o)
}

// HasStatus reports whether status is the status of o. The error says that what o has cannot be decoded.
func HasStatus(o *object.Object, status map[string]any) (bool, error) {
	raw, ok := o.Field("status")
	if !ok {
		return false, nil
	}
	var current map[string]any
	if err := utiljson.Unmarshal(raw, &current); err != nil {
		return false, fmt.Errorf("decoding the current status: %w", err)
	}
	return equality.Semantic.DeepEqual(current, status), nil
}
