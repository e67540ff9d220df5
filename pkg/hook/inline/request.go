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

package inline

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// ParseRequest reads the body of a request to a sync, finalize or customize hook, in either version of the protocol. Objects stay
// encoded until an expression uses them.
func ParseRequest(body []byte) (wire.Request, error) {
	type groups map[string]map[string]json.RawMessage
	var r struct {
		Controller  json.RawMessage `json:"controller"`
		Parent      json.RawMessage `json:"parent"`
		Object      json.RawMessage `json:"object"`
		Children    groups          `json:"children"`
		Attachments groups          `json:"attachments"`
		Related     groups          `json:"related"`
		Finalizing  bool            `json:"finalizing"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return wire.Request{}, fmt.Errorf("decoding the request: %w", err)
	}
	if r.Parent == nil {
		r.Parent, r.Children = r.Object, r.Attachments
	}
	var parent metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.Parent, &parent); err != nil {
		return wire.Request{}, fmt.Errorf("decoding the parent in the request: %w", err)
	}
	namespace := parent.Namespace
	parse := func(types groups) []wire.Group {
		var parsed []wire.Group
		for key, objects := range types {
			group := wire.Group{Key: key}
			for name, data := range objects {
				o := recorded{data: data, namespace: namespace, name: name}
				if before, after, ok := strings.Cut(name, "/"); ok {
					o.namespace, o.name = before, after
				}
				group.Objects = append(group.Objects, o)
			}
			parsed = append(parsed, group)
		}
		return parsed
	}
	return wire.Request{
		Controller: r.Controller, Parent: recorded{data: r.Parent, namespace: namespace, name: parent.Name},
		Children: parse(r.Children), Related: parse(r.Related), Finalizing: r.Finalizing,
	}, nil
}

// recorded is an object of a request. Its namespace is that of the parent where the request does not say another, which is all that the
// keys of objects depend on.
type recorded struct {
	data            []byte
	namespace, name string
}

func (o recorded) JSON() []byte      { return o.data }
func (o recorded) Namespace() string { return o.namespace }
func (o recorded) Name() string      { return o.name }
