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

package tree

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// nodeOf returns the node of an object, without children.
func nodeOf(mapping *meta.RESTMapping, object *unstructured.Unstructured) *Node {
	_, former := object.GetAnnotations()[v1alpha1.AnnotationSuperseded]
	return &Node{
		former: former, APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
		Ready: readiness(object), Reason: reason(object), FieldManagers: managers(object), uid: object.GetUID(),
		resource: mapping.Resource.GroupResource().String(),
	}
}

// managers are the field managers of an object, each once, those of its subresources left out.
func managers(object *unstructured.Unstructured) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" && !slices.Contains(names, entry.Manager) {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// podCompleted is the reason of the condition Ready of a Pod that did what it was for.
const podCompleted = "PodCompleted"

// readiness is what the status of an object says: its ready replicas, its phase, or the condition that tells of readiness.
func readiness(object *unstructured.Unstructured) string {
	if object.GetDeletionTimestamp() != nil {
		return "being deleted"
	}
	for _, pair := range [][2]string{{"replicas", "readyReplicas"}, {"desiredNumberScheduled", "numberReady"}} {
		desired, ok := number(object, "spec", pair[0])
		if !ok {
			desired, ok = number(object, "status", pair[0])
		}
		if kind := object.GetKind(); ok && (kind == "Deployment" || kind == "ReplicaSet" || kind == "StatefulSet" || kind == "DaemonSet") {
			ready, _ := number(object, "status", pair[1])
			return fmt.Sprintf("%d/%d", ready, desired)
		}
	}
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return ""
	}
	for _, wanted := range []string{"Ready", "Available", "Complete", "Failed", "Established"} {
		for _, one := range conditions {
			condition, ok := one.(map[string]any)
			if ok && condition["type"] == wanted && condition["reason"] != podCompleted {
				switch {
				case condition["status"] == "True":
					return wanted
				case wanted == "Ready" && condition["status"] == "False":
					return "NotReady"
				}
			}
		}
	}
	phase, _, err := unstructured.NestedString(object.Object, "status", "phase")
	if err != nil {
		return ""
	}
	return phase
}

// reason is why an object is not ready: of a Pod's container that waits, or of the condition that is not as it should be.
func reason(object *unstructured.Unstructured) string {
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		containers, _, err := unstructured.NestedSlice(object.Object, "status", field)
		for _, one := range containers {
			container, ok := one.(map[string]any)
			if waits, found, _ := unstructured.NestedStringMap(container, "state", "waiting"); err == nil && ok && found {
				return joined(waits["reason"], waits["message"])
			}
		}
	}
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return ""
	}
	for _, one := range conditions {
		condition, _ := one.(map[string]any)
		wrong := condition["status"] == "False" && condition["reason"] != podCompleted
		switch condition["type"] {
		case "Failed", "ReplicaFailure":
			wrong = condition["status"] == "True"
		case "PodScheduled", "Ready", "Available", "Progressing", "Updated":
		default:
			continue
		}
		reason, _ := condition["reason"].(string)
		message, _ := condition["message"].(string)
		if text := joined(reason, message); wrong && text != "" {
			return text
		}
	}
	return ""
}

// joined joins the parts of a text that are there.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

func number(object *unstructured.Unstructured, path ...string) (int64, bool) {
	value, found, err := unstructured.NestedInt64(object.Object, path...)
	return value, found && err == nil
}

// remember notes which children are on a revision, if the object is one.
func remember(revisions map[string]string, object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupKind() != v1alpha1.SchemeGroupVersion.WithKind("ControllerRevision").GroupKind() {
		return
	}
	var revision v1alpha1.ControllerRevision
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &revision); err != nil {
		return // The server validates them; one that cannot be read says of no child where it is.
	}
	for _, children := range revision.Children {
		for _, name := range children.Names {
			revisions[schema.GroupKind{Group: children.APIGroup, Kind: children.Kind}.String()+"/"+name] = revision.Name
		}
	}
}

// within is the name of an object below one of a namespace: with its own namespace where that is another one.
func (n *Node) within(namespace string) string {
	if n.Namespace != namespace {
		return n.Namespace + "/" + n.Name
	}
	return n.Name
}
