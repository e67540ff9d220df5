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

package localhook

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PointAt replaces where the webhooks of a controller are by an address, such as http://localhost:8080, and keeps their paths. It returns the names
// of the Services that served them.
func PointAt(controller map[string]any, address string) (services []string, err error) {
	err = eachWebhook(controller, func(webhook map[string]any) {
		path, service, ok := place(webhook)
		if !ok {
			return // The server says what is wrong with it.
		}
		if service != "" {
			services = append(services, service)
		}
		for _, field := range []string{"service", "path", "caBundle", "clientTLS"} {
			delete(webhook, field)
		}
		webhook["url"] = address + path
	})
	return services, err
}

// AddressOf returns where the webhooks of a controller are, if they are on a machine of their author; empty: they are not.
func AddressOf(controller map[string]any) string {
	address := ""
	_ = eachWebhook(controller, func(webhook map[string]any) { // The server has checked it.
		text, _ := webhook["url"].(string)
		parsed, err := url.Parse(text)
		if err != nil {
			return
		}
		if ip := net.ParseIP(parsed.Hostname()); parsed.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			address = parsed.Scheme + "://" + parsed.Host
		}
	})
	return address
}

// HasWebhook reports whether a hook of a controller is a webhook, and not an inline hook.
func HasWebhook(controller map[string]any) bool {
	found := false
	_ = eachWebhook(controller, func(map[string]any) { found = true }) // The server says what is wrong with it.
	return found
}

// eachWebhook calls f with each webhook, which f may change.
func eachWebhook(controller map[string]any, f func(map[string]any)) error {
	hooks, _, err := unstructured.NestedMap(controller, "spec", "hooks")
	if err != nil || hooks == nil {
		return err
	}
	for _, value := range hooks {
		hook, _ := value.(map[string]any)
		if webhook, ok := hook["webhook"].(map[string]any); ok { // Else the server says what is wrong with it.
			f(webhook)
		}
	}
	if err := unstructured.SetNestedMap(controller, hooks, "spec", "hooks"); err != nil {
		return fmt.Errorf("changing where the hooks are: %w", err)
	}
	return nil
}

// place returns the path of a webhook with its query, and the name of the Service that serves it in a cluster. It is false for a URL that is none.
func place(webhook map[string]any) (path, service string, ok bool) {
	if text, ok := webhook["url"].(string); ok {
		parsed, err := url.Parse(text)
		if err != nil || parsed.Host == "" {
			return "", "", false
		}
		service, _, _ = strings.Cut(parsed.Hostname(), ".")
		return parsed.RequestURI(), service, true
	}
	if reference, ok := webhook["service"].(map[string]any); ok {
		service, _ = reference["name"].(string)
	}
	path, _ = webhook["path"].(string)
	if path != "" && !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path, service, true
}
