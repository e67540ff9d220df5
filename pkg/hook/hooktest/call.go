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
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
		kind := m.trial.Kinds[rule.Resource]
		group := wire.Group{Key: hook.TypeKey(rule.APIVersion, kind)}
		for key, child := range m.children {
			if key.kind != kind || key.group != groupOf(rule.APIVersion) {
				continue
			}
			if child.GetAPIVersion() != rule.APIVersion {
				child = child.DeepCopy()
				child.SetAPIVersion(rule.APIVersion)
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
func (m *model) call(name hook.Name, handler http.Handler) (response wire.Response, children []*hook.Object, err error) {
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
	children, err = m.wanted(&response)
	if err != nil {
		return response, nil, fmt.Errorf("the response of the %s hook: %w", name, err)
	}
	return response, children, nil
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

func (m *model) accept(response wire.Response, wanted []*hook.Object) (changed string, err error) {
	before := m.parent.DeepCopy()
	m.acceptParent(response)
	if !sameJSON(before.Object, m.parent.Object) {
		m.wrote(m.parent, false)
		changed = "the parent"
	}
	children, err := m.apply(wanted)
	return cmp.Or(children, changed), err
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
func (m *model) wanted(response *wire.Response) ([]*hook.Object, error) {
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
	seen := map[childKey]bool{}
	children := make([]*hook.Object, 0, len(decoded))
	for i, fields := range decoded {
		child := &hook.Object{Object: fields}
		metadata, err := identify(fields)
		if err != nil {
			return nil, fmt.Errorf("child %d, a %s, %w", i, child.GetKind(), err)
		}
		if err := m.place(child, metadata); err != nil {
			return nil, fmt.Errorf("%s %w", keyOf(child), err)
		}
		if err := m.label(metadata, selector); err != nil {
			return nil, fmt.Errorf("%s: %w", keyOf(child), err)
		}
		if seen[keyOf(child)] {
			return nil, fmt.Errorf("%s is there twice", keyOf(child))
		}
		seen[keyOf(child)] = true
		children = append(children, child)
	}
	return children, nil
}

// identify checks the version and the name of a child, and returns its metadata.
func identify(child map[string]any) (map[string]any, error) {
	apiVersion, _ := child["apiVersion"].(string)
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || version.Version == "" || len(content.IsPathSegmentName(version.Version)) > 0 {
		return nil, fmt.Errorf("has the apiVersion %q, which is not group/version", apiVersion)
	}
	metadata, _ := child["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if name == "" {
		return nil, errors.New("has no name")
	}
	if reasons := content.IsPathSegmentName(name); len(reasons) > 0 {
		return nil, fmt.Errorf("has the name %q, which %s", name, strings.Join(reasons, ", "))
	}
	return metadata, nil
}

// place checks that a child is of a declared kind, and gives it its namespace, where it may be.
func (m *model) place(child *hook.Object, metadata map[string]any) error {
	rule, ok := m.rule(child)
	if !ok {
		return fmt.Errorf("is of %s, which the controller does not declare", hook.TypeKey(child.GetAPIVersion(), child.GetKind()))
	}
	namespace, isText := metadata["namespace"].(string)
	if !isText && metadata["namespace"] != nil {
		return errors.New("has a namespace that is not a string")
	}
	if reasons := content.IsPathSegmentName(namespace); len(reasons) > 0 {
		return fmt.Errorf("has the namespace %q, which %s", namespace, strings.Join(reasons, ", "))
	}
	namespaced, known := m.trial.Namespaced[rule.Resource]
	of := m.parent.GetNamespace()
	switch {
	case known && !namespaced && of != "":
		return errors.New("is cluster-scoped, and its parent is in a namespace")
	case known && !namespaced:
		delete(metadata, "namespace")
	case known && namespace == "" && of == "":
		return errors.New("has no namespace, and neither has its parent")
	case namespace == "" && of != "":
		metadata["namespace"] = of
	case of != "" && namespace != of:
		return errors.New("is in another namespace than its parent")
	}
	return nil
}

// rule returns the rule that declares the kind of a child, in whichever version (docs/reference/compatibility.md#d11).
func (m *model) rule(child *hook.Object) (v1alpha1.ResourceRule, bool) {
	for _, rule := range m.rules {
		if groupOf(rule.APIVersion) == groupOf(child.GetAPIVersion()) && m.trial.Kinds[rule.Resource] == child.GetKind() {
			return rule, true
		}
	}
	return v1alpha1.ResourceRule{}, false
}

// groupOf returns the group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, named := strings.Cut(apiVersion, "/")
	if !named {
		return ""
	}
	return group
}

// label gives a child the label by which its parent finds it if the server does so, and checks its labels and annotations. The selector
// is nil for attachments, of which labels that are null are none.
func (m *model) label(metadata map[string]any, selector labels.Selector) error {
	dropNulls(metadata, "annotations")
	if selector == nil {
		dropNulls(metadata, "labels")
	}
	if _, err := texts(metadata, "annotations"); err != nil {
		return err
	}
	set, err := texts(metadata, "labels")
	if err != nil || selector == nil {
		return err
	}
	if _, has := set[controllerUID]; m.generates() && !has {
		set[controllerUID] = string(m.parent.GetUID())
		with := map[string]any{}
		for name, value := range set {
			with[name] = value
		}
		metadata["labels"] = with
	}
	if !selector.Matches(labels.Set(set)) {
		return fmt.Errorf("its labels do not match the parent's selector %s", selector)
	}
	return nil
}

func dropNulls(metadata map[string]any, field string) {
	entries, _ := metadata[field].(map[string]any)
	maps.DeleteFunc(entries, func(_ string, value any) bool { return value == nil })
}

// texts returns the labels or annotations of an object, which must be strings.
func texts(metadata map[string]any, field string) (map[string]string, error) {
	result := map[string]string{}
	entries, ok := metadata[field].(map[string]any)
	if !ok && metadata[field] != nil {
		return nil, fmt.Errorf("its %s are not an object", field)
	}
	for name, value := range entries {
		if result[name], ok = value.(string); !ok {
			return nil, fmt.Errorf("the value %v of %q in its %s is not a string", value, name, field)
		}
	}
	return result, nil
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
		kind, known := m.trial.Kinds[rule.Resource]
		return groupOf(rule.APIVersion) == groupOf(m.parent.GetAPIVersion()) && (!known || kind == m.parent.GetKind()) &&
			rule.AllowDelete != nil && *rule.AllowDelete
	})
}
