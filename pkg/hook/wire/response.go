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
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// ResponseOptions say how a response is read.
type ResponseOptions struct {
	// Strict rejects unknown and duplicate fields of the envelope. They are ignored otherwise. See [Strict].
	Strict bool
	// ContentType is the response's header of that name. It serves messages only: hooks need not set it.
	ContentType string
}

// Strict reports whether responses of a hook are read strictly: as its responseUnMarshallMode says, and without one, loose for
// v1 and strict for v2 (docs/reference/contract.md#s1.5).
func Strict(version v1alpha1.HookVersion, mode *v1alpha1.ResponseUnmarshallMode) bool {
	if mode != nil && *mode != "" {
		return *mode == v1alpha1.ResponseUnmarshallModeStrict
	}
	return version == v1alpha1.HookVersionV2
}

// Response is the response of a sync or finalize hook, of a CompositeController or a DecoratorController. Its children are
// the children of the first and the attachments of the second; they stay encoded until [Response.Children] decodes them.
type Response struct {
	// Status is the desired status. Nil when it was absent or null, not nil but empty when it was {}.
	Status map[string]any
	// RawChildren is the JSON array of the children as the hook wrote it, empty when it was absent, null or []. It is a part
	// of the body and must not be modified.
	RawChildren []byte
	// Labels and Annotations are to be set on the target of a DecoratorController; nil values stand for keys to remove. They
	// are nil for a CompositeController.
	Labels, Annotations map[string]*string
	// ResyncAfter is greater than 0 when the hook wants to be called again after that time, at most [hook.MaxDelay].
	ResyncAfter time.Duration
	// Finalized as the hook set it.
	Finalized bool
	// Delete says that the target of a DecoratorController is to be deleted. It is false for a CompositeController.
	Delete bool
	// Ignored names the first few unknown and duplicate fields that loose reading passed over, for a log.
	Ignored []string

	// field is the name of the list of children.
	field string
}

// Children decodes the children, in the order of the response. Each has a kind, and may have anything else; integers are
// int64, all other numbers float64. Each call decodes anew, so the caller may modify the result. Every error is a
// [hook.RejectedError].
func (r *Response) Children() ([]map[string]any, error) {
	if len(r.RawChildren) == 0 {
		return nil, nil
	}
	var d decoding
	children := d.children(r.field, r.RawChildren)
	return children, d.finish()
}

// Known returns a body that was decoded to r with those of its fields alone that are read, which are as the hook wrote them.
func (r *Response) Known(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("decoding the response: %w", err)
	}
	read := []string{r.field, "status", "resyncAfterSeconds", "finalized"}
	if r.field == "attachments" {
		read = append(read, "labels", "annotations", "delete")
	}
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return !slices.Contains(read, name) })
	return json.Marshal(fields)
}

// CustomizeResponse is the response of a customize hook.
type CustomizeResponse struct {
	// Rules in the order of the response. Each passes [hook.RelatedResourceRule.Validate].
	Rules []hook.RelatedResourceRule
	// Ignored names the first few unknown and duplicate fields that loose reading passed over, for a log.
	Ignored []string
}

// DecodeComposite reads the body of a response of a sync or finalize hook of a CompositeController, apart from what is inside
// of the children. Every error is a [hook.RejectedError]. The response refers to body, which must not be modified afterwards.
func DecodeComposite(body []byte, o ResponseOptions) (Response, error) {
	var e struct {
		Status             value `json:"status"`
		Children           value `json:"children"`
		ResyncAfterSeconds value `json:"resyncAfterSeconds"`
		Finalized          value `json:"finalized"`
	}
	d := decoding{options: o}
	d.envelope(body, &e)
	if e.Children.absent() {
		d.lacks = "children"
	}
	return d.response(Response{
		Status:      d.object("status", e.Status),
		RawChildren: d.list("children", e.Children),
		ResyncAfter: d.seconds("resyncAfterSeconds", e.ResyncAfterSeconds),
		Finalized:   d.boolean("finalized", e.Finalized),
		field:       "children",
	})
}

// DecodeDecorator is [DecodeComposite] for a DecoratorController.
func DecodeDecorator(body []byte, o ResponseOptions) (Response, error) {
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
	if e.Attachments.absent() {
		d.lacks = "attachments"
	}
	return d.response(Response{
		Labels:      d.stringsOrNull("labels", e.Labels),
		Annotations: d.stringsOrNull("annotations", e.Annotations),
		Status:      d.object("status", e.Status),
		RawChildren: d.list("attachments", e.Attachments),
		ResyncAfter: d.seconds("resyncAfterSeconds", e.ResyncAfterSeconds),
		Finalized:   d.boolean("finalized", e.Finalized),
		Delete:      d.boolean("delete", e.Delete),
		field:       "attachments",
	})
}

// response returns what was read, unless it is rejected.
func (d *decoding) response(r Response) (Response, error) {
	if err := d.finish(); err != nil {
		return Response{}, err
	}
	r.Ignored = d.ignored
	return r, nil
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
