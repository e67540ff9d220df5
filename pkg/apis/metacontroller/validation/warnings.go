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

package validation

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// WarningsForCompositeController tells what in a valid CompositeController has no effect, will keep it from running, or is
// dangerous.
func WarningsForCompositeController(o *metacontroller.CompositeController) []string {
	path := field.NewPath("spec")
	var w warnings
	w.aboutParent(&o.Spec, path.Child("parentResource"))
	rules := make([]v1alpha1.ResourceRule, 0, len(o.Spec.ChildResources))
	for i := range o.Spec.ChildResources {
		rules = append(rules, o.Spec.ChildResources[i].ResourceRule)
		w.aboutStrategy(o.Spec.ChildResources[i].UpdateStrategy, path.Child("childResources").Index(i).Child("updateStrategy"))
	}
	w.aboutDuplicates(rules, path.Child("childResources"))
	w.aboutChildren(rules, path.Child("childResources"))
	if parent, ok := groupResource(o.Spec.ParentResource.ResourceRule); ok {
		w.aboutRecursion(rules, path.Child("childResources"), sets.New(parent), "spec.parentResource.labelSelector")
	}
	w.aboutResync(o.Spec.ResyncPeriodSeconds, path)
	hooks := o.Spec.Hooks
	if hooks == nil {
		w.add(path.Child("hooks"), withoutHooks)
		return w
	}
	w.aboutHooks(hooks.Sync, hooks.Finalize, hooks.Customize, o.Spec.EndpointConfigs)
	if hooks.PreUpdateChild != nil {
		w.add(path.Child("hooks", "preUpdateChild"), "has no effect: this hook is never called")
	}
	if hooks.PostUpdateChild != nil {
		w.add(path.Child("hooks", "postUpdateChild"), "has no effect: this hook is never called")
	}
	return w
}

// WarningsForDecoratorController tells what in a valid DecoratorController has no effect, will keep it from running, or is
// dangerous.
func WarningsForDecoratorController(o *metacontroller.DecoratorController) []string {
	path := field.NewPath("spec")
	var w warnings
	if len(o.Spec.Resources) == 0 {
		w.add(path.Child("resources"), "no resources are named, so the controller does nothing")
	}
	targets := sets.New[schema.GroupResource]()
	for i := range o.Spec.Resources {
		rule := o.Spec.Resources[i].ResourceRule
		w.aboutHandled(rule, path.Child("resources").Index(i))
		if resource, ok := groupResource(rule); ok {
			targets.Insert(resource)
		}
	}
	rules := make([]v1alpha1.ResourceRule, 0, len(o.Spec.Attachments))
	for i, rule := range o.Spec.Attachments {
		rules = append(rules, rule.ResourceRule)
		if strategy := rule.UpdateStrategy; strategy != nil {
			w.aboutForce(strategy.Apply, strategy.Force, path.Child("attachments").Index(i).Child("updateStrategy"))
		}
	}
	w.aboutDuplicates(rules, path.Child("attachments"))
	w.aboutChildren(rules, path.Child("attachments"))
	w.aboutRecursion(rules, path.Child("attachments"), targets, "the selectors in spec.resources")
	w.aboutResync(o.Spec.ResyncPeriodSeconds, path)
	hooks := o.Spec.Hooks
	if hooks == nil {
		w.add(path.Child("hooks"), withoutHooks)
		return w
	}
	w.aboutHooks(hooks.Sync, hooks.Finalize, hooks.Customize, o.Spec.EndpointConfigs)
	return w
}

// WarningsForControllerRevision tells what in a valid ControllerRevision says the same twice.
func WarningsForControllerRevision(o *metacontroller.ControllerRevision) []string {
	var w warnings
	kinds := sets.New[schema.GroupKind]()
	for i, children := range o.Children {
		at := field.NewPath("children").Index(i)
		kind := schema.GroupKind{Group: children.APIGroup, Kind: children.Kind}
		if kinds.Has(kind) {
			w.add(at, kind.String()+" is listed above")
		}
		kinds.Insert(kind)
		names := sets.New[string]()
		for j, name := range children.Names {
			if names.Has(name) {
				w.add(at.Child("names").Index(j), "is listed above")
				break
			}
			names.Insert(name)
		}
	}
	return w
}

// warnings collects warnings in the form in which clients print them.
type warnings []string

func (w *warnings) add(path *field.Path, message string) {
	*w = append(*w, path.String()+": "+message)
}

func (w *warnings) aboutParent(spec *v1alpha1.CompositeControllerSpec, path *field.Path) {
	w.aboutHandled(spec.ParentResource.ResourceRule, path)
	history := spec.ParentResource.RevisionHistory
	if history == nil {
		return
	}
	at := path.Child("revisionHistory", "fieldPaths")
	if !slices.ContainsFunc(spec.ChildResources, func(r v1alpha1.CompositeControllerChildResourceRule) bool { return rolls(&r) }) {
		if len(history.FieldPaths) == 0 {
			at = path.Child("revisionHistory", "limit")
		}
		if len(history.FieldPaths) > 0 || history.Limit != nil {
			w.add(at, "has no effect without a child resource that has a rolling update strategy")
		}
		return
	}
	for i, fieldPath := range bounded(history.FieldPaths) {
		w.aboutFieldPath(history.FieldPaths, i, at.Index(i))
		switch head, _, _ := strings.Cut(fieldPath, "."); {
		case head == "status":
			w.add(at.Index(i), "changes while a rollout goes on, so that one rollout starts the next")
		case fieldPath == "metadata":
			w.add(at.Index(i), "changes with every write of the parent, so that one rollout starts the next")
		case strings.ContainsAny(fieldPath, "[]*"):
			w.add(at.Index(i), "names no field: items of lists cannot be selected")
		}
	}
}

// aboutFieldPath warns of a path that another one contains, or repeats.
func (w *warnings) aboutFieldPath(all []string, i int, path *field.Path) {
	for j, other := range all {
		switch {
		case other == all[i] && j < i:
			w.add(path, "is listed above")
			return
		case strings.HasPrefix(all[i], other+"."):
			w.add(path, "is part of "+cut(other)+", which is listed too")
			return
		}
	}
}

// aboutHandled warns of parents and targets that the server itself has to do with.
func (w *warnings) aboutHandled(rule v1alpha1.ResourceRule, path *field.Path) {
	resource, _ := groupResource(rule)
	switch {
	case own(rule, compositeControllers, decoratorControllers):
		w.add(path, "the server writes the status of these objects itself, and replaces what a hook returns as status")
	case own(rule, controllerRevisions):
		w.add(path, "the server creates and deletes these objects itself")
	case resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io"):
		w.add(path, "the server creates events about what it handles, and would handle those too")
	}
}

// rights are resources whose objects are rights, or as good as rights, and what they let one do.
var rights = []struct {
	group     string
	resources []string
	can       string
}{
	{"rbac.authorization.k8s.io", []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, "grant any right"},
	{"admissionregistration.k8s.io", []string{
		"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "mutatingadmissionpolicies",
		"mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
	}, "change what the cluster admits"},
	{"certificates.k8s.io", []string{"certificatesigningrequests"}, "request certificates of the cluster, also those of its nodes"},
	{"certificates.k8s.io", []string{"clustertrustbundles"}, "say whom Pods trust"},
	{"apiextensions.k8s.io", []string{"customresourcedefinitions"}, "change which kinds the cluster serves"},
	{"apiregistration.k8s.io", []string{"apiservices"}, "change which kinds the cluster serves"},
	{v1alpha1.GroupName, []string{compositeControllers, decoratorControllers}, "run controllers with the rights of this server"},
}

// aboutChildren warns of children and attachments that are more than objects.
func (w *warnings) aboutChildren(rules []v1alpha1.ResourceRule, path *field.Path) {
	for i, rule := range rules {
		resource, _ := groupResource(rule)
		for _, right := range rights {
			if resource.Group == right.group && slices.Contains(right.resources, resource.Resource) {
				w.add(path.Index(i), "whoever decides what the hook returns can "+right.can)
			}
		}
		if own(rule, controllerRevisions) {
			w.add(path.Index(i), "the server creates and deletes these objects itself")
		}
	}
}

// aboutRecursion warns of children that are parents; validation has seen to it that there is a selector.
func (w *warnings) aboutRecursion(rules []v1alpha1.ResourceRule, path *field.Path, parents sets.Set[schema.GroupResource], selector string) {
	for i, rule := range rules {
		if resource, ok := groupResource(rule); ok && parents.Has(resource) {
			w.add(path.Index(i), "those that match "+selector+" would have children of their own")
		}
	}
}

func (w *warnings) aboutDuplicates(rules []v1alpha1.ResourceRule, path *field.Path) {
	seen := map[schema.GroupResource]bool{}
	for i, rule := range rules {
		resource, ok := groupResource(rule)
		if !ok {
			continue
		}
		if seen[resource] {
			w.add(path.Index(i), fmt.Sprintf("%s is named above; the update strategy of its last entry is used", resource))
		}
		seen[resource] = true
	}
}

func (w *warnings) aboutStrategy(strategy *v1alpha1.CompositeControllerChildUpdateStrategy, path *field.Path) {
	if strategy == nil {
		return
	}
	rolling := rolls(&v1alpha1.CompositeControllerChildResourceRule{UpdateStrategy: strategy})
	checks := strategy.StatusChecks.Conditions
	switch {
	case rolling && len(checks) == 0:
		w.add(path.Child("statusChecks"), "without status checks a rolling update goes on even if updated children fail")
	case !rolling && len(checks) > 0:
		w.add(path.Child("statusChecks"), "have no effect without a rolling method")
	default:
		w.aboutStatusChecks(checks, path.Child("statusChecks", "conditions"))
	}
	if !rolling && strategy.MaxUnavailable != nil {
		w.add(path.Child("maxUnavailable"), "has no effect without a rolling method")
	}
	w.aboutForce(strategy.Apply, strategy.Force, path)
}

// aboutStatusChecks warns of checks that no child passes.
func (w *warnings) aboutStatusChecks(checks []v1alpha1.StatusConditionCheck, path *field.Path) {
	demanded := map[string]string{}
	for i, check := range checks {
		status := ptr.Deref(check.Status, "")
		if status == "" {
			continue
		}
		if !slices.Contains([]string{"True", "False", "Unknown"}, status) {
			w.add(path.Index(i).Child("status"), "conditions are True, False or Unknown: a rolling update would wait for ever")
		} else if other := demanded[check.Type]; other != "" && other != status {
			w.add(path.Index(i).Child("status"), "contradicts a check above: a rolling update would wait for ever")
		}
		demanded[check.Type] = status
	}
}

func (w *warnings) aboutForce(apply v1alpha1.ChildApplyStrategy, force *bool, path *field.Path) {
	if force != nil && apply == v1alpha1.ChildApplyMerge {
		w.add(path.Child("force"), "has no effect with apply: Merge")
	}
}

func (w *warnings) aboutResync(seconds *int32, path *field.Path) {
	if seconds != nil && *seconds < 1 {
		w.add(path.Child("resyncPeriodSeconds"), "values below 1 count as 1")
	}
}

// withoutHooks is the warning of a definition that has neither a sync nor a finalize hook.
const withoutHooks = "without a sync or finalize hook the controller does not start"

func (w *warnings) aboutHooks(sync, finalize, customize *v1alpha1.Hook, endpoints []v1alpha1.EndpointConfig) {
	path := field.NewPath("spec", "hooks")
	switch {
	case sync == nil && finalize == nil:
		w.add(path, withoutHooks)
	case !decides(sync) && !decides(finalize):
		w.add(path, "without a sync or finalize hook that has a webhook every sync fails")
	case !decides(sync):
		w.add(path.Child("sync"), "without a sync hook that has a webhook every sync fails of a parent that is selected and not being deleted")
	}
	used := make([]bool, len(endpoints))
	for _, hook := range []struct {
		*v1alpha1.Hook
		at *field.Path
	}{{sync, path.Child("sync")}, {finalize, path.Child("finalize")}, {customize, path.Child("customize")}} {
		switch {
		case hook.Hook == nil:
		case hook.Webhook == nil && hook.Inline != nil:
			// The default is set beside inline, too, so that nothing is known of an author who sets it.
			if v := hook.Version; v != nil && *v != v1alpha1.HookVersionV1 {
				w.add(hook.at.Child("version"), "has no effect beside inline: it is the version of the protocol of webhooks")
			}
		case hook.Webhook == nil:
			w.add(hook.at.Child("webhook"), "without a webhook the hook is switched off")
		default:
			w.aboutWebhook(hook.Webhook, hook.at.Child("webhook"))
			w.aboutSecurity(hook.Webhook, hook.at.Child("webhook"), []*v1alpha1.Hook{sync, finalize, customize}, endpoints, used)
		}
	}
	w.aboutEndpoints(endpoints, used)
}

func called(hook *v1alpha1.Hook) bool {
	return hook != nil && hook.Webhook != nil
}

// decides reports whether a hook gives responses: as a webhook, or inline.
func decides(hook *v1alpha1.Hook) bool {
	return called(hook) || hook != nil && hook.Inline != nil
}

func (w *warnings) aboutWebhook(webhook *v1alpha1.Webhook, at *field.Path) {
	if webhook.URL != nil {
		if webhook.Service != nil || webhook.Path != nil {
			w.add(at.Child("service"), "service and path have no effect, because url is set")
		}
		w.aboutURL(addressOf(webhook), at.Child("url"))
	} else if webhook.Service != nil && webhook.Path != nil {
		w.aboutService(webhook.Service, *webhook.Path, at)
	}
	if timeout := webhook.Timeout; timeout != nil {
		switch {
		case timeout.Duration <= 0:
			w.add(at.Child("timeout"), "values of 0 or less mean the default of 10s")
		case timeout.Duration > longTimeout:
			w.add(at.Child("timeout"), "a call that hangs occupies one of the controller's workers for so long")
		}
	}
	w.aboutEtag(webhook.Etag, at.Child("etag"))
}

func (w *warnings) aboutURL(address *url.URL, at *field.Path) {
	if address == nil {
		return
	}
	if address.User != nil {
		w.add(at, "holds a user or password, which every reader of the controller sees: use basicAuth")
	}
	if address.Fragment != "" {
		w.add(at, "what follows # is not sent")
	}
	host := address.Hostname()
	ip, err := netip.ParseAddr(host)
	if err != nil && host != "" && !strings.Contains(host, ".") && !strings.EqualFold(host, "localhost") {
		w.add(at, host+" is looked up in the namespace of this server: write "+host+".NAMESPACE")
	}
	if err == nil && (ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast()) {
		w.add(at, "no hook should be at a link-local or unspecified address: clouds serve credentials of nodes at such")
	}
}

func (w *warnings) aboutService(service *v1alpha1.ServiceReference, path string, at *field.Path) {
	if service.Name != strings.ToLower(service.Name) {
		w.add(at.Child("service", "name"), "names of Services are in lower case")
	}
	if service.Namespace != strings.ToLower(service.Namespace) {
		w.add(at.Child("service", "namespace"), "names of namespaces are in lower case")
	}
	if strings.ContainsAny(path, "?#@") || slices.Contains(strings.Split(path, "/"), "..") {
		w.add(at.Child("path"), "has ?, #, @ or .. in it, and is used as it is: such an address belongs into url")
	}
}

func (w *warnings) aboutEtag(etag *v1alpha1.WebhookEtagConfig, at *field.Path) {
	if etag == nil {
		return
	}
	if !ptr.Deref(etag.Enabled, false) {
		if etag.CacheTimeoutSeconds != nil || etag.CacheCleanupSeconds != nil {
			w.add(at, "has no effect without enabled: true")
		}
		return
	}
	if seconds := etag.CacheTimeoutSeconds; seconds != nil && *seconds < 1 {
		w.add(at.Child("cacheTimeoutSeconds"), "values below 1 mean that responses do not expire")
	}
	if seconds := etag.CacheCleanupSeconds; seconds != nil && *seconds < 1 {
		w.add(at.Child("cacheCleanupSeconds"), "has no effect: expired responses are dropped without it")
	}
}

// aboutSecurity warns of what the addresses make useless or dangerous, and marks the endpoint that is used. An endpoint may be that of several
// hooks, by http and by https.
func (w *warnings) aboutSecurity(
	webhook *v1alpha1.Webhook, at *field.Path, hooks []*v1alpha1.Hook, endpoints []v1alpha1.EndpointConfig, used []bool,
) {
	security, users := &webhook.WebhookSecurity, []*v1alpha1.Webhook{webhook}
	if i := endpointOf(webhook, endpoints); i >= 0 {
		if used[i] {
			return // Said already.
		}
		used[i], users = true, nil
		for _, hook := range hooks {
			if called(hook) && endpointOf(hook.Webhook, endpoints) == i {
				users = append(users, hook.Webhook)
			}
		}
		security, at = &endpoints[i].WebhookSecurity, field.NewPath("spec", "endpointConfigs").Index(i)
	}
	w.aboutValues(security, at)
	plain, secure, redirected := false, false, false
	for _, user := range users {
		switch address := addressOf(user); {
		case address == nil:
		case address.Scheme == "http":
			plain = true
			// From there a redirect to https is followed, with the same TLS settings.
			redirected = redirected || address.Port() == "" || address.Port() == "80"
		default:
			secure = true
		}
	}
	if !plain {
		return
	}
	unused, readable := "has no effect, because the hook is not called by https", "is sent unencrypted, because the hook is not called by https"
	if redirected {
		unused = "has no effect unless the hook redirects to https, because it is not called by https"
	}
	for _, setting := range []struct {
		set           bool
		name, message string
	}{
		{security.CABundle != nil && !secure, "caBundle", unused},
		{security.ClientTLS != nil && !secure, "clientTLS", unused},
		{security.Authorization != nil, "authorization", readable},
		{security.BasicAuth != nil, "basicAuth", readable},
	} {
		if setting.set {
			w.add(at.Child(setting.name), setting.message)
		}
	}
}

// aboutValues warns of what readers of the controller should not see, and of certificates that are passed over.
func (w *warnings) aboutValues(security *v1alpha1.WebhookSecurity, at *field.Path) {
	if a := security.Authorization; a != nil && strings.ContainsAny(strings.TrimSpace(ptr.Deref(a.Type, "")), " \t:=,;") {
		w.add(at.Child("authorization", "type"), "is more than the name of a scheme, and every reader of the controller sees it")
	}
	if bundle := security.CABundle; bundle != nil && bundle.Inline != nil {
		found, path := readPEM(*bundle.Inline), at.Child("caBundle", "inline")
		if found.keys > 0 {
			w.add(path, "holds a private key, which every reader of the controller sees")
		}
		if found.unusable > 0 {
			w.add(path, "holds blocks that are not certificates or cannot be parsed; they are passed over")
		}
	}
}

func (w *warnings) aboutEndpoints(endpoints []v1alpha1.EndpointConfig, used []bool) {
	path := field.NewPath("spec", "endpointConfigs")
	for i := range bounded(endpoints) {
		above := slices.ContainsFunc(endpoints[:i], func(e v1alpha1.EndpointConfig) bool {
			return strings.EqualFold(e.Host, endpoints[i].Host)
		})
		switch {
		case above:
			w.add(path.Index(i).Child("host"), "is listed above: this entry is never used")
		case strings.ContainsAny(endpoints[i].Host, "/@?#* "):
			w.add(path.Index(i).Child("host"), "is not a host with or without port, and matches no hook")
		case !used[i]:
			w.add(path.Index(i), "no hook of this controller uses this entry")
		case !secures(&endpoints[i].WebhookSecurity):
			w.add(path.Index(i), "sets none of caBundle, clientTLS, authorization and basicAuth")
		}
	}
}
