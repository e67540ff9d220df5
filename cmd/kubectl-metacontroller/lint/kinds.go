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

package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// manifestKinds are the kinds of the group that manifests are of.
func manifestKinds() []string {
	return []string{"CompositeController", "DecoratorController", "ControllerRevision"}
}

// unknown says what is wrong with an object of the group whose version or kind there is not.
func unknown(m controllerobject.Manifest) string {
	if version := controllerobject.Version(); m.APIVersion != version {
		return fmt.Sprintf("unknown version %s: did you mean %s?", m.APIVersion, version)
	}
	if near := nearest(m.Kind, manifestKinds()); near != "" {
		return fmt.Sprintf("unknown kind %s: did you mean %s?", m.Kind, near)
	}
	return fmt.Sprintf("unknown kind %s: use one of %s", m.Kind, strings.Join(manifestKinds(), ", "))
}

// nearest returns the word that differs least from another one, and nothing if none is like it.
func nearest(word string, words []string) string {
	best, least := "", len(word)/3+1
	for _, w := range words {
		if d := inline.Distance(strings.ToLower(word), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// served returns which resources of Kubernetes are meant by a resource in an API version, each as "apps/v1 deployments": all that have its name, as
// plural, singular or kind. There are none if the version is not one of those that Kubernetes serves: others may serve what they will by any name.
func served(apiVersion, name string) []string {
	kinds, _ := resources() // A test reads them.
	var meant []string
	theirs := false
	for _, key := range slices.Sorted(maps.Keys(kinds)) {
		version, resource, _ := strings.Cut(key, " ")
		theirs = theirs || version == apiVersion
		if strings.EqualFold(name, resource) || strings.EqualFold(name, kinds[key]) {
			meant = append(meant, key)
		}
	}
	if !theirs {
		return nil
	}
	return meant
}

// unservedOfComposite warns of kinds of Kubernetes that a CompositeController names as no cluster serves them.
func unservedOfComposite(c *metacontroller.CompositeController) []string {
	spec := field.NewPath("spec")
	warnings := unserved(spec.Child("parentResource"), c.Spec.ParentResource.APIVersion, c.Spec.ParentResource.Resource)
	for i := range c.Spec.ChildResources {
		rule := &c.Spec.ChildResources[i]
		warnings = append(warnings, unserved(spec.Child("childResources").Index(i), rule.APIVersion, rule.Resource)...)
	}
	return warnings
}

// unservedOfDecorator is unservedOfComposite for a DecoratorController.
func unservedOfDecorator(d *metacontroller.DecoratorController) []string {
	var warnings []string
	spec := field.NewPath("spec")
	for i := range d.Spec.Resources {
		rule := &d.Spec.Resources[i]
		warnings = append(warnings, unserved(spec.Child("resources").Index(i), rule.APIVersion, rule.Resource)...)
	}
	for i := range d.Spec.Attachments {
		rule := &d.Spec.Attachments[i]
		warnings = append(warnings, unserved(spec.Child("attachments").Index(i), rule.APIVersion, rule.Resource)...)
	}
	return warnings
}

func unserved(path *field.Path, apiVersion, resource string) []string {
	meant := served(apiVersion, resource)
	if len(meant) == 0 || slices.Contains(meant, apiVersion+" "+resource) {
		return nil
	}
	version, name, _ := strings.Cut(meant[0], " ")
	return []string{fmt.Sprintf("%s: Kubernetes does not serve %s in %s: did you mean %s in %s?", path, resource, apiVersion, name, version)}
}
