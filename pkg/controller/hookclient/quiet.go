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

package hookclient

import (
	"context"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Quiet returns the hooks of which nothing is remembered when they are called: neither in the statistics nor by entity tags. They share
// the connections, and the limit of calls at the same time, with those of s, and are not closed.
func (s *Set) Quiet() *Set {
	return &Set{Sync: s.Sync.quieted(), Finalize: s.Finalize.quieted(), Customize: s.Customize.quieted()}
}

func (h *Hook) quieted() *Hook {
	if h == nil {
		return nil
	}
	return &Hook{Name: h.Name, Version: h.Version, strict: h.strict, client: h.client, calls: h.calls, quiet: true}
}

// Given returns a response that the hook did not give as if it had: the body is read, and rejected, as that of a call. See Call.
func (h *Hook) Given(
	parent webhook.RootKey, body []byte, decode func([]byte, wire.ResponseOptions) (wire.Response, error),
) (*Response, error) {
	decoded, err := decode(body, wire.ResponseOptions{Strict: h.strict, ContentType: "application/json"})
	if err != nil {
		return nil, h.Failed(err)
	}
	return &Response{Response: decoded, hook: h.quieted(), parent: parent}, nil
}

// Shown sends a body and returns what people may see of the response's: what read returns of it, which must be JSON, without the
// credentials that the hook was sent.
func (h *Hook) Shown(ctx context.Context, body []byte, read func([]byte, wire.ResponseOptions) ([]byte, error)) ([]byte, error) {
	response, err := h.send(ctx, webhook.RootKey{}, body)
	if err != nil {
		return nil, h.Failed(err)
	}
	defer response.Release()
	shown, err := read(response.Body, h.options(response))
	if err == nil {
		shown, err = response.HideJSON(shown)
	}
	if err != nil {
		return nil, h.Failed(response.Hide(err))
	}
	return shown, nil
}

// GivenRelated is Given for a customize hook.
func (h *Hook) GivenRelated(body []byte) (*wire.CustomizeResponse, error) {
	decoded, err := wire.DecodeCustomize(body, wire.ResponseOptions{Strict: h.strict, ContentType: "application/json"})
	if err != nil {
		return nil, h.Failed(err)
	}
	return decoded, nil
}

// forget drops the entity tag of a parent.
func (h *Hook) forget(parent webhook.RootKey) {
	if !h.quiet {
		h.client.Forget(parent)
	}
}
