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

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// hooks returns the names of the hooks that are called, and where these are.
func (c *Controller) hooks() (called, addresses string) {
	var names, places []string
	for _, h := range []struct {
		name string
		hook *v1alpha1.Hook
	}{{"sync", c.Sync}, {"finalize", c.Finalize}, {"customize", c.Customize}} {
		if h.hook == nil || h.hook.Webhook == nil {
			continue
		}
		names = append(names, h.name)
		if at := address(h.hook.Webhook); !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	return List(names), List(places)
}

// address is where a webhook is. The path and the query are left out, and the user: they may be secret.
func address(webhook *v1alpha1.Webhook) string {
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

// strategies returns each method once. An empty one is the default.
func strategies(methods []v1alpha1.ChildUpdateMethod) string {
	var different []string
	for _, method := range methods {
		if method == "" {
			method = v1alpha1.ChildUpdateOnDelete
		}
		if !slices.Contains(different, string(method)) {
			different = append(different, string(method))
		}
	}
	return List(different)
}
