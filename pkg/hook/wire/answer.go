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

package wire

import (
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// ResponseOptions say how a response is read.
type ResponseOptions struct {
	// Strict refuses unknown and duplicate fields of the envelope. They are ignored otherwise. See [Strict].
	Strict bool
	// ContentType is the response's header of that name. It serves messages only: hooks need not set it.
	ContentType string
	// Known reports whether the caller knows the children or attachments of the response already, by their JSON array as the
	// hook wrote it, which must not be kept. They are not decoded then. Nil: it knows none.
	Known func(array []byte) bool
}

// Strict tells whether responses of a hook are read strictly: as its responseUnMarshallMode says, and without one, loose for
// v1 and strict for v2 (docs/reference/contract.md#s1.5).
func Strict(version v1alpha1.HookVersion, mode *v1alpha1.ResponseUnmarshallMode) bool {
	if mode != nil && *mode != "" {
		return *mode == v1alpha1.ResponseUnmarshallModeStrict
	}
	return version == v1alpha1.HookVersionV2
}

// Child is a desired child or attachment.
type Child struct {
	// Object is the decoded child, which has a kind, and may have anything else. Nobody else holds it. Integers are int64,
	// all other numbers float64.
	Object map[string]any
	// JSON is the child as the hook wrote it. It lies in the body of the response and must not be modified.
	JSON []byte
}

// CompositeResponse is the response of a sync or finalize hook of a CompositeController.
type CompositeResponse struct {
	// Status is the desired status, or nil when it was absent or null.
	Status map[string]any
	// Children in the order of the response. Absent, null and [] give none.
	Children []Child
	// Known says that [ResponseOptions.Known] knew the children, which are left out.
	Known bool
	// ResyncAfter is greater than 0 when the hook wants to be called again after that time.
	ResyncAfter time.Duration
	// Finalized as the hook set it.
	Finalized bool
	// Ignored names the first few unknown and duplicate fields that loose reading passed over, for a log.
	Ignored []string
}

// DecoratorResponse is the response of a sync or finalize hook of a DecoratorController.
type DecoratorResponse struct {
	// Labels to set on the target; nil values stand for labels to remove.
	Labels map[string]*string
	// Annotations to set on the target; nil values stand for annotations to remove.
	Annotations map[string]*string
	// Status is the desired status. Nil, because it was absent or null: leave the status alone. Not nil but empty: empty it.
	Status map[string]any
	// Attachments in the order of the response. Absent, null and [] give none.
	Attachments []Child
	// Known says that [ResponseOptions.Known] knew the attachments, which are left out.
	Known bool
	// ResyncAfter is greater than 0 when the hook wants to be called again after that time.
	ResyncAfter time.Duration
	// Finalized as the hook set it.
	Finalized bool
	// Delete says that the target is to be deleted.
	Delete bool
	// Ignored names the first few unknown and duplicate fields that loose reading passed over, for a log.
	Ignored []string
}

// CustomizeResponse is the response of a customize hook.
type CustomizeResponse struct {
	// Rules in the order of the response. Each passes [hook.RelatedResourceRule.Validate].
	Rules []hook.RelatedResourceRule
	// Ignored names the first few unknown and duplicate fields that loose reading passed over, for a log.
	Ignored []string
}

// DecodeComposite reads the body of a response of a sync or finalize hook of a CompositeController. Every error is a
// [hook.RejectedError]. The response refers to body, which must not be modified afterwards.
func DecodeComposite(body []byte, o ResponseOptions) (*CompositeResponse, error) {
	var e struct {
		Status             value `json:"status"`
		Children           value `json:"children"`
		ResyncAfterSeconds value `json:"resyncAfterSeconds"`
		Finalized          value `json:"finalized"`
	}
	d := decoding{options: o}
	d.envelope(body, &e)
	known := d.known(e.Children)
	response := &CompositeResponse{
		Status:      d.object("status", e.Status),
		Children:    d.children("children", e.Children, known),
		Known:       known,
		ResyncAfter: d.seconds("resyncAfterSeconds", e.ResyncAfterSeconds),
		Finalized:   d.boolean("finalized", e.Finalized),
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	response.Ignored = d.ignored
	return response, nil
}

// DecodeDecorator is [DecodeComposite] for a DecoratorController.
func DecodeDecorator(body []byte, o ResponseOptions) (*DecoratorResponse, error) {
	var e struct {
		Labels             value `json:"labels"`
		Annotations        value `json:"annotations"`
		Status             value `json:"status"`
		Attachments        value `json:"attachments"`
		ResyncAfterSeconds value `json:"resyncAfterSeconds"`
		Finalized          value `json:"finalized"`
		Delete             value `json:"delete"`
	}
	d := decoding{options: o}
	d.envelope(body, &e)
	known := d.known(e.Attachments)
	response := &DecoratorResponse{
		Labels:      d.stringsOrNull("labels", e.Labels),
		Annotations: d.stringsOrNull("annotations", e.Annotations),
		Status:      d.object("status", e.Status),
		Attachments: d.children("attachments", e.Attachments, known),
		Known:       known,
		ResyncAfter: d.seconds("resyncAfterSeconds", e.ResyncAfterSeconds),
		Finalized:   d.boolean("finalized", e.Finalized),
		Delete:      d.boolean("delete", e.Delete),
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	response.Ignored = d.ignored
	return response, nil
}

// DecodeCustomize reads the body of a response of a customize hook. Every error is a [hook.RejectedError].
func DecodeCustomize(body []byte, o ResponseOptions) (*CustomizeResponse, error) {
	var e struct {
		RelatedResources []value `json:"relatedResources"`
	}
	d := decoding{options: o}
	d.envelope(body, &e)
	response := &CustomizeResponse{Rules: d.rules("relatedResources", e.RelatedResources)}
	if err := d.finish(); err != nil {
		return nil, err
	}
	response.Ignored = d.ignored
	return response, nil
}
