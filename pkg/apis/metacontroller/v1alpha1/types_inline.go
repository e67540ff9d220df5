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

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// InlineHook is a hook as templates of its response. A string in a template that is one ${EXPRESSION} in CEL yields the value of the
// expression with its type; other strings are joined as text, and $${ stands for ${. An optional without a value leaves its field or
// element out. Expressions use parent (of a DecoratorController: object), children (attachments), related, controller and variables.
type InlineHook struct {
	// variables are values that several expressions use, as variables.NAME. Each is evaluated once for a response, when it is first used,
	// and may use those before it. At most 64 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=64
	Variables []InlineVariable `json:"variables,omitempty"`
	// children are templates of the children that shall exist. It is for the sync and finalize hooks of a CompositeController. At most 256
	// entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	Children []InlineTemplate `json:"children,omitempty"`
	// attachments are templates of the attachments that shall exist. It is for the sync and finalize hooks of a DecoratorController. At most
	// 256 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	Attachments []InlineTemplate `json:"attachments,omitempty"`
	// labels are set on the target of a DecoratorController. An expression that yields null removes the label.
	// +optional
	// +k8s:optional
	// +k8s:maxProperties=256
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are set on the target of a DecoratorController. An expression that yields null removes the annotation.
	// +optional
	// +k8s:optional
	// +k8s:maxProperties=256
	Annotations map[string]string `json:"annotations,omitempty"`
	// status is the template of the status of the parent or target, an object. Absent, the response has no status.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	Status *runtime.RawExtension `json:"status,omitempty"`
	// resyncAfterSeconds is a number of seconds, or an expression that yields one, after which the hook is evaluated again even if
	// nothing changed.
	// +optional
	// +k8s:optional
	// +k8s:opaqueType
	ResyncAfterSeconds *intstr.IntOrString `json:"resyncAfterSeconds,omitempty"`
	// finalized is an expression that yields whether nothing is left to clean up. It is for the finalize hook, and required there.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=8192
	Finalized *string `json:"finalized,omitempty"`
	// delete is an expression that yields whether the target of a DecoratorController shall be deleted.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=8192
	Delete *string `json:"delete,omitempty"`
	// relatedResources are templates of rules that select related objects. It is for the customize hook. The apiVersion and resource of a rule
	// are literal. At most 256 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=256
	RelatedResources []InlineTemplate `json:"relatedResources,omitempty"`
}

// InlineVariable is a value with a name.
type InlineVariable struct {
	// name of the variable: a letter, then letters and digits. Required.
	// +required
	// +k8s:required
	// +k8s:maxLength=63
	Name string `json:"name"`
	// expression in CEL that yields the value. Required.
	// +required
	// +k8s:required
	// +k8s:maxLength=8192
	Expression string `json:"expression"`
}

// InlineTemplate is a template of any number of objects.
type InlineTemplate struct {
	// when is an expression that yields whether there are objects of this template. It is evaluated before forEach. Default true.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=8192
	When *string `json:"when,omitempty"`
	// forEach makes an object for each element of a list, or for each combination of the elements of several: the first list is the
	// outermost. At most 8 entries.
	// +optional
	// +k8s:optional
	// +listType=atomic
	// +k8s:listType=atomic
	// +k8s:maxItems=8
	ForEach []InlineIterator `json:"forEach,omitempty"`
	// template is the object. Required. Its apiVersion and kind are literal.
	// +required
	// +k8s:opaqueType
	Template runtime.RawExtension `json:"template"`
}

// InlineIterator is a list whose elements a template uses one after the other.
type InlineIterator struct {
	// name of the variable for the element: a letter, then letters and digits. Required.
	// +required
	// +k8s:required
	// +k8s:maxLength=63
	Name string `json:"name"`
	// in is an expression that yields the list. It may use the elements of the iterators before it. Required.
	// +required
	// +k8s:required
	// +k8s:maxLength=8192
	In string `json:"in"`
}
