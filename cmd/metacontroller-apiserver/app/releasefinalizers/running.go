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

package releasefinalizers

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

// runners says who runs controllers.
type runners struct {
	// served are the controllers that an available server has, of those that were asked for.
	served map[controllerobject.Reference]bool
	// hidden is a server that the cluster does not reach and that renews its Lease: it may run any controller. Empty: there is none.
	hidden string
	// lease is the Lease that was looked at, and unknown says why it is not known whether it is renewed; nil if it is.
	lease   string
	unknown error
}

// run reports whether somebody runs a controller, or may run it.
func (r *runners) run(c controllerobject.Reference) bool { return r.served[c] || r.hidden != "" }

// running looks who runs the controllers of the objects: those that the cluster serves are run by somebody. While no server is available, one
// may run nevertheless, which its Lease tells. It is an error when it is not known what the cluster serves.
func (c *cluster) running(ctx context.Context, found []object, lease string, out io.Writer) (runners, error) {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return runners{}, fmt.Errorf("making a client: %w", err)
	}
	available, err := available(ctx, client)
	if err != nil {
		return runners{}, err
	}
	if !available {
		if lease == "" || len(found) == 0 {
			return runners{}, nil
		}
		return c.leading(ctx, lease, out)
	}
	there := map[controllerobject.Reference]bool{}
	for i := range found {
		controller := found[i].controller
		if _, asked := there[controller]; asked {
			continue
		}
		resource := v1alpha1.SchemeGroupVersion.WithResource(string(controller.Kind) + "s")
		_, err := client.Resource(resource).Get(ctx, controller.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return runners{}, fmt.Errorf("looking whether %s/%s exists: %w", controller.Kind, controller.Name, err)
		}
		there[controller] = err == nil
	}
	return runners{served: there}, nil
}

// leading looks whether a server renews its Lease, given as NAMESPACE/NAME.
func (c *cluster) leading(ctx context.Context, lease string, out io.Writer) (runners, error) {
	client, err := coordinationclient.NewForConfig(c.config)
	if err != nil {
		return runners{}, fmt.Errorf("making a client: %w", err)
	}
	namespace, name, _ := strings.Cut(lease, "/")
	holder, err := renewing(ctx, client.Leases(namespace), name, func(holder string, limit time.Duration) {
		fmt.Fprintf(out, "%s was the last to hold the Lease %s. Looking for up to %s whether it still renews it.\n", holder, lease, limit)
	})
	if ctx.Err() != nil {
		return runners{}, context.Cause(ctx)
	}
	return runners{hidden: holder, lease: lease, unknown: err}, nil
}

// available reports whether the cluster reaches a server of the group, or serves it by CustomResourceDefinitions.
func available(ctx context.Context, client dynamic.Interface) (bool, error) {
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	service, err := client.Resource(services).Get(ctx, registration.APIServiceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading APIService %s: %w", registration.APIServiceName, err)
	}
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Available" {
			return fields["status"] == "True", nil
		}
	}
	return false, nil
}
