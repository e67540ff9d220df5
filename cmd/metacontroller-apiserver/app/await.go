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

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// askInterval is how often a cluster that does not respond is asked again, and askTimeout how long it may take to.
	askInterval, askTimeout = time.Second, 10 * time.Second
	// complainEvery is in how many attempts it is logged that the cluster does not respond.
	complainEvery = 10
)

// awaitCluster waits until the cluster responds: without it nothing of the server can be configured. The error is the cause of ctx, or
// says that the configuration is wrong.
func awaitCluster(ctx context.Context, cluster *rest.Config) error {
	cluster = unlimited(cluster)
	cluster.Timeout = askTimeout
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("creating a client for the cluster: %w", err)
	}
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for attempt := 0; ; attempt++ {
		err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		if responded(err) {
			return nil
		}
		if attempt%complainEvery == 0 && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The cluster does not respond; waiting for it", "host", cluster.Host)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// responded reports whether a cluster has responded that serves, be it with a refusal.
func responded(err error) bool {
	if err == nil {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	code := int(status.Status().Code)
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}
