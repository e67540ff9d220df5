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
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/origin"
)

const (
	// defaultTimeout is how long a call may take where the controller does not say it.
	defaultTimeout = 10 * time.Second
	// maxRedirects is how many redirects are followed.
	maxRedirects = 10
)

// limitOf returns how long a server waits for the response to a request, in which the controller says it.
func limitOf(name string, body []byte) time.Duration {
	var request struct {
		Controller struct {
			Spec struct {
				Hooks map[string]struct {
					Webhook struct {
						Timeout metav1.Duration `json:"timeout"`
					} `json:"webhook"`
				} `json:"hooks"`
			} `json:"spec"`
		} `json:"controller"`
	}
	// A request that is no such object says nothing of it.
	if json.Unmarshal(body, &request) == nil {
		if limit := request.Controller.Spec.Hooks[name].Webhook.Timeout.Duration; limit > 0 {
			return limit
		}
	}
	return defaultTimeout
}

// tooSlow is the error of a call that took longer.
func tooSlow(name string, address *url.URL, limit time.Duration) error {
	return fmt.Errorf("%s: no response within %s, and a server waits no longer: make the hook faster, or set webhook.timeout of the %s hook, "+
		"which is %s by default", address, limit, name, defaultTimeout)
}

// laterAsked reports whether a response asks to be called later. To a server that is no error.
func laterAsked(response *http.Response) bool {
	return response.StatusCode == http.StatusTooManyRequests ||
		response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != ""
}

// checkRedirect implements http.Client.CheckRedirect, as a server has it: a redirect stays with the host, its scheme and port, or leads from
// http to https at the ports of these.
func checkRedirect(next *http.Request, via []*http.Request) error {
	switch {
	case !origin.Keeps(via[len(via)-1].URL, next.URL):
		return fmt.Errorf("the hook redirects to %s, which a server does not follow, since the scheme, host or port is another one: "+
			"name the final address", next.URL.Redacted())
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}
