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
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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
