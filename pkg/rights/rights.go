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

package rights

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Right is one thing that one may do, in all namespaces unless Namespace is set. It is comparable.
type Right struct {
	// Verb is that of RBAC, such as get or create.
	Verb string
	// Group, Resource and Subresource are what it is done with. A * is all of them.
	Group, Resource, Subresource string
	// Namespace is where; empty for all namespaces.
	Namespace string
	// Name is set if it is one object.
	Name string
}

// Object returns the right without its verb.
func (r Right) Object() Right {
	r.Verb = ""
	return r
}

// Compare orders rights by what they are on, then by verb.
func (r Right) Compare(other Right) int {
	return cmp.Or(
		strings.Compare(r.Group, other.Group), strings.Compare(r.Resource, other.Resource), strings.Compare(r.Subresource, other.Subresource),
		strings.Compare(r.Namespace, other.Namespace), strings.Compare(r.Name, other.Name), strings.Compare(r.Verb, other.Verb),
	)
}

// Needs are the rights that a controller uses by its definition, each once, in the order of the definition.
type Needs struct {
	// Kinds are those on parents, children, attachments and targets, and on what an inline customize hook selects.
	Kinds []Right
	// Related are those on objects that a customize webhook may name, which are all; nil without such a webhook.
	Related []Right
	// Requester are those that the cluster looks for at whoever wrote an object, because of what the object says, and that no service account
	// is given for its kind alone: who may have node certificates approved, and read what admission policies refer to. nil without such kinds.
	Requester []Right
	// Credentials are those on the Secrets and ConfigMaps of hooks, of which each is listed and watched alone.
	Credentials []Right
}

// Reads returns the rights to list and watch whole kinds, and those to read credentials.
func (n Needs) Reads() []Right {
	var reads []Right
	for _, right := range n.Kinds {
		if (right.Verb == List || right.Verb == Watch) && right.Subresource == "" {
			reads = append(reads, right)
		}
	}
	return append(reads, n.Credentials...)
}

// collection collects rights, each once.
type collection struct {
	list []Right
	seen map[Right]bool
}

func (r *collection) add(on Right, verbs ...string) {
	for _, verb := range verbs {
		on.Verb = verb
		if !r.seen[on] {
			if r.seen == nil {
				r.seen = map[Right]bool{}
			}
			r.seen[on] = true
			r.list = append(r.list, on)
		}
	}
}

func (r *collection) addAll(list []Right) {
	for _, right := range list {
		r.add(right, right.Verb)
	}
}

// Verbs of requests, as the engine makes them: informers list and watch, and single objects are read when a write meets a conflict.
const (
	Get    = "get"
	List   = "list"
	Watch  = "watch"
	Create = "create"
	Update = "update"
	Patch  = "patch"
	Delete = "delete"
)

// Escalate is the verb that lets its holder give a controller rights that he lacks, as it does with roles.
const Escalate = "escalate"

const (
	// SubresourceStatus is written if there is a status subresource, now or later.
	SubresourceStatus = "status"
	// SubresourceFinalizers is what the admission plugin OwnerReferencesPermissionEnforcement asks for about the owner, because
	// children refer to their parent with blockOwnerDeletion.
	SubresourceFinalizers = "finalizers"
)

// OfComposite returns what a CompositeController does.
func OfComposite(spec *v1alpha1.CompositeControllerSpec) Needs {
	var r collection
	hooks := ptr.Deref(spec.Hooks, v1alpha1.CompositeControllerHooks{})
	parent := on(spec.ParentResource.ResourceRule)
	r.add(parent, Get, List, Watch)
	if hooks.Finalize != nil || spec.Retains() {
		r.add(parent, Patch)
	}
	r.addStatus(parent)
	if len(spec.ChildResources) > 0 {
		r.add(parent.sub(SubresourceFinalizers), Update)
	}
	r.addKeepers(spec.Retains())
	r.addSelected(hooks.Customize)
	var requester collection
	for i := range spec.ChildResources {
		strategy := ptr.Deref(spec.ChildResources[i].UpdateStrategy, v1alpha1.CompositeControllerChildUpdateStrategy{})
		r.addChild(spec.ChildResources[i].ResourceRule, strategy.Method, &requester)
	}
	return Needs{
		Kinds: r.list, Related: related(hooks.Customize), Requester: requester.list,
		Credentials: credentials(spec.EndpointConfigs, hooks.Customize, hooks.Sync, hooks.Finalize, hooks.PreUpdateChild, hooks.PostUpdateChild),
	}
}

// OfDecorator returns what a DecoratorController does. Hooks may have targets deleted where the rule says so.
func OfDecorator(spec *v1alpha1.DecoratorControllerSpec) Needs {
	var r collection
	for i := range spec.Resources {
		target := on(spec.Resources[i].ResourceRule)
		r.add(target, Get, List, Watch, Patch)
		// A hook returns labels, and those of some objects decide to whom their rights go.
		r.addAll(guarded[resourceOf(target)])
		if allow := spec.Resources[i].AllowDelete; allow != nil && *allow {
			r.add(target, Delete)
		}
		r.addStatus(target)
		if len(spec.Attachments) > 0 {
			r.add(target.sub(SubresourceFinalizers), Update)
		}
	}
	r.addKeepers(spec.Retains())
	hooks := ptr.Deref(spec.Hooks, v1alpha1.DecoratorControllerHooks{})
	r.addSelected(hooks.Customize)
	var requester collection
	for i := range spec.Attachments {
		strategy := ptr.Deref(spec.Attachments[i].UpdateStrategy, v1alpha1.DecoratorControllerAttachmentUpdateStrategy{})
		r.addChild(spec.Attachments[i].ResourceRule, strategy.Method, &requester)
	}
	return Needs{
		Kinds: r.list, Related: related(hooks.Customize), Requester: requester.list,
		Credentials: credentials(spec.EndpointConfigs, hooks.Customize, hooks.Sync, hooks.Finalize),
	}
}

// addChild adds what is done with children or attachments of a kind. Which are not desired any more are deleted whatever the method
// is; adoption, release and server-side apply are patches; other updates, and the dry runs before a child is recreated, replace. What the
// cluster looks for at whoever wrote them is added to requester.
func (r *collection) addChild(rule v1alpha1.ResourceRule, method v1alpha1.ChildUpdateMethod, requester *collection) {
	child := on(rule)
	r.add(child, Get, List, Watch, Create, Patch, Delete)
	if method != "" && method != v1alpha1.ChildUpdateOnDelete {
		r.add(child, Update)
	}
	r.addAll(guarded[resourceOf(child)])
	requester.addAll(requesters[resourceOf(child)])
}

// addKeepers adds what it takes to make namespaces own children that stay without their parent.
func (r *collection) addKeepers(retains bool) {
	if retains {
		r.add(Right{Resource: "namespaces"}, Get)
	}
}

// addStatus adds what writing the status of parents or targets of a kind takes.
func (r *collection) addStatus(of Right) {
	r.add(of.sub(SubresourceStatus), Patch)
	r.addAll(guardedStatuses[resourceOf(of)])
}

// addSelected adds reading what an inline customize hook selects. The kinds are literal, and which objects are selected is not. A template that
// cannot be read is refused for that.
func (r *collection) addSelected(customize *v1alpha1.Hook) {
	if customize == nil || customize.Inline == nil {
		return
	}
	for i := range customize.Inline.RelatedResources {
		var selected map[string]any // As the hook is read: a struct would take its fields in any case of their letters.
		if err := json.Unmarshal(customize.Inline.RelatedResources[i].Template.Raw, &selected); err != nil {
			continue
		}
		apiVersion, _ := selected["apiVersion"].(string)
		resource, _ := selected["resource"].(string)
		r.add(on(v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource}), Get, List, Watch)
		if selected["namespaceSelector"] != nil {
			r.add(Right{Resource: "namespaces"}, Get, List, Watch)
		}
	}
}

// related returns the rights on what a customize webhook may name, which is any kind.
func related(customize *v1alpha1.Hook) []Right {
	var r collection
	if customize != nil && customize.Inline == nil {
		r.add(Right{Group: "*", Resource: "*"}, Get, List, Watch)
	}
	return r.list
}

// credentials returns the rights on what calls of hooks carry, and on what decides whom they trust.
func credentials(endpoints []v1alpha1.EndpointConfig, hooks ...*v1alpha1.Hook) []Right {
	var r collection
	for _, hook := range hooks {
		if hook != nil && hook.Webhook != nil {
			r.addSecurity(&hook.Webhook.WebhookSecurity)
		}
	}
	for i := range endpoints {
		r.addSecurity(&endpoints[i].WebhookSecurity)
	}
	return r.list
}

// addSecurity adds the Secrets and ConfigMaps whose content is sent to a hook, or decides whom a call trusts.
func (r *collection) addSecurity(s *v1alpha1.WebhookSecurity) {
	s.EachReference(func(_, _, kind, namespace, name string, _ ...string) {
		r.add(Right{Resource: strings.ToLower(kind) + "s", Namespace: namespace, Name: name}, List, Watch)
	})
}

// on returns the resource of a rule, without a verb.
func on(rule v1alpha1.ResourceRule) Right {
	gv, err := schema.ParseGroupVersion(rule.APIVersion)
	if err != nil {
		// Nobody but who may do everything may do something in a group of such a name.
		gv.Group = rule.APIVersion
	}
	return Right{Group: gv.Group, Resource: rule.Resource}
}

func resourceOf(r Right) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

func (r Right) sub(resource string) Right {
	r.Subresource = resource
	return r
}

// String names what the right is on, as in "deployments.apps/status".
func (r Right) String() string {
	if r.Resource == "*" && r.Group == "*" {
		return "all resources"
	}
	text := schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	switch {
	case r.Name != "":
		text += " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
	case r.Namespace != "":
		text += " in namespace " + r.Namespace
	}
	return text
}

// Lines joins the verbs of each object, as in "list, watch pods". The objects are in the order in which they come first.
func Lines(list []Right) []string {
	var objects []Right
	verbs := map[Right][]string{}
	for _, r := range list {
		on := r.Object()
		if verbs[on] == nil {
			objects = append(objects, on)
		}
		verbs[on] = append(verbs[on], r.Verb)
	}
	lines := make([]string, 0, len(objects))
	for _, on := range objects {
		lines = append(lines, strings.Join(verbs[on], ", ")+" "+on.String())
	}
	return lines
}

// Verbs that API servers ask for beside that of the request, and Escalate.
const (
	bind   = "bind"
	attest = "attest"
	sign   = "sign"
)

const (
	groupRBAC         = "rbac.authorization.k8s.io"
	groupCertificates = "certificates.k8s.io"
	groupAdmission    = "admissionregistration.k8s.io"
	groupDevices      = "resource.k8s.io"

	// revisions are the resource of ControllerRevisions.
	revisions = "controllerrevisions"
	// signingRequests are the resource of CertificateSigningRequests.
	signingRequests = "certificatesigningrequests"
	// claims are the resource of ResourceClaims.
	claims = "resourceclaims"
)

// guarded are the resources at which an API server asks for one more right than that of the request, because their objects give
// rights. It asks it of who makes the request: this server, or the controller's service account.
var guarded = map[schema.GroupResource][]Right{
	{Group: groupRBAC, Resource: "roles"}:        {{Verb: Escalate, Group: groupRBAC, Resource: "roles"}},
	{Group: groupRBAC, Resource: "clusterroles"}: {{Verb: Escalate, Group: groupRBAC, Resource: "clusterroles"}},
	{Group: groupRBAC, Resource: "rolebindings"}: {
		{Verb: bind, Group: groupRBAC, Resource: "roles"}, {Verb: bind, Group: groupRBAC, Resource: "clusterroles"},
	},
	{Group: groupRBAC, Resource: "clusterrolebindings"}:         {{Verb: bind, Group: groupRBAC, Resource: "clusterroles"}},
	{Group: groupCertificates, Resource: "clustertrustbundles"}: {{Verb: attest, Group: groupCertificates, Resource: "signers"}},
	{Group: v1alpha1.GroupName, Resource: "compositecontrollers"}: {
		{Verb: Escalate, Group: v1alpha1.GroupName, Resource: "compositecontrollers"},
	},
	{Group: v1alpha1.GroupName, Resource: "decoratorcontrollers"}: {
		{Verb: Escalate, Group: v1alpha1.GroupName, Resource: "decoratorcontrollers"},
	},
	{Group: v1alpha1.GroupName, Resource: revisions}: {{Verb: Escalate, Group: v1alpha1.GroupName, Resource: revisions}},
}

// guardedStatuses are the resources of which the same is true when their status is written. The signer of a certificate and the driver of a device
// are in the object, so that the right is on all of them. Approvals have a subresource that the engine does not write.
var guardedStatuses = map[schema.GroupResource][]Right{
	{Group: groupCertificates, Resource: signingRequests}:          {{Verb: sign, Group: groupCertificates, Resource: "signers"}},
	{Group: groupCertificates, Resource: "podcertificaterequests"}: {{Verb: sign, Group: groupCertificates, Resource: "signers"}},
	{Group: groupDevices, Resource: claims}: {
		{Verb: Patch, Group: groupDevices, Resource: claims, Subresource: "binding"},
		{Verb: "arbitrary-node:" + Patch, Group: groupDevices, Resource: claims, Subresource: "driver"},
	},
}

// requesters are the resources whose objects act with the rights of who wrote them, by what they say. The kube-controller-manager approves the
// certificate of a node if the user whom the API server recorded in spec.username has the right to that; an API server asks whether the user may
// read the kind of a policy's parameters, which may be any.
var requesters = map[schema.GroupResource][]Right{
	{Group: groupCertificates, Resource: signingRequests}: {
		{Verb: Create, Group: groupCertificates, Resource: signingRequests, Subresource: "nodeclient"},
		{Verb: Create, Group: groupCertificates, Resource: signingRequests, Subresource: "selfnodeclient"},
	},
	{Group: groupAdmission, Resource: "validatingadmissionpolicies"}:       {everything(Get)},
	{Group: groupAdmission, Resource: "mutatingadmissionpolicies"}:         {everything(Get)},
	{Group: groupAdmission, Resource: "validatingadmissionpolicybindings"}: {everything(Get), everything(List)},
	{Group: groupAdmission, Resource: "mutatingadmissionpolicybindings"}:   {everything(Get), everything(List)},
}

func everything(verb string) Right { return Right{Verb: verb, Group: "*", Resource: "*"} }

// Guarded returns the rights beside that of the request for which the cluster looks at who writes objects of a resource, because of what these
// objects give. It returns nil for other resources.
func Guarded(r schema.GroupResource) []Right { return slices.Concat(guarded[r], requesters[r]) }

// Guards reports whether a right is on no kind of a definition, but on what objects of such a kind give.
func Guards(r Right) bool {
	for _, table := range []map[schema.GroupResource][]Right{guarded, guardedStatuses} {
		for _, list := range table {
			if slices.Contains(list, r) {
				return true
			}
		}
	}
	return false
}

// Account names a service account. It is comparable.
type Account struct {
	// Namespace and Name are those of the object.
	Namespace, Name string
}

// AccountOf returns the account that a controller names, nil if it names none.
func AccountOf(ref *v1alpha1.ServiceAccountReference) *Account {
	if ref == nil {
		return nil
	}
	return &Account{Namespace: ref.Namespace, Name: ref.Name}
}

// ParseAccount reads NAMESPACE/NAME. It returns nil for an empty text.
func ParseAccount(text string) (*Account, error) {
	if text == "" {
		return nil, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q is not NAMESPACE/NAME", text)
	}
	return &Account{Namespace: namespace, Name: name}, nil
}

const (
	// userPrefix, with namespace and name behind it, is the user name of a service account.
	userPrefix = "system:serviceaccount:"
	// serviceAccounts are the resource of service accounts.
	serviceAccounts = "serviceaccounts"
)

// User returns the user name that API servers know the account by.
func (a Account) User() string { return userPrefix + a.Namespace + ":" + a.Name }

// Groups returns the groups that API servers put the account into.
func (a Account) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}
}

// String returns namespace/name.
func (a Account) String() string { return a.Namespace + "/" + a.Name }

// Get returns the right to see whether the account exists.
func (a Account) Get() Right {
	return Right{Verb: "get", Resource: serviceAccounts, Namespace: a.Namespace, Name: a.Name}
}

// Impersonate returns the right to act as the account.
func (a Account) Impersonate() Right {
	return Right{Verb: "impersonate", Resource: serviceAccounts, Namespace: a.Namespace, Name: a.Name}
}
