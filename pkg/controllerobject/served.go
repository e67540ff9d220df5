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

package controllerobject

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

// Version is the version of the API group that this program speaks, such as example.com/v1.
func Version() string { return v1alpha1.SchemeGroupVersion.String() }

// Served returns an error that says what to do if the cluster does not serve the API group, and nil if it does.
func Served(ctx context.Context, client versioned.Interface) error {
	version := Version()
	_, err := discovery.ToDiscoveryInterfaceWithContext(client.Discovery()).ServerResourcesForGroupVersionWithContext(ctx, version)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster does not serve %s: install metacontroller-apiserver, or register a running one with "+
			"'metacontroller-apiserver register'", version)
	}
	if err != nil {
		return fmt.Errorf("asking whether the cluster serves %s: %w", version, err)
	}
	return nil
}
