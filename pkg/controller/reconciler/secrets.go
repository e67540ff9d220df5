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
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// shownObject is an object as people may see it.
type shownObject struct {
	wire.Object

	encoded []byte
}

// JSON implements wire.Object.
func (s shownObject) JSON() []byte { return s.encoded }

// withoutSecrets returns an object as people may see it: a Secret has other values.
func withoutSecrets(o wire.Object) wire.Object {
	kind, ok := o.(interface {
		GroupVersionKind() schema.GroupVersionKind
	})
	if ok && (kind.GroupVersionKind().Group != "" || kind.GroupVersionKind().Kind != "Secret") {
		return o
	}
	return shownObject{Object: o, encoded: redact(o.JSON())}
}

func groupsWithoutSecrets(groups []wire.Group) []wire.Group {
	list := make([]wire.Group, len(groups))
	for i, g := range groups {
		list[i] = wire.Group{Key: g.Key, Objects: make([]wire.Object, len(g.Objects))}
		for j, o := range g.Objects {
			list[i].Objects[j] = withoutSecrets(o)
		}
	}
	return list
}

// lastApplied are the annotations with a second copy of an object.
var lastApplied = []string{merge.Annotation, "kubectl.kubernetes.io/last-applied-configuration"}

// redact returns a Secret with other values, which are as valid: those of data are in base64 as ever.
func redact(encoded []byte) []byte {
	var content map[string]any
	if utiljson.Unmarshal(encoded, &content) != nil {
		return []byte("{}")
	}
	redactContent(content)
	hidden, err := json.Marshal(content)
	if err != nil {
		return []byte("{}") // Not reached: it was decoded from JSON.
	}
	return hidden
}

// redactContent gives a Secret other values.
func redactContent(content map[string]any) {
	eachSecret(content, func(_ string, values map[string]any, key, shown string) { values[key] = shown })
}

// eachSecret calls do with each value of a Secret that people may not see: with the part of the Secret, the values of that, the key, and what is
// shown in place of the value.
func eachSecret(content map[string]any, do func(part string, values map[string]any, key, shown string)) {
	for part, shown := range map[string]string{"data": base64.StdEncoding.EncodeToString([]byte(plan.Hidden)), "stringData": plan.Hidden} {
		values, _ := content[part].(map[string]any)
		for key := range values {
			do(part, values, key, shown)
		}
	}
	annotations := plan.AnnotationsOf(content)
	for _, name := range lastApplied {
		if _, ok := annotations[name]; ok {
			do("annotations", annotations, name, plan.Hidden)
		}
	}
}

// ResponseWithoutSecrets returns the body of a hook's response with other values in the Secrets among its children or attachments. The error
// says that it is no JSON object.
func ResponseWithoutSecrets(body []byte) ([]byte, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(body, &content); err != nil {
		return nil, err
	}
	hidden := false
	for _, field := range []string{"children", "attachments"} {
		list, _ := content[field].([]any)
		for _, element := range list {
			child, _ := element.(map[string]any)
			if child["apiVersion"] == "v1" && child["kind"] == "Secret" {
				redactContent(child)
				hidden = true
			}
		}
	}
	if !hidden {
		return body, nil
	}
	return json.Marshal(content)
}

// decoder decodes the response of a sync or finalize hook.
type decoder = func([]byte, wire.ResponseOptions) (wire.Response, error)

// revealed returns a function that decodes as decode does the response of a hook that was sent requests as people may see them: what is hidden
// of a Secret that the hook returns is that of the observed child. The namespace is that of the parent.
func revealed(decode decoder, namespace string, observed []*object.Object) decoder {
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
	data, _ := by["data"].(map[string]any)
	annotations := plan.AnnotationsOf(by)
	eachSecret(secret, func(part string, values map[string]any, key, shown string) {
		if values[key] != shown {
			return
		}
		value, known := data[key]
		switch part {
		case "stringData":
			encoded, _ := value.(string)
			decoded, err := base64.StdEncoding.DecodeString(encoded)
			value, known = string(decoded), known && err == nil
		case "annotations":
			value, known = annotations[key]
		}
		if known {
			values[key], changed = value, true
		}
	})
	return changed
}

// responseShown returns a function that returns the body of a response of a sync or finalize hook as people may see it: with the fields alone
// that decode reads, and other values of Secrets. Its error rejects the response, as that of a sync does.
func responseShown(decode decoder) func([]byte, wire.ResponseOptions) ([]byte, error) {
	return func(body []byte, o wire.ResponseOptions) ([]byte, error) {
		decoded, err := decode(body, o)
		if err != nil {
			return nil, err
		}
		if _, err := decoded.Children(); err != nil {
			return nil, err
		}
		known, err := decoded.Known(body)
		if err != nil {
			return nil, err
		}
		return ResponseWithoutSecrets(known)
	}
}

// fields are the names of those of an object, or of the objects in a list, that are read, each with what is read inside of it. Inside of
// what has none, all is read.
type fields map[string]fields

// CustomizeResponse returns the body of a response of a customize hook with the fields alone that are read, which are as the hook wrote them.
// The error rejects the response.
func CustomizeResponse(body []byte, o wire.ResponseOptions) ([]byte, error) {
	if _, err := wire.DecodeCustomize(body, o); err != nil {
		return nil, err
	}
	var response any
	if err := utiljson.Unmarshal(body, &response); err != nil {
		return nil, fmt.Errorf("decoding the response of a customize hook: %w", err)
	}
	selector := fields{"matchLabels": nil, "matchExpressions": {"key": nil, "operator": nil, "values": nil}}
	fields{"relatedResources": {
		"apiVersion": nil, "resource": nil, "labelSelector": selector, "namespaceSelector": selector, "namespace": nil, "names": nil,
	}}.keep(response)
	return json.Marshal(response)
}

// keep takes all other fields out of a value.
func (f fields) keep(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			f.keep(element)
		}
	case map[string]any:
		maps.DeleteFunc(value, func(name string, _ any) bool {
			_, read := f[name]
			return !read
		})
		for name, inside := range f {
			if inside != nil {
				inside.keep(value[name])
			}
		}
	}
}
