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

package recording

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// inlineHooks are the inline hooks of a controller in a file. Requests to its other hooks go to webhooks.
type inlineHooks struct {
	filename   string
	definition inline.Definition
	schemas    *lint.Schemas
	programs   map[hook.Name]*inline.Program
	webhooks   caller
	// err says why no request can be evaluated.
	err error
}

// inlineHooksOf reads and compiles the inline hooks in a file or a folder.
func inlineHooksOf(filename string, in io.Reader, webhooks caller) (*inlineHooks, error) {
	controller, err := lint.Controller(filename, in)
	if err != nil {
		return nil, err
	}
	h := &inlineHooks{filename: filename, schemas: controller.Schemas, webhooks: webhooks}
	if h.definition = controller.Hooks(); !h.definition.Has() {
		return nil, fmt.Errorf("%s in %s has no inline hook: say with --hook where its webhooks are, in place of -f", controller.Argument(), filename)
	}
	err = h.compile()
	return h, err
}

func (h *inlineHooks) compile() error {
	programs, _, errs := inline.Compile(h.definition, h.schemas)
	all := make([]error, 0, len(errs))
	for _, err := range errs {
		all = append(all, fmt.Errorf("%s: %w", h.filename, err))
	}
	h.programs = programs
	return errors.Join(all...)
}

// Call evaluates an inline hook for a recorded request.
func (h *inlineHooks) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	if h.err == nil && h.programs[hook.Name(name)] == nil {
		return h.webhooks.Call(ctx, name, body)
	}
	request, err := inline.ParseRequest(body)
	if err != nil {
		return nil, err
	}
	if h.err == nil {
		h.err = h.learn(body)
	}
	if h.err != nil {
		return nil, h.err
	}
	return h.programs[hook.Name(name)].Call(ctx, request)
}

// learn names the kinds that no file defines as a request does. Programs need no schemas, but the kinds of the objects that they look for.
func (h *inlineHooks) learn(body []byte) error {
	var request struct {
		Children    map[string]any `json:"children"`
		Attachments map[string]any `json:"attachments"`
		Related     map[string]any `json:"related"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	learned := map[string]bool{}
	for _, objects := range []map[string]any{request.Children, request.Attachments, request.Related} {
		for key := range objects {
			kind, apiVersion, _ := strings.Cut(key, ".")
			plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
			if h.schemas.Name(apiVersion, plural.Resource, kind) {
				learned[apiVersion] = true
			}
		}
	}
	if len(learned) == 0 {
		return nil
	}
	for _, rule := range h.definition.Resources() {
		if _, ok := h.schemas.Resource(rule.APIVersion, rule.Resource); !ok && learned[rule.APIVersion] && !slices.Contains(h.definition.Parents, rule) {
			return fmt.Errorf("the kind of %s of %s is not known: name a folder with its CustomResourceDefinition beside the controller by -f", rule.Resource, rule.APIVersion)
		}
	}
	return h.compile()
}
