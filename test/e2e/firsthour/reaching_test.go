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

package firsthour

import (
	"net/http"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
)

// fine is a hook that wants nothing.
func fine() http.Handler { return hooktest.JSON(map[string]any{"children": []any{}}) }

// reaching are mistakes by which a hook is not reached.
var reaching = []mistake{
	{
		name: "hook-not-running", title: "The hook does not run",
		text: "Nobody listens at the address of the hook.",
		play: func(s *session) {
			s.start(s.composite("http://"+s.nobody()+"/sync", "", configMaps))
			s.failed("refused")
			s.says("HookFailing", "connection refused", "check the Pods and the Service of the hook")
		},
	},
	{
		name: "http-to-https", title: "http to an https port",
		text: "The hook speaks TLS, and the URL begins with http.",
		play: func(s *session) {
			h := s.hook(fine(), hooktest.WithTLS())
			s.start(s.composite("http://"+h.Host()+"/sync", "", configMaps))
			s.failed("https")
			s.says("HookFailing", "the port speaks TLS", "use https")
		},
	},
	{
		name: "https-to-http", title: "https to an http port",
		text: "The URL begins with https, and the hook does not speak TLS.",
		play: func(s *session) {
			h := s.hook(fine())
			s.start(s.composite("https://"+h.Host()+"/sync", "", configMaps))
			s.failed("TLS")
			s.says("HookFailing", "the hook does not speak TLS; use http, or give it a certificate")
		},
	},
	{
		name: "wrong-ca", title: "The wrong certificate authority",
		text: "`caBundle` has another authority than the one that signed the certificate of the hook.",
		play: func(s *session) {
			h, other := s.hook(fine(), hooktest.WithTLS()), hooktest.NewServer(s.t, hooktest.WithTLS())
			s.start(s.composite(h.URL("/sync"), authority(other.CABundle()), configMaps))
			s.failed("authority")
			s.says("HookFailing", "certificate signed by unknown authority; set caBundle to the certificate authority of the hook")
		},
	},
	{
		name: "wrong-name", title: "A certificate for another name",
		text: "The certificate of the hook is for `hooks.example.com`, and the URL has another host.",
		play: func(s *session) {
			h := s.hook(fine(), hooktest.WithCertificateFor("hooks.example.com"))
			s.start(s.composite(h.URL("/sync"), authority(h.CABundle()), configMaps))
			s.failed("certificate")
			s.says("HookFailing", "add the host name to the certificate of the hook, or use a name that is in it")
		},
	},
	{
		name: "garbage-ca", title: "A certificate authority that is none",
		text: "`caBundle.inline` holds no PEM.",
		play: func(s *session) {
			s.apply("controller.yaml", s.composite("https://hook.default/sync", `, caBundle: {inline: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"}`, configMaps))
			s.says("spec.hooks.sync.webhook.caBundle.inline", "PEM")
		},
	},
	{
		name: "service-from-outside", title: "A Service, and a server outside of the cluster",
		text: "The hook is given by its Service, whose name only Pods of the cluster can resolve.",
		play: func(s *session) {
			controller := strings.Replace(s.composite("", "", configMaps), `url: ""`, "service: {name: hook, namespace: default}, path: /sync", 1)
			s.awaitWarning("default/hook does not exist", controller, "apply", "-f", "-")
			s.start(controller)
			s.failed("outside")
			s.says("HookFailing", "hook.default", "outside of the cluster", "webhook.url")
		},
	},
	{
		name: "slow-hook", title: "A hook that is too slow",
		text: "The hook takes longer than its `timeout`, here three seconds.",
		play: func(s *session) {
			s.start(s.composite(s.hook(hooktest.Hang()).URL("/sync"), ", timeout: 3s", configMaps))
			s.failed("no response within 3s")
			s.says("HookFailing", "connected, but no response within 3s; make the hook faster, or raise its timeout")
		},
	},
}

// authority is a caBundle of a webhook in YAML.
func authority(pem string) string {
	return `, caBundle: {inline: "` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`
}
