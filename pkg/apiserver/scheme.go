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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
)

var (
	// Scheme holds the types of the group, and those that every API server answers with.
	Scheme = newScheme()
	// Codecs are the serializers of Scheme.
	Codecs = serializer.NewCodecFactory(Scheme)
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	// The generic server reads options such as ListOptions in this version.
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme
}

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
