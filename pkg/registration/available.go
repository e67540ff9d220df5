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

package registration

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// pollInterval is the pause between two looks at the registration.
const pollInterval = 250 * time.Millisecond

// waitAvailable waits until the cluster says that it reaches the server, and really does: the condition may be left over from
// an earlier registration.
func waitAvailable(ctx context.Context, client dynamic.Interface, o Options) error {
	resources, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	last := condition{reason: "Pending", message: "the cluster has not looked for the server yet"}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, o.Timeout, true, func(ctx context.Context) (bool, error) {
		now := readCondition(ctx, client)
		if now.available {
			if _, err := resources.ServerResourcesForGroupVersion(group + "/" + version); err == nil {
				return true, nil
			} else if ctx.Err() == nil {
				now = condition{reason: "DiscoveryFailed", message: err.Error()}
			}
		}
		// The last look may have been cut short by the timeout; what came before says more.
		if ctx.Err() == nil && now != last {
			progressf(o.Progress, "waiting for APIService %s: %s: %s", APIServiceName, now.reason, now.message)
			last = now
		}
		return false, nil
	})
	switch {
	case err == nil:
		progressf(o.Progress, "APIService %s is available", APIServiceName)
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("waiting for APIService %s: %w", APIServiceName, context.Cause(ctx))
	default:
		return &UnavailableError{Waited: o.Timeout, Reason: last.reason, Message: last.message}
	}
}

// A condition is what the cluster says about the registration.
type condition struct {
	available       bool
	reason, message string
}

// readCondition reads the condition Available.
func readCondition(ctx context.Context, client dynamic.Interface) condition {
	apiService, err := client.Resource(apiServices()).Get(ctx, APIServiceName, metav1.GetOptions{})
	if err != nil {
		return condition{reason: "ReadingFailed", message: err.Error()}
	}
	return conditionOf(apiService)
}

// conditionOf returns the condition Available of an APIService.
func conditionOf(apiService *unstructured.Unstructured) condition {
	conditions, _, _ := unstructured.NestedSlice(apiService.Object, "status", "conditions")
	for _, entry := range conditions {
		fields, ok := entry.(map[string]any)
		if !ok || fields["type"] != "Available" {
			continue
		}
		reason, _, _ := unstructured.NestedString(fields, "reason")
		message, _, _ := unstructured.NestedString(fields, "message")
		return condition{available: fields["status"] == "True", reason: reason, message: message}
	}
	return condition{reason: "Pending", message: "the cluster has not looked for the server yet"}
}
