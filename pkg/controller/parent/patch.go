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
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Changes are changes of an object that belongs to somebody else. What they do not mention stays as it is.
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
	Value any    `json:"value,omitempty"`
}

// Write makes the changes in one patch that holds nothing else, and returns the object as written. It writes nothing, and
// returns nil, when o is like that already.
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
	same, err := hasStatus(o, c.Status)
	if err != nil || same {
		return operations, err
	}
	return append(operations, operation{"add", "/status", c.Status}), nil
}

// texts appends the operations that change a map of strings in the metadata.
func texts(operations []operation, field string, is map[string]string, change map[string]*string) []operation {
	path := "/metadata/" + field
	// A pointer into a map needs a map that is there.
	there := len(is) > 0
	for _, key := range slices.Sorted(maps.Keys(change)) {
		want := change[key]
		value, has := is[key]
		switch {
		case want == nil && has:
			operations = append(operations, operation{Op: "remove", Path: path + "/" + pointer(key)})
		case want == nil || has && value == *want:
		case !there:
			operations = append(operations, operation{"add", path, map[string]string{key: *want}})
			there = true
		default:
			operations = append(operations, operation{"add", path + "/" + pointer(key), *want})
		}
	}
	return operations
}

// pointer escapes a key for a JSON pointer (RFC 6901 §3).
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// IgnoreGone drops the error of a write to a parent that is gone.
func IgnoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
