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

package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// Set holds the hooks of a controller. A hook that is nil is not declared, or is neither a webhook nor inline.
type Set struct {
	Sync, Finalize, Customize *Hook

	// compiled are the inline hooks, nil if there are none.
	compiled *compiled
}

// Kinds are what inline hooks are compiled against.
type Kinds struct {
	// Discovery asks the cluster for schemas.
	Discovery *discovery.Discovery
	// Parents and Children are the resources of the controller.
	Parents, Children []v1alpha1.ResourceRule
	// Compiling has room for the controllers that compile at the same time: schemas need much memory. Nil: only one does.
	Compiling chan struct{}
}

// New returns the hooks of a controller, of which c has what they have in common: Hook and Webhook are not set, and Workers is the most
// calls at the same time of all hooks together. The error says that a declaration cannot work. Inline hooks are compiled later, by
// [Set.Check] or with the first call.
func New(c webhook.Config, kinds Kinds, sync, finalize, customize *v1alpha1.Hook) (*Set, error) {
	var s Set
	d := inline.Definition{
		Decorator: c.ControllerKind == v1alpha1.KindDecorator, Parents: kinds.Parents, Children: kinds.Children,
		Sync: sync, Finalize: finalize, Customize: customize,
	}
	if d.Has() {
		s.compiled = &compiled{
			definition: d, discovery: kinds.Discovery, compiling: cmp.Or(kinds.Compiling, make(chan struct{}, 1)), programs: map[hook.Name]*inline.Program{},
		}
	}
	if c.Workers < 1 {
		c.Workers = webhook.DefaultWorkers
	}
	calls := make(chan struct{}, c.Workers)
	for _, declared := range []struct {
		name hook.Name
		hook *v1alpha1.Hook
		into **Hook
	}{{hook.Sync, sync, &s.Sync}, {hook.Finalize, finalize, &s.Finalize}, {hook.Customize, customize, &s.Customize}} {
		if declared.hook == nil || declared.hook.Webhook == nil && declared.hook.Inline == nil {
			continue
		}
		c.Hook, c.Webhook = declared.name, declared.hook.Webhook
		h, err := s.declare(c, declared.hook)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("%s hook: %w", declared.name, err)
		}
		h.calls = calls
		*declared.into = h
	}
	return &s, nil
}

// declare returns a hook that is declared.
func (s *Set) declare(c webhook.Config, declared *v1alpha1.Hook) (*Hook, error) {
	h := &Hook{Name: c.Hook, Version: v1alpha1.HookVersionV1}
	if c.Webhook == nil {
		// What it is shown of other namespaces is up to its author.
		local, err := webhook.NewLocal(c, "inline")
		h.Version, h.strict, h.client = v1alpha1.HookVersionV2, true, &evaluated{Local: local, compiled: s.compiled, name: c.Hook}
		return h, err
	}
	client, err := webhook.New(c)
	if v := declared.Version; v != nil && *v != "" {
		h.Version = *v
	}
	h.strict, h.client = wire.Strict(h.Version, c.Webhook.ResponseUnMarshallMode), called{client}
	return h, err
}

// declared returns the hooks that are declared.
func (s *Set) declared() []*Hook {
	return slices.DeleteFunc([]*Hook{s.Sync, s.Finalize, s.Customize}, func(h *Hook) bool { return h == nil })
}

// Forget drops what is remembered for a parent that is gone.
func (s *Set) Forget(parent webhook.RootKey) {
	for _, h := range s.declared() {
		h.client.Forget(parent)
		h.made.forget(parent)
	}
}

// Finalizes takes note that the finalize hook is called for a parent, and the sync hook is not any more: how it fared with that says nothing now.
func (s *Set) Finalizes(parent webhook.RootKey) {
	if s.Sync != nil {
		s.Sync.made.forget(parent)
	}
}

// Remembered returns the number of responses of all hooks that are remembered by their entity tags.
func (s *Set) Remembered() int {
	n := 0
	for _, h := range s.declared() {
		n += h.client.Remembered()
	}
	return n
}

// Reads reports whether a hook reads its credentials from the Secret or ConfigMap r.
func (s *Set) Reads(r webhook.Reference) bool {
	return slices.ContainsFunc(s.declared(), func(h *Hook) bool { return slices.Contains(h.client.References(), r) })
}

// Inline reports whether there are inline hooks.
func (s *Set) Inline() bool { return s.compiled != nil }

// ReadStatus reports whether the status of a parent may decide what a hook returns. Of webhooks nobody knows, and of inline hooks as long as they are
// not compiled.
func (s *Set) ReadStatus() bool {
	return slices.ContainsFunc(s.declared(), func(h *Hook) bool { return h.client.ReadsStatus() })
}

// Close ends the connections to the hooks.
func (s *Set) Close() {
	for _, h := range s.declared() {
		h.client.Close()
	}
}

// Hook is one hook of a controller. It is safe for concurrent use.
type Hook struct {
	// Name says which hook it is.
	Name hook.Name
	// Version is the version of the protocol.
	Version v1alpha1.HookVersion

	strict bool
	client client
	// calls are those that are under way, also of the controller's other hooks.
	calls chan struct{}
	made  statistics
	// quiet says that nothing is remembered of calls; made is thrown away then.
	quiet bool
}

// Request is what a hook is shown.
type Request struct {
	wire.Request

	// Encode returns the body that a webhook is sent. Inline hooks need none.
	Encode func(wire.Request) []byte
}

// client gets the responses of a hook: from a webhook, or from an inline hook.
type client interface {
	// Call and Ask are those of a [webhook.Client].
	Call(ctx context.Context, parent webhook.RootKey, r Request) (webhook.Response, error)
	Ask(ctx context.Context, r Request) (webhook.Response, error)
	// Check says, without a call, why no call can succeed now. It returns false if that is not known.
	Check(ctx context.Context) (known bool, err error)
	// References are the Secrets and ConfigMaps that each call reads.
	References() []webhook.Reference
	// ReadsStatus reports whether the status of the parent may decide what the hook returns.
	ReadsStatus() bool
	// Forget drops what is remembered of a parent, and Remembered counts that.
	Forget(parent webhook.RootKey)
	Remembered() int
	// Endpoint is how messages name what is called.
	Endpoint() string
	Close()
}

// called is the client of a webhook.
type called struct{ *webhook.Client }

func (c called) Call(ctx context.Context, parent webhook.RootKey, r Request) (webhook.Response, error) {
	return c.Client.Call(ctx, parent, r.Encode(r.Request))
}

func (c called) Ask(ctx context.Context, r Request) (webhook.Response, error) {
	return c.Client.Ask(ctx, r.Encode(r.Request))
}

func (c called) Check(ctx context.Context) (known bool, err error) {
	if len(c.References()) == 0 {
		return false, nil
	}
	return true, c.Client.Check(ctx)
}

func (called) ReadsStatus() bool { return true }

// Response is the response of a sync or finalize hook of either kind of controller. It is not safe for concurrent use.
type Response struct {
	wire.Response

	hook   *Hook
	parent webhook.RootKey
	body   webhook.Response
	// counted says that the statistics have the outcome of the call.
	counted bool
}

// Children decodes the children, or attachments; see [wire.Response.Children]. An error rejects the response as a whole, is
// wrapped like those of the call, and a hook that repeats the response is not taken at its entity tag.
func (r *Response) Children() ([]map[string]any, error) {
	children, err := r.Response.Children()
	if err != nil {
		err = r.body.Hide(err)
		r.Reject(err)
		return nil, r.hook.Failed(err)
	}
	return children, nil
}

// Reject says that the response cannot be used because of err, before it is released: a hook that repeats it is not taken at its entity
// tag, since a corrected hook may return the same one.
func (r *Response) Reject(err error) {
	r.hook.forget(r.parent)
	if !r.counted {
		r.counted = true
		r.hook.made.failed(r.parent, err)
	}
}

// Release gives the memory of the response back to the budget of the process. RawChildren is empty afterwards; what is decoded
// already stays. A response that was not rejected counts as one that could be used. Every response must be released, and before the next call of a hook: calls wait for room in the budget.
// Releasing twice does nothing.
func (r *Response) Release() {
	r.body.Release()
	r.RawChildren = nil
	if !r.counted {
		r.counted = true
		r.hook.made.succeeded()
	}
}

// Call calls a sync or finalize hook, whose response decode reads: wire.DecodeComposite or wire.DecodeDecorator. The caller releases the
// response.
func (h *Hook) Call(
	ctx context.Context, parent webhook.RootKey, r Request, decode func([]byte, wire.ResponseOptions) (wire.Response, error),
) (*Response, error) {
	decoded, response, err := call(ctx, h, parent, r, decode)
	if err != nil {
		return nil, err
	}
	return &Response{Response: decoded, hook: h, parent: parent, body: response}, nil
}

// Related calls a customize hook. The caller says by Used or Reject whether the response can be used.
func (h *Hook) Related(ctx context.Context, parent webhook.RootKey, r Request) (*wire.CustomizeResponse, error) {
	decoded, response, err := call(ctx, h, parent, r, wire.DecodeCustomize)
	response.Release()
	return decoded, err
}

// call calls a hook and decodes its response, which holds no room if there is an error.
func call[T any](
	ctx context.Context, h *Hook, parent webhook.RootKey, r Request, decode func([]byte, wire.ResponseOptions) (T, error),
) (decoded T, response webhook.Response, err error) {
	if response, err = h.send(ctx, parent, r); err != nil {
		return decoded, response, h.Failed(err)
	}
	if decoded, err = decode(response.Body, h.options(response.ContentType)); err != nil {
		response.Release()
		err = h.Reject(parent, response.Hide(err))
	}
	return decoded, response, err
}

func (h *Hook) options(contentType string) wire.ResponseOptions {
	return wire.ResponseOptions{Strict: h.strict, ContentType: contentType}
}

// Reject returns the error of a response that cannot be used. Its entity tag is dropped: a corrected hook may return the same one.
func (h *Hook) Reject(parent webhook.RootKey, err error) error {
	h.forget(parent)
	h.made.failed(parent, err)
	return h.Failed(err)
}

// Used says that a response of a customize hook could be used.
func (h *Hook) Used() { h.made.succeeded() }

// errPanicked is what the span of a call that did not end ends with.
var errPanicked = errors.New("the call ended in a panic")

// send calls the hook as soon as there is a slot. The time that it waits for one does not count against the hook's timeout.
func (h *Hook) send(ctx context.Context, parent webhook.RootKey, r Request) (response webhook.Response, err error) {
	select {
	case h.calls <- struct{}{}:
	case <-ctx.Done():
		return webhook.Response{}, fmt.Errorf("waiting for other calls to end: %w", ctx.Err())
	}
	defer func() { <-h.calls }()
	began := time.Now()
	ctx, span := tracing.Hook(ctx, string(h.Name), h.client.Endpoint())
	err = errPanicked // Unless the call ends.
	defer func() { span.End(err) }()
	if h.quiet {
		return h.client.Ask(ctx, r)
	}
	response, err = h.client.Call(ctx, parent, r)
	if ctx.Err() == nil {
		h.made.called(parent, time.Since(began), err)
	}
	return response, err
}

// Failed says which hook an error is about (docs/reference/contract.md#s18.3).
func (h *Hook) Failed(err error) error {
	return webhook.Failed(h.Name, h.Version, err)
}

// Syncs returns how many parents are synced at the same time for a number of workers, which is the most calls of hooks at the
// same time: while hooks are called for some parents, the responses for as many others are applied. With one worker one parent
// is synced after the other.
func Syncs(workers int) int { return 2*workers - 1 }

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
	decoded, err := decode(body, h.options("application/json"))
	if err != nil {
		return nil, h.Failed(err)
	}
	return &Response{Response: decoded, hook: h.quieted(), parent: parent}, nil
}

// GivenRelated is Given for a customize hook.
func (h *Hook) GivenRelated(body []byte) (*wire.CustomizeResponse, error) {
	decoded, err := wire.DecodeCustomize(body, h.options("application/json"))
	if err != nil {
		return nil, h.Failed(err)
	}
	return decoded, nil
}

// Shown makes a request and returns what people may see of the response's: what read returns of it, which must be JSON, without the
// credentials that the hook was sent.
func (h *Hook) Shown(ctx context.Context, r Request, read func([]byte, wire.ResponseOptions) ([]byte, error)) ([]byte, error) {
	response, err := h.send(ctx, webhook.RootKey{}, r)
	if err != nil {
		return nil, h.Failed(err)
	}
	defer response.Release()
	shown, err := read(response.Body, h.options(response.ContentType))
	if err == nil {
		shown, err = response.HideJSON(shown)
	}
	if err != nil {
		return nil, h.Failed(response.Hide(err))
	}
	return shown, nil
}

// forget drops the entity tag of a parent.
func (h *Hook) forget(parent webhook.RootKey) {
	if !h.quiet {
		h.client.Forget(parent)
	}
}
