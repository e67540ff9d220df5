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

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// shown is an object as people may see it.
type shown struct {
	wire.Object

	encoded []byte
}

// JSON implements wire.Object.
func (s shown) JSON() []byte { return s.encoded }

// WithoutSecrets returns an object as people may see it: a Secret has other values.
func WithoutSecrets(o wire.Object) wire.Object {
	kind, ok := o.(interface {
		GroupVersionKind() schema.GroupVersionKind
	})
	if ok && (kind.GroupVersionKind().Group != "" || kind.GroupVersionKind().Kind != "Secret") {
		return o
	}
	return shown{Object: o, encoded: redact(o.JSON())}
}

// RequestWithoutSecrets returns a request as people may see it.
func RequestWithoutSecrets(r wire.Request) wire.Request {
	r.Parent, r.Children, r.Related = WithoutSecrets(r.Parent), groupsWithoutSecrets(r.Children), groupsWithoutSecrets(r.Related)
	return r
}

func groupsWithoutSecrets(groups []wire.Group) []wire.Group {
	list := make([]wire.Group, len(groups))
	for i, g := range groups {
		list[i] = wire.Group{Key: g.Key, Objects: make([]wire.Object, len(g.Objects))}
		for j, o := range g.Objects {
			list[i].Objects[j] = WithoutSecrets(o)
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
	hide(content["data"], base64.StdEncoding.EncodeToString([]byte(plan.Hidden)))
	hide(content["stringData"], plan.Hidden)
	if metadata, ok := content["metadata"].(map[string]any); ok {
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			for _, name := range lastApplied {
				if _, ok := annotations[name]; ok {
					annotations[name] = plan.Hidden
				}
			}
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

func hide(values any, by string) {
	if m, ok := values.(map[string]any); ok {
		for key := range m {
			m[key] = by
		}
	}
}
