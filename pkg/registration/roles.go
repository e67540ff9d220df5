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
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

const (
	// ServerRole is the ClusterRole of what the API server does for itself.
	ServerRole = "metacontroller-apiserver"
	// ControllersRole is the ClusterRole of what the controllers do.
	ControllersRole = "metacontroller-controllers"
	// LeaderElectionRole is the Role, in the server's namespace, of the Lease of the replica that runs the controllers.
	LeaderElectionRole = "metacontroller-apiserver:leader-election"
)

// Rules returns the rules of one of the roles, as the manifests have them.
func Rules(role string) ([]rbacv1.PolicyRule, error) {
	for _, name := range files() {
		objects, err := readManifest(name)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			// Other objects have the same names.
			if kind := object.GetKind(); (kind == kindClusterRole || kind == kindRole) && object.GetName() == role {
				return rulesOf(object)
			}
		}
	}
	return nil, fmt.Errorf("the manifests have no role %s", role)
}

// applyRole applies a ClusterRole or Role. One whose rules somebody else has written is not changed, unless the options say so: a role that
// was narrowed stays narrow, and the user is told what it lacks.
func applyRole(ctx context.Context, client dynamic.Interface, role *unstructured.Unstructured, o Options) error {
	target, err := resourceFor(client, role)
	if err != nil {
		return err
	}
	existing, err := target.Get(ctx, role.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading %s: %w", describe(role), err)
	}
	if err == nil && !o.RestoreRoles {
		left, err := leave(existing, role, o)
		if err != nil || left {
			return err
		}
	}
	if err := apply(ctx, client, role, FieldManager); err != nil {
		return err
	}
	progressf(o.Progress, "applied %s", describe(role))
	return nil
}

// leave reports whether a role that others have written differs from the wanted one, and then tells the user how.
func leave(existing, wanted *unstructured.Unstructured, o Options) (bool, error) {
	authors, lacks, more, err := rewritten(existing, wanted)
	if err != nil || len(authors) == 0 {
		return false, err
	}
	progressf(o.Progress, "%s was written by %s and is not changed; --restore-roles replaces it", describe(existing), strings.Join(authors, ", "))
	for _, line := range lacks {
		progressf(o.Progress, "  it lacks: %s", line)
	}
	for _, line := range more {
		progressf(o.Progress, "  it has besides: %s", line)
	}
	return true, nil
}

// rewritten returns who else has written the rules of a role that differs from the wanted one, and what it lacks of that and has besides, one
// resource in a line. There are no authors if nobody has, or if it does not differ.
func rewritten(existing, wanted *unstructured.Unstructured) (authors, lacks, more []string, err error) {
	if authors = authorsOfRules(existing); len(authors) == 0 {
		return nil, nil, nil, nil
	}
	has, err := rulesOf(existing)
	if err != nil {
		return nil, nil, nil, err
	}
	wants, err := rulesOf(wanted)
	if err != nil {
		return nil, nil, nil, err
	}
	if lacks, more = uncovered(wants, has), uncovered(has, wants); len(lacks)+len(more) == 0 {
		return nil, nil, nil, nil
	}
	return authors, lacks, more, nil
}

// authorsOfRules returns the field managers other than this package that own the rules of a role.
func authorsOfRules(role *unstructured.Unstructured) []string {
	var authors []string
	for _, entry := range role.GetManagedFields() {
		if entry.Manager != FieldManager && entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:rules"`)) {
			authors = append(authors, entry.Manager)
		}
	}
	slices.Sort(authors)
	return slices.Compact(authors)
}

func rulesOf(o *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	var role rbacv1.ClusterRole // The rules of a Role have the same form.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
		return nil, fmt.Errorf("reading the rules of %s: %w", describe(o), err)
	}
	return role.Rules, nil
}

// uncovered returns what the first rules allow and the second do not, one resource in a line.
func uncovered(rules, by []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		for _, single := range resourcesOf(rule) {
			verbs := slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool {
				single.Verbs = []string{verb}
				return slices.ContainsFunc(by, func(other rbacv1.PolicyRule) bool { return covers(other, single) })
			})
			if len(verbs) > 0 {
				single.Verbs = verbs
				lines = append(lines, line(single))
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// resourcesOf splits a rule into rules of one resource, and of one name if there are names.
func resourcesOf(rule rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var split []rbacv1.PolicyRule
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				single := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}}
				if name != "" {
					single.ResourceNames = []string{name}
				}
				split = append(split, single)
			}
		}
	}
	for _, url := range rule.NonResourceURLs {
		split = append(split, rbacv1.PolicyRule{NonResourceURLs: []string{url}})
	}
	return split
}

// covers reports whether a rule allows all of a rule with one verb, and one resource, name or URL.
func covers(rule, single rbacv1.PolicyRule) bool {
	all := func(list, wanted []string, same func(has, wants string) bool) bool {
		for _, wants := range wanted {
			if !slices.ContainsFunc(list, func(has string) bool { return has == "*" || same(has, wants) }) {
				return false
			}
		}
		return true
	}
	equal := func(has, wants string) bool { return has == wants }
	return all(rule.Verbs, single.Verbs, equal) &&
		all(rule.APIGroups, single.APIGroups, equal) &&
		all(rule.Resources, single.Resources, func(has, wants string) bool {
			_, subresource, _ := strings.Cut(wants, "/")
			return has == wants || subresource != "" && has == "*/"+subresource
		}) &&
		(len(rule.ResourceNames) == 0 || len(single.ResourceNames) > 0 && all(rule.ResourceNames, single.ResourceNames, equal)) &&
		all(rule.NonResourceURLs, single.NonResourceURLs, func(has, wants string) bool {
			prefix, ok := strings.CutSuffix(has, "*")
			return has == wants || ok && strings.HasPrefix(wants, prefix)
		})
}

// line writes a rule of one resource or URL for people.
func line(single rbacv1.PolicyRule) string {
	what := strings.Join(single.NonResourceURLs, "")
	if len(single.Resources) > 0 {
		what = single.Resources[0]
		if group := single.APIGroups[0]; group != "" {
			what += " in " + group
		}
	}
	if len(single.ResourceNames) > 0 {
		what += " " + single.ResourceNames[0]
	}
	return strings.Join(single.Verbs, ", ") + " " + what
}

// podSecurityLabel was put on the namespace by earlier versions, and keeps out the Pods of others.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// ensureNamespace creates the namespace. One that exists may be that of others too, and is not changed.
func ensureNamespace(ctx context.Context, client dynamic.Interface, namespace *unstructured.Unstructured, progress io.Writer) error {
	_, err := client.Resource(resources[kindNamespace]).Create(ctx, namespace, metav1.CreateOptions{FieldManager: FieldManager})
	switch {
	case err == nil:
		progressf(progress, "created %s", describe(namespace))
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating %s: %w", describe(namespace), err)
	}
	existing, err := client.Resource(resources[kindNamespace]).Get(ctx, namespace.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading %s: %w", describe(namespace), err)
	}
	progressf(progress, "%s exists and is not changed", describe(namespace))
	if level := existing.GetLabels()[podSecurityLabel]; level != "" && appliedHere(existing) {
		progressf(progress, "its label %s=%s is that of an earlier register, and keeps Pods out that need more; take it off with\n"+
			"  kubectl label namespace %s %s-", podSecurityLabel, level, namespace.GetName(), podSecurityLabel)
	}
	return nil
}

// releaseNamespace takes off the namespace what earlier versions applied to it: their labels. The namespace stays, because others
// may use it.
func releaseNamespace(ctx context.Context, client dynamic.Interface, name string, out io.Writer) error {
	existing, err := client.Resource(resources[kindNamespace]).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Namespace %s: %w", name, err)
	}
	if !appliedHere(existing) {
		return nil
	}
	nothing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kindNamespace,
		// With the uid nothing is created, should the namespace be deleted meanwhile.
		"metadata": map[string]any{"name": name, "uid": string(existing.GetUID())},
	}}
	if err := apply(ctx, client, nothing, FieldManager); err != nil {
		return err
	}
	progressf(out, "took the labels of register off Namespace %s", name)
	return nil
}

// appliedHere reports whether this package owns fields of an object by server-side apply.
func appliedHere(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
	})
}
