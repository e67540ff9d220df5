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

package escalation

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// right is one thing that one may do, in all namespaces unless Namespace is set.
type right struct {
	Verb, Group, Resource, Subresource string
	// Namespace and Name are of a single object.
	Namespace, Name string
}

// object is everything of a right but its verb.
func (r right) object() right {
	r.Verb = ""
	return r
}

// rights collects rights, each once, in the order of the definition.
type rights struct {
	list []right
	seen map[right]bool
}

func (r *rights) add(on right, verbs ...string) {
	for _, verb := range verbs {
		on.Verb = verb
		if !r.seen[on] {
			if r.seen == nil {
				r.seen = map[right]bool{}
			}
			r.seen[on] = true
			r.list = append(r.list, on)
		}
	}
}

// Verbs of requests, as the engine makes them: informers list and watch, and single objects are read when a write meets a conflict.
const (
	get, list, watch              = "get", "list", "watch"
	create, update, patch, remove = "create", "update", "patch", "delete"
)

// escalate is the verb that lets its holder give a controller rights that he lacks, as it does with roles.
const escalate = "escalate"

// revisions are the resource of ControllerRevisions.
const revisions = "controllerrevisions"

const (
	// subresourceStatus is written if there is a status subresource, now or later.
	subresourceStatus = "status"
	// subresourceFinalizers is what the admission plugin OwnerReferencesPermissionEnforcement asks for about the owner, because
	// children refer to their parent with blockOwnerDeletion.
	subresourceFinalizers = "finalizers"
)

// ofComposite returns what a CompositeController does.
func ofComposite(spec *metacontroller.CompositeControllerSpec) []right {
	var r rights
	var hooks metacontroller.CompositeControllerHooks
	if spec.Hooks != nil {
		hooks = *spec.Hooks
	}
	parent := on(spec.ParentResource.ResourceRule)
	r.add(parent, get, list, watch)
	if hooks.Finalize != nil {
		r.add(parent, patch)
	}
	r.add(parent.sub(subresourceStatus), patch)
	if len(spec.ChildResources) > 0 {
		r.add(parent.sub(subresourceFinalizers), update)
	}
	for i := range spec.ChildResources {
		method := metacontroller.ChildUpdateMethod("")
		if strategy := spec.ChildResources[i].UpdateStrategy; strategy != nil {
			method = strategy.Method
		}
		r.addChild(spec.ChildResources[i].ResourceRule, method)
	}
	r.addHooks(hooks.Customize, hooks.Sync, hooks.Finalize, hooks.PreUpdateChild, hooks.PostUpdateChild)
	r.addEndpoints(spec.EndpointConfigs)
	return r.list
}

// ofDecorator returns what a DecoratorController does. Hooks may have targets deleted where the rule says so.
func ofDecorator(spec *metacontroller.DecoratorControllerSpec) []right {
	var r rights
	for i := range spec.Resources {
		target := on(spec.Resources[i].ResourceRule)
		r.add(target, get, list, watch, patch)
		if allow := spec.Resources[i].AllowDelete; allow != nil && *allow {
			r.add(target, remove)
		}
		r.add(target.sub(subresourceStatus), patch)
		if len(spec.Attachments) > 0 {
			r.add(target.sub(subresourceFinalizers), update)
		}
	}
	for i := range spec.Attachments {
		method := metacontroller.ChildUpdateMethod("")
		if strategy := spec.Attachments[i].UpdateStrategy; strategy != nil {
			method = strategy.Method
		}
		r.addChild(spec.Attachments[i].ResourceRule, method)
	}
	if hooks := spec.Hooks; hooks != nil {
		r.addHooks(hooks.Customize, hooks.Sync, hooks.Finalize)
	}
	r.addEndpoints(spec.EndpointConfigs)
	return r.list
}

// addChild adds what is done with children or attachments of a kind. Which are not desired any more are deleted whatever the method
// is; adoption, release and server-side apply are patches; other updates, and the dry runs before a child is recreated, replace.
func (r *rights) addChild(rule metacontroller.ResourceRule, method metacontroller.ChildUpdateMethod) {
	child := on(rule)
	r.add(child, get, list, watch, create, patch, remove)
	if method != "" && method != metacontroller.ChildUpdateOnDelete {
		r.add(child, update)
	}
	for _, more := range guarded[schema.GroupResource{Group: child.Group, Resource: child.Resource}] {
		r.add(more, more.Verb)
	}
}

const (
	groupRBAC         = "rbac.authorization.k8s.io"
	groupCertificates = "certificates.k8s.io"
)

// guarded are the resources at which an API server asks for one more right than that of the request, because their objects give
// rights. It asks it of who makes the request, which is this server.
var guarded = map[schema.GroupResource][]right{
	{Group: groupRBAC, Resource: "roles"}:        {{Verb: escalate, Group: groupRBAC, Resource: "roles"}},
	{Group: groupRBAC, Resource: "clusterroles"}: {{Verb: escalate, Group: groupRBAC, Resource: "clusterroles"}},
	{Group: groupRBAC, Resource: "rolebindings"}: {
		{Verb: "bind", Group: groupRBAC, Resource: "roles"}, {Verb: "bind", Group: groupRBAC, Resource: "clusterroles"},
	},
	{Group: groupRBAC, Resource: "clusterrolebindings"}:         {{Verb: "bind", Group: groupRBAC, Resource: "clusterroles"}},
	{Group: groupCertificates, Resource: "clustertrustbundles"}: {{Verb: "attest", Group: groupCertificates, Resource: "signers"}},
	{Group: metacontroller.GroupName, Resource: "compositecontrollers"}: {
		{Verb: escalate, Group: metacontroller.GroupName, Resource: "compositecontrollers"},
	},
	{Group: metacontroller.GroupName, Resource: "decoratorcontrollers"}: {
		{Verb: escalate, Group: metacontroller.GroupName, Resource: "decoratorcontrollers"},
	},
	{Group: metacontroller.GroupName, Resource: revisions}: {{Verb: escalate, Group: metacontroller.GroupName, Resource: revisions}},
}

// addHooks adds what hooks are shown and what calls of them carry. A customize hook, the first one, names any kind as related.
func (r *rights) addHooks(customize *metacontroller.Hook, others ...*metacontroller.Hook) {
	if customize != nil {
		r.add(right{Group: "*", Resource: "*"}, get, list, watch)
	}
	for _, hook := range append([]*metacontroller.Hook{customize}, others...) {
		if hook != nil && hook.Webhook != nil {
			r.addSecurity(&hook.Webhook.WebhookSecurity)
		}
	}
}

func (r *rights) addEndpoints(endpoints []metacontroller.EndpointConfig) {
	for i := range endpoints {
		r.addSecurity(&endpoints[i].WebhookSecurity)
	}
}

// addSecurity adds the Secrets and ConfigMaps whose content is sent to a hook, or decides whom a call trusts.
func (r *rights) addSecurity(s *metacontroller.WebhookSecurity) {
	if bundle := s.CABundle; bundle != nil {
		if ref := bundle.SecretRef; ref != nil {
			r.add(secret(ref.Namespace, ref.Name), get)
		}
		if ref := bundle.ConfigMapRef; ref != nil {
			r.add(right{Resource: "configmaps", Namespace: ref.Namespace, Name: ref.Name}, get)
		}
	}
	if s.ClientTLS != nil {
		r.add(secret(s.ClientTLS.SecretRef.Namespace, s.ClientTLS.SecretRef.Name), get)
	}
	if s.Authorization != nil {
		r.add(secret(s.Authorization.SecretRef.Namespace, s.Authorization.SecretRef.Name), get)
	}
	if s.BasicAuth != nil {
		r.add(secret(s.BasicAuth.SecretRef.Namespace, s.BasicAuth.SecretRef.Name), get)
	}
}

func secret(namespace, name string) right {
	return right{Resource: "secrets", Namespace: namespace, Name: name}
}

// on returns the resource of a rule, without a verb.
func on(rule metacontroller.ResourceRule) right {
	gv, err := schema.ParseGroupVersion(rule.APIVersion)
	if err != nil {
		// Nobody but who may do everything may do something in a group of such a name.
		gv.Group = rule.APIVersion
	}
	return right{Group: gv.Group, Resource: rule.Resource}
}

func (r right) sub(resource string) right {
	r.Subresource = resource
	return r
}

// Labels of ControllerRevisions by which the engine finds those of a kind of parents (docs/reference/contract.md#s14.1).
const (
	labelGroup    = "metacontroller.k8s.io/apiGroup"
	labelResource = "metacontroller.k8s.io/resource"
)

// ofRevision returns what writing a ControllerRevision amounts to: hooks are shown parents with what is in it. Without its labels
// the engine does not look at it. Revisions of cluster-scoped parents have a namespace nevertheless, so that a right in it says
// nothing about the parent.
func ofRevision(o *metacontroller.ControllerRevision) []right {
	group, marked := o.Labels[labelGroup]
	resource := o.Labels[labelResource]
	if !marked || resource == "" {
		return nil
	}
	return []right{{Verb: update, Group: group, Resource: resource}}
}

// String names what the right is on, as in "deployments.apps/status".
func (r right) String() string {
	if r.Resource == "*" && r.Group == "*" {
		return "all resources"
	}
	text := schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Name != "" {
		text += " " + r.Namespace + "/" + r.Name
	}
	return text
}
