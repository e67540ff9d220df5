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

package table

import (
	"net"
	"net/url"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// NamedHook is one hook of a controller.
type NamedHook struct {
	// Name is the hook's name in the definition.
	Name string
	// Hook is the hook, nil if the definition has none.
	Hook *metacontroller.Hook
}

// HookColumns are the wide columns that HookCells fills.
func HookColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Hooks", Type: text, Priority: 1, Description: "Hooks that the controller calls."},
		{Name: "Address", Type: text, Priority: 1, Description: "Where the hooks are: scheme, host and port."},
	}
}

// HookCells returns the cells of HookColumns.
func HookCells(all ...NamedHook) []any {
	var called, addresses []string
	for _, h := range all {
		if h.Hook == nil || h.Hook.Webhook == nil {
			continue
		}
		called = append(called, h.Name)
		if at := address(h.Hook.Webhook); !slices.Contains(addresses, at) {
			addresses = append(addresses, at)
		}
	}
	return []any{List(called), List(addresses)}
}

// address is where a webhook is. The path and the query are left out, and the user: they may be secret.
func address(webhook *metacontroller.Webhook) string {
	if webhook.URL != nil {
		u, err := url.Parse(*webhook.URL)
		if err != nil || u.Host == "" {
			return Unknown
		}
		return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	}
	if webhook.Service == nil {
		return Unknown
	}
	s := webhook.Service
	host := net.JoinHostPort(s.Name+"."+s.Namespace, strconv.Itoa(int(ptr.Deref(s.Port, 80))))
	return (&url.URL{Scheme: ptr.Deref(s.Protocol, "http"), Host: host}).String()
}

// StrategyColumn is the wide column that StrategyCell fills.
func StrategyColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Strategy", Type: text, Priority: 1, Description: "How existing children are updated: the methods of all child resources.",
	}
}

// StrategyCell returns the cell of StrategyColumn: each method once. An empty one is the default.
func StrategyCell(methods []metacontroller.ChildUpdateMethod) string {
	var different []string
	for _, method := range methods {
		if method == "" {
			method = metacontroller.ChildUpdateOnDelete
		}
		if !slices.Contains(different, string(method)) {
			different = append(different, string(method))
		}
	}
	return List(different)
}
