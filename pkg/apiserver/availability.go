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
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// unavailableAfter is for how long etcd must not have served before the APIService says so. It is the time after which Kubernetes takes a Pod that
// is not ready out of its Service, with the manifests' probes, which has the same effect; no election of a leader takes as long.
const unavailableAfter = 15 * time.Second

// discoveryPath is where the kube-apiserver looks whether the APIService is available, at least every 30 seconds.
var discoveryPath = "/apis/" + v1alpha1.SchemeGroupVersion.String() //nolint:gochecknoglobals // It does not change.

// etcdReadiness is the check of the generic API server that says whether etcd serves.
const etcdReadiness = "etcd-readiness"

// refuseDiscovery refuses the list of the version's resources while etcd has not served for long, so that the condition Available of the APIService
// becomes False. A server that runs outside of the cluster has no readiness probe to do that.
func refuseDiscovery(api http.Handler, checks []healthz.HealthChecker) http.Handler {
	etcd := &lasting{}
	for _, check := range checks {
		if check.Name() == etcdReadiness {
			etcd.checks = append(etcd.checks, check)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.TrimSuffix(r.URL.Path, "/") == discoveryPath {
			if err := etcd.failure(r, time.Now()); err != nil {
				refusal := apierrors.NewServiceUnavailable("the etcd of this server does not serve at present: " + err.Error())
				responsewriters.ErrorNegotiated(refusal, jsonOnly{Codecs}, v1alpha1.SchemeGroupVersion, w, r)
				return
			}
		}
		api.ServeHTTP(w, r)
	})
}

// lasting finds failures of checks that last.
type lasting struct {
	checks []healthz.HealthChecker

	mu sync.Mutex
	// since is when the first check failed after the last one that passed; zero if that passed.
	since time.Time
	// told says that the log has it.
	told bool
}

// failure returns what a check fails with, nil if all pass or have failed for a short time only.
func (l *lasting) failure(r *http.Request, now time.Time) error {
	var failed error
	for _, check := range l.checks {
		if failed = check.Check(r); failed != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case failed == nil:
		l.since, l.told = time.Time{}, false
	case l.since.IsZero():
		l.since = now
	case now.Sub(l.since) >= unavailableAfter:
		if !l.told {
			klog.FromContext(r.Context()).Error(failed, "Etcd has not served for long, and the APIService becomes unavailable")
			l.told = true
		}
		return failed
	}
	return nil
}
