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

package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// jsonOnly is what the group's endpoints speak: JSON and YAML.
//
// Protobuf is taken off, because the types do not implement it. The generic server would offer it all the same, and a
// client that asks for it first, as the namespace controller does, would get errors instead of the next best
// (kubernetes/kubernetes#86666).
type jsonOnly struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes are those of the wrapped serializer without protobuf.
func (j jsonOnly) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(j.NegotiatedSerializer.SupportedMediaTypes()),
		func(info runtime.SerializerInfo) bool { return info.MediaType == runtime.ContentTypeProtobuf })
}

// DecoderToVersion returns a decoder whose errors name the field.
func (j jsonOnly) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return durationNaming{j.NegotiatedSerializer.DecoderToVersion(d, gv)}
}
