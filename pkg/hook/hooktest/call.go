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

package hooktest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Remote is a handler that sends requests to the hook at a URL and returns what it responds, for a [Trial] of a hook that runs.
func Remote(url string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // A redirect is followed with the same body.
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		forwarded, err := http.NewRequestWithContext(r.Context(), r.Method, url, bytes.NewReader(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		forwarded.Header = r.Header.Clone()
		returned, err := http.DefaultClient.Do(forwarded) //nolint:gosec // A test says which URL it is.
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer returned.Body.Close() //nolint:errcheck // It has been read.
		maps.Copy(w.Header(), returned.Header)
		w.WriteHeader(returned.StatusCode)
		_, _ = io.Copy(w, returned.Body) // What is cut short does not decode.
	})
}

// shown is an object as requests show it.
type shown struct {
	*hook.Object

	encoded []byte
}

func show(o *hook.Object) (shown, error) {
	encoded, err := json.Marshal(o.Object)
	if err != nil {
		return shown{}, fmt.Errorf("encoding %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return shown{o, encoded}, nil
}

// stored decodes what is shown, with the types that a cluster's objects have: an int becomes an int64, and a []string a []any.
func (s shown) stored() (*hook.Object, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(s.encoded, &content); err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", s.GetKind(), s.GetName(), err)
	}
	return &hook.Object{Object: content}, nil
}

// JSON implements [wire.Object], as do Namespace and Name.
func (s shown) JSON() []byte      { return s.encoded }
func (s shown) Namespace() string { return s.GetNamespace() }
func (s shown) Name() string      { return s.GetName() }

// request returns the body of a request to a hook.
func (m *model) request(name hook.Name) ([]byte, error) {
	parent, err := show(m.parent)
	if err != nil {
		return nil, err
	}
	r := wire.Request{Version: m.version[name], Controller: m.controller, Parent: parent, Finalizing: name == hook.Finalize}
	for _, rule := range m.rules {
		apiVersion, kind := rule.Kind.ToAPIVersionAndKind()
		group := wire.Group{Key: hook.TypeKey(apiVersion, kind)}
		for key, child := range m.children {
			if key.GroupKind() != rule.Kind.GroupKind() {
				continue
			}
			if child.GetAPIVersion() != apiVersion {
				child = child.DeepCopy()
				child.SetAPIVersion(apiVersion)
			}
			observed, err := show(child)
			if err != nil {
				return nil, err
			}
			group.Objects = append(group.Objects, observed)
		}
		r.Children = append(r.Children, group)
	}
	if m.trial.Decorator != nil {
		return wire.Decorator(r), nil
	}
	return wire.Composite(r), nil
}

// call calls a hook twice with the same request, and checks its response.
func (m *model) call(name hook.Name, handler http.Handler) (response wire.Response, desired []children.Desired, err error) {
	body, err := m.request(name)
	if err != nil {
		return response, nil, err
	}
	first, err := m.post(handler, body)
	if err != nil {
		return response, nil, err
	}
	second, err := m.post(handler, body)
	if err != nil {
		return response, nil, err
	}
	if !equalJSON(first, second) {
		return response, nil, fmt.Errorf("the same request gets different responses: %s and %s", first, second)
	}
	if m.first == nil {
		m.first = &call{handler, body, first, time.Now()}
	}
	options := wire.ResponseOptions{Strict: true}
	if m.trial.Decorator != nil {
		response, err = wire.DecodeDecorator(first, options)
	} else {
		response, err = wire.DecodeComposite(first, options)
	}
	if err != nil {
		return response, nil, fmt.Errorf("the response of the %s hook: %w", name, err)
	}
	desired, err = m.wanted(&response)
	if err != nil {
		return response, nil, fmt.Errorf("the response of the %s hook: %w", name, err)
	}
	return response, desired, nil
}

// later is after which time a response with a time in it is another one: most are in seconds.
const later = 1100 * time.Millisecond

// callLater sends the first request once more, some time after it was sent, and compares the responses.
func (m *model) callLater() error {
	if m.first == nil {
		return nil
	}
	select {
	case <-time.After(time.Until(m.first.at.Add(later))):
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
	response, err := m.post(m.first.handler, m.first.request)
	if err != nil {
		return err
	}
	if !equalJSON(m.first.response, response) {
		return fmt.Errorf("the same request gets different responses some time later: %s and %s", m.first.response, response)
	}
	return nil
}

// callLimit is how long a hook may take, as long as a server waits where its webhook has no timeout.
const callLimit = 10 * time.Second

func (m *model) post(handler http.Handler, body []byte) (response []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the hook panics: %v\n%s", value, debug.Stack())
		}
	}()
	r := httptest.NewRequestWithContext(m.ctx, http.MethodPost, "/", bytes.NewReader(body))
	ctx, cancel := context.WithTimeout(r.Context(), callLimit)
	defer cancel()
	r = r.WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	if recorder.Code != http.StatusOK {
		return nil, fmt.Errorf("the hook responds with %d: %s", recorder.Code, recorder.Body)
	}
	return recorder.Body.Bytes(), nil
}

// equalJSON compares responses, also those that are no JSON.
func equalJSON(a, b []byte) bool {
	var x, y any
	return bytes.Equal(a, b) || json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// sync calls the sync hook and applies its response. It returns what that changes, empty if nothing.
func (m *model) sync() (changed string, err error) {
	response, wanted, err := m.call(hook.Sync, m.trial.Sync)
	if err != nil {
		return "", err
	}
	return m.accept(response, wanted)
}

// finalize calls the finalize hook and applies its response.
func (m *model) finalize() (finalized bool, err error) {
	response, wanted, err := m.call(hook.Finalize, m.trial.Finalize)
	if err != nil {
		return false, err
	}
	_, err = m.accept(response, wanted)
	return response.Finalized, err
}

func (m *model) accept(response wire.Response, wanted []children.Desired) (changed string, err error) {
	before := m.parent.DeepCopy()
	m.acceptParent(response)
	if !sameJSON(before.Object, m.parent.Object) {
		m.wrote(m.parent, false)
		changed = "the parent"
	}
	written, err := m.apply(wanted)
	return cmp.Or(written, changed), err
}

// acceptParent writes what a response says of the parent.
func (m *model) acceptParent(response wire.Response) {
	if m.trial.Composite != nil {
		status := maps.Clone(response.Status)
		if status == nil {
			status = map[string]any{}
		}
		status["observedGeneration"] = m.parent.GetGeneration()
		m.parent.Object["status"] = status
		return
	}
	if response.Status != nil {
		m.parent.Object["status"] = response.Status
	}
	m.parent.SetLabels(patched(m.parent.GetLabels(), response.Labels))
	m.parent.SetAnnotations(patched(m.parent.GetAnnotations(), response.Annotations))
}

// patched returns a map with the values of a response, of which nil ones remove.
func patched(have map[string]string, want map[string]*string) map[string]string {
	result := maps.Clone(have)
	if result == nil {
		result = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if value := want[name]; value == nil {
			delete(result, name)
		} else {
			result[name] = *value
		}
	}
	if len(result) == 0 {
		return nil
	}
	return result
}

// controllerUID is the label of children for which the server generates the selector.
const controllerUID = "controller-uid"

// wanted returns the children of a response, which must be such as the server accepts, completed as the server does
// (docs/reference/contract.md#s7).
func (m *model) wanted(response *wire.Response) ([]children.Desired, error) {
	if response.Delete && !m.mayDelete() {
		return nil, errors.New(`it has "delete": true, and no rule of spec.resources for the target sets allowDelete`)
	}
	selector, err := m.selector()
	if err != nil {
		return nil, err
	}
	decoded, err := response.Children()
	if err != nil {
		return nil, err
	}
	scope := children.Scope{Field: "attachments", Declared: "spec.attachments", Namespace: m.parent.GetNamespace(), Selector: selector}
	if m.trial.Composite != nil {
		scope.Field, scope.Declared = "children", "spec.childResources"
		if m.generates() {
			scope.Labels, scope.Inherited = map[string]string{controllerUID: string(m.parent.GetUID())}, labels.Set(m.parent.GetLabels())
		}
	}
	desired, _, err := children.Validate(scope, m.placed(decoded), decoded)
	return desired, err
}

// placed returns the rules of children. Those of a kind of which the trial does not know whether it is namespaced may be where they are.
func (m *model) placed(list []map[string]any) children.Rules {
	rules := slices.Clone(m.rules)
	for i := range rules {
		rule := &rules[i]
		namespaced, known := m.trial.Namespaced[rule.Resource.Resource]
		rule.Namespaced = namespaced || !known && (m.parent.GetNamespace() != "" || !slices.ContainsFunc(list, func(content map[string]any) bool {
			child := hook.Object{Object: content}
			return child.GroupVersionKind().GroupKind() == rule.Kind.GroupKind() && child.GetNamespace() == ""
		}))
	}
	return children.NewRules(rules)
}

// generates reports whether the server generates the selectors of parents.
func (m *model) generates() bool {
	generate := m.trial.Composite.Spec.GenerateSelector
	return generate != nil && *generate
}

// selector returns the selector of the parent of a CompositeController, without which no sync succeeds; nil for a DecoratorController.
func (m *model) selector() (labels.Selector, error) {
	if m.trial.Composite == nil {
		return nil, nil
	}
	if m.generates() {
		return labels.SelectorFromSet(labels.Set{controllerUID: string(m.parent.GetUID())}), nil
	}
	encoded, err := json.Marshal(m.parent.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("encoding the parent: %w", err)
	}
	var spec struct {
		Selector metav1.LabelSelector `json:"selector"`
	}
	if err := json.Unmarshal(encoded, &spec); err != nil {
		return nil, fmt.Errorf("reading the parent's selector: %w", err)
	}
	if len(spec.Selector.MatchLabels) == 0 && len(spec.Selector.MatchExpressions) == 0 {
		return nil, errors.New("the parent has no spec.selector that selects something, and the controller does not generate selectors")
	}
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading the parent's selector: %w", err)
	}
	return selector, nil
}

// mayDelete reports whether the hook may delete the target. The kind of a target is that of its rule, unless Kinds say otherwise.
func (m *model) mayDelete() bool {
	if m.trial.Decorator == nil {
		return false
	}
	return slices.ContainsFunc(m.trial.Decorator.Spec.Resources, func(rule v1alpha1.DecoratorControllerResourceRule) bool {
		resource, err := rule.GroupVersionResource()
		kind, known := m.trial.Kinds[rule.Resource]
		return err == nil && resource.Group == m.parent.GroupVersionKind().Group && (!known || kind == m.parent.GetKind()) &&
			rule.AllowDelete != nil && *rule.AllowDelete
	})
}
