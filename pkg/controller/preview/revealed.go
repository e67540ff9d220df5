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

package preview

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Decoder decodes the response of a sync or finalize hook.
type Decoder = func([]byte, wire.ResponseOptions) (wire.Response, error)

// Revealed returns a function that decodes as decode does the response of a hook that was sent requests as people may see them: what is hidden
// of a Secret that the hook returns is that of the observed child. The namespace is that of the parent.
func Revealed(decode Decoder, namespace string, observed []*object.Object) Decoder {
	return func(body []byte, o wire.ResponseOptions) (wire.Response, error) {
		response, err := decode(body, o)
		if err != nil {
			return response, err
		}
		list, err := response.Children()
		if err != nil {
			return response, nil //nolint:nilerr // Whoever decodes the children says so.
		}
		changed := false
		for _, child := range list {
			if before := observedSecret(child, namespace, observed); before != nil {
				content, err := before.Decode()
				if err != nil {
					return response, fmt.Errorf("decoding %s: %w", before, err)
				}
				changed = reveal(child, content) || changed
			}
		}
		if changed {
			if response.RawChildren, err = json.Marshal(list); err != nil {
				return response, fmt.Errorf("encoding the children: %w", err)
			}
		}
		return response, nil
	}
}

// observedSecret returns the observed child that a Secret would update, nil if there is none or the child is of another kind.
func observedSecret(child map[string]any, namespace string, observed []*object.Object) *object.Object {
	if child["apiVersion"] != "v1" || child["kind"] != "Secret" {
		return nil
	}
	metadata, _ := child["metadata"].(map[string]any)
	if given, ok := metadata["namespace"].(string); ok && given != "" {
		namespace = given
	}
	for _, o := range observed {
		if isSecret(o) && o.Name() == metadata["name"] && o.Namespace() == namespace {
			return o
		}
	}
	return nil
}

// reveal puts the values of a Secret in place of the hidden ones of another. It reports whether there were any.
func reveal(secret, by map[string]any) (changed bool) {
	values, _ := by["data"].(map[string]any)
	changed = replace(secret["data"], base64.StdEncoding.EncodeToString([]byte(plan.Hidden)), values)
	plain := map[string]any{}
	for key, value := range values {
		encoded, _ := value.(string)
		if decoded, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			plain[key] = string(decoded)
		}
	}
	changed = replace(secret["stringData"], plan.Hidden, plain) || changed
	annotations := annotationsOf(by)
	copies := map[string]any{}
	for _, name := range lastApplied {
		if value, ok := annotations[name]; ok {
			copies[name] = value
		}
	}
	return replace(annotationsOf(secret), plan.Hidden, copies) || changed
}

func annotationsOf(content map[string]any) map[string]any {
	metadata, _ := content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return annotations
}

// replace replaces a value in a map by those of the same keys.
func replace(in any, value string, by map[string]any) (changed bool) {
	values, _ := in.(map[string]any)
	for key := range values {
		if other, ok := by[key]; ok && values[key] == value {
			values[key], changed = other, true
		}
	}
	return changed
}
