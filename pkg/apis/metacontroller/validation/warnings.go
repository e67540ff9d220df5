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
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// WarningsForCompositeController tells what in a valid CompositeController has no effect, or will keep it from running.
func WarningsForCompositeController(o *metacontroller.CompositeController) []string {
	path := field.NewPath("spec")
	var w warnings
	rules := make([]metacontroller.ResourceRule, 0, len(o.Spec.ChildResources))
	for i := range o.Spec.ChildResources {
		rules = append(rules, o.Spec.ChildResources[i].ResourceRule)
		w.aboutStrategy(o.Spec.ChildResources[i].UpdateStrategy, path.Child("childResources").Index(i).Child("updateStrategy"))
	}
	w.aboutDuplicates(rules, path.Child("childResources"))
	w.aboutResync(o.Spec.ResyncPeriodSeconds, path)
	hooks := o.Spec.Hooks
	if hooks == nil {
		w.add(path.Child("hooks"), "without a sync or finalize hook the controller does not start")
		return w
	}
	w.aboutHooks(hooks.Sync, hooks.Finalize, hooks.Customize, path.Child("hooks"))
	if hooks.PreUpdateChild != nil {
		w.add(path.Child("hooks", "preUpdateChild"), "has no effect: this hook is never called")
	}
	if hooks.PostUpdateChild != nil {
		w.add(path.Child("hooks", "postUpdateChild"), "has no effect: this hook is never called")
	}
	return w
}

// WarningsForDecoratorController tells what in a valid DecoratorController has no effect, or will keep it from running.
func WarningsForDecoratorController(o *metacontroller.DecoratorController) []string {
	path := field.NewPath("spec")
	var w warnings
	if len(o.Spec.Resources) == 0 {
		w.add(path.Child("resources"), "no resources are named, so the controller does nothing")
	}
	rules := make([]metacontroller.ResourceRule, 0, len(o.Spec.Attachments))
	for i, rule := range o.Spec.Attachments {
		rules = append(rules, rule.ResourceRule)
		if strategy := rule.UpdateStrategy; strategy != nil {
			w.aboutForce(strategy.Apply, strategy.Force, path.Child("attachments").Index(i).Child("updateStrategy"))
		}
	}
	w.aboutDuplicates(rules, path.Child("attachments"))
	w.aboutResync(o.Spec.ResyncPeriodSeconds, path)
	hooks := o.Spec.Hooks
	if hooks == nil {
		w.add(path.Child("hooks"), "without a sync or finalize hook the controller does not start")
		return w
	}
	w.aboutHooks(hooks.Sync, hooks.Finalize, hooks.Customize, path.Child("hooks"))
	return w
}

// warnings collects warnings in the form in which clients print them.
type warnings []string

func (w *warnings) add(path *field.Path, message string) {
	*w = append(*w, path.String()+": "+message)
}

func (w *warnings) aboutDuplicates(rules []metacontroller.ResourceRule, path *field.Path) {
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

func (w *warnings) aboutStrategy(strategy *metacontroller.CompositeControllerChildUpdateStrategy, path *field.Path) {
	if strategy == nil {
		return
	}
	rolling := strategy.Method == metacontroller.ChildUpdateRollingInPlace ||
		strategy.Method == metacontroller.ChildUpdateRollingRecreate
	checks := len(strategy.StatusChecks.Conditions) > 0
	switch {
	case rolling && !checks:
		w.add(path.Child("statusChecks"), "without status checks a rolling update goes on even if updated children fail")
	case !rolling && checks:
		w.add(path.Child("statusChecks"), "have no effect without a rolling method")
	}
	if !rolling && strategy.MaxUnavailable != nil {
		w.add(path.Child("maxUnavailable"), "has no effect without a rolling method")
	}
	w.aboutForce(strategy.Apply, strategy.Force, path)
}

func (w *warnings) aboutForce(apply metacontroller.ChildApplyStrategy, force *bool, path *field.Path) {
	if force != nil && apply == metacontroller.ChildApplyMerge {
		w.add(path.Child("force"), "has no effect with apply: Merge")
	}
}

func (w *warnings) aboutResync(seconds *int32, path *field.Path) {
	if seconds != nil && *seconds < 1 {
		w.add(path.Child("resyncPeriodSeconds"), "values below 1 count as 1")
	}
}

func (w *warnings) aboutHooks(sync, finalize, customize *metacontroller.Hook, path *field.Path) {
	if !called(sync) && !called(finalize) {
		w.add(path, "without a sync or finalize hook that has a webhook the controller does not start")
	}
	w.aboutHook(sync, path.Child("sync"))
	w.aboutHook(finalize, path.Child("finalize"))
	w.aboutHook(customize, path.Child("customize"))
}

func called(hook *metacontroller.Hook) bool {
	return hook != nil && hook.Webhook != nil
}

func (w *warnings) aboutHook(hook *metacontroller.Hook, path *field.Path) {
	if hook == nil {
		return
	}
	if hook.Webhook == nil {
		w.add(path.Child("webhook"), "without a webhook the hook is switched off")
		return
	}
	webhook, at := hook.Webhook, path.Child("webhook")
	switch {
	case webhook.URL != nil:
		if webhook.Service != nil || webhook.Path != nil {
			w.add(at.Child("service"), "service and path have no effect, because url is set")
		}
	case webhook.Service == nil || webhook.Path == nil:
		w.add(at, "either url, or both service and path, must be set: the controller does not start")
	default:
		w.aboutService(webhook.Service, *webhook.Path, at)
	}
	if webhook.Timeout != nil && webhook.Timeout.Duration <= 0 {
		w.add(at.Child("timeout"), "values of 0 or less mean the default of 10s")
	}
}

func (w *warnings) aboutService(service *metacontroller.ServiceReference, path string, at *field.Path) {
	if !strings.HasPrefix(path, "/") {
		w.add(at.Child("path"), "does not start with a slash: calls of the webhook will fail")
	}
	if service.Protocol != nil && !strings.EqualFold(*service.Protocol, "http") && !strings.EqualFold(*service.Protocol, "https") {
		w.add(at.Child("service", "protocol"), "is neither http nor https: calls of the webhook will fail")
	}
	if service.Port != nil && (*service.Port < 1 || *service.Port > 65535) {
		w.add(at.Child("service", "port"), "is not between 1 and 65535: calls of the webhook will fail")
	}
}
