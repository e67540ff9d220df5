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

package apiserver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// TestTheAPIServiceIsUnavailableWhileEtcdHasNotServedForLong asks as the kube-apiserver does.
func TestTheAPIServiceIsUnavailableWhileEtcdHasNotServedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		checks := []healthz.HealthChecker{
			healthz.NamedCheck("watch-caches", func(*http.Request) error { return errors.New("not filled") }),
			healthz.NamedCheck(etcdReadiness, func(*http.Request) error {
				if away.Load() {
					return errors.New("connection refused")
				}
				return nil
			}),
		}
		handler := refuseDiscovery(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), checks)
		get := func(path string) (int, string) {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			return w.Code, w.Body.String()
		}
		for _, step := range []struct {
			reason string
			away   bool
			pass   time.Duration
			path   string
			want   int
		}{
			{"Etcd serves. Other checks are no business of the APIService.", false, time.Minute, discoveryPath, http.StatusOK},
			{"It may be a leader that is elected.", true, time.Minute, discoveryPath, http.StatusOK},
			{"It is none.", true, unavailableAfter, discoveryPath, http.StatusServiceUnavailable},
			{"Some clients write it so.", true, 0, discoveryPath + "/", http.StatusServiceUnavailable},
			{"What the watch cache serves is served.", true, 0, discoveryPath + "/compositecontrollers", http.StatusOK},
			{"It is back.", false, 0, discoveryPath, http.StatusOK},
			{"That is another outage.", true, 0, discoveryPath, http.StatusOK},
		} {
			away.Store(step.away)
			<-time.After(step.pass)
			code, body := get(step.path)
			if code != step.want || code != http.StatusOK && (!strings.Contains(body, "etcd") || !strings.Contains(body, "connection refused")) {
				t.Errorf("%s %s: %d %s, want %d", step.reason, step.path, code, body, step.want)
			}
		}
	})
}
