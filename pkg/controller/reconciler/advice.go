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

package reconciler

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// The functions below say what is wrong with parents and their statuses. What to do about it depends on where the kind of the parents comes from.

// NoSelector is the error of a parent of a CompositeController that has no usable selector and no generated one (docs/reference/contract.md#s7).
func NoSelector(origin discovery.Origin) error {
	if origin == discovery.BuiltIn {
		return errors.New("objects of this kind have no .spec.selector with matchLabels or matchExpressions; set spec.generateSelector in the " +
			"CompositeController")
	}
	return errors.New(".spec.selector must have either matchLabels, matchExpressions, or both; or set spec.generateSelector in the CompositeController")
}

// statusIgnored says why the status of parents is not written.
func statusIgnored(resource schema.GroupResource, origin discovery.Origin) string {
	text := fmt.Sprintf("The status that the hook returns is not written: %s have no status subresource. ", resource)
	switch origin {
	case discovery.Custom:
		return text + "Add subresources: {status: {}} to the version in their CustomResourceDefinition, or return no status"
	case discovery.Unknown:
		return text + "Add subresources: {status: {}} to their CustomResourceDefinition, if there is one, or return no status"
	case discovery.BuiltIn, discovery.Aggregated:
	}
	return text + "Have the hook return no status"
}

// statusIncomplete says which fields of a status are not stored.
func statusIncomplete(lost []string, o *object.Object, resource schema.GroupResource, origin discovery.Origin) string {
	text := fmt.Sprintf("The API server left %s out when the status of %s was written, ", strings.Join(lost, ", "), o)
	switch origin {
	case discovery.Custom:
		return text + fmt.Sprintf("as it does with fields that a schema does not declare. Declare them in the CustomResourceDefinition of %s, or have "+
			"the hook not return them", resource)
	case discovery.Unknown:
		return text + fmt.Sprintf("as it does with fields that a schema does not declare. Declare them in the CustomResourceDefinition of %s, if there is "+
			"one, or have the hook not return them", resource)
	case discovery.BuiltIn, discovery.Aggregated:
	}
	return text + fmt.Sprintf("because %s have no such fields. Have the hook not return them", resource)
}

// statusRefused says why nothing of a status is written.
func statusRefused(unknown []string, o *object.Object, resource schema.GroupResource) string {
	return fmt.Sprintf("The status that the hook returns is not written to %s: %s have no %s, and the fields that they have are those of a controller of "+
		"Kubernetes. Have the hook return no status", o, resource, strings.Join(unknown, ", "))
}
