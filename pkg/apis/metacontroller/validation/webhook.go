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
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// validateHooks checks the hooks that are called; preUpdateChild and postUpdateChild are not.
func validateHooks(sync, finalize, customize *v1alpha1.Hook, path *field.Path) field.ErrorList {
	errs := validateHook(sync, path.Child("sync"))
	errs = append(errs, validateHook(finalize, path.Child("finalize"))...)
	if finalize != nil && finalize.Webhook == nil {
		// With Metacontroller this adds a finalizer to every parent that nothing ever removes (docs/reference/contract.md#s15).
		errs = append(errs, field.Required(path.Child("finalize", "webhook"),
			"a finalize hook needs a webhook, which decides when objects may go"))
	}
	return append(errs, validateHook(customize, path.Child("customize"))...)
}

func validateHook(hook *v1alpha1.Hook, path *field.Path) field.ErrorList {
	if hook == nil || hook.Webhook == nil {
		return nil
	}
	webhook, at := hook.Webhook, path.Child("webhook")
	errs := validateAddress(webhook, at)
	errs = append(errs, validateTimeout(webhook.Timeout, at.Child("timeout"))...)
	errs = append(errs, validateSecurity(&webhook.WebhookSecurity, at)...)
	return append(errs, validateCredentials(&webhook.WebhookSecurity, at)...)
}

const (
	// longTimeout is more than a hook should ever need.
	longTimeout = 5 * time.Minute
	// maxTimeout is refused beyond: a call occupies one of the controller's workers until it ends
	// (docs/reference/compatibility.md#v-timeout).
	maxTimeout = time.Hour
)

func validateTimeout(timeout *metav1.Duration, path *field.Path) field.ErrorList {
	if timeout == nil || timeout.Duration <= maxTimeout {
		return nil
	}
	return field.ErrorList{field.Invalid(path, timeout.Duration.String(),
		"must be no more than 1h, because a call occupies one of the controller's workers until it ends")}
}

// validateEndpointConfigs checks all of those entries that a hook uses. Metacontroller does not read the others, so that a controller
// may run with whatever is in them.
func validateEndpointConfigs(configs []v1alpha1.EndpointConfig, path *field.Path, hooks ...*v1alpha1.Hook) field.ErrorList {
	configs = bounded(configs)
	used := sets.New[int]()
	for _, hook := range hooks {
		if called(hook) {
			used.Insert(endpointOf(hook.Webhook, configs))
		}
	}
	var errs field.ErrorList
	for i := range configs {
		errs = append(errs, validateSecurity(&configs[i].WebhookSecurity, path.Index(i))...)
		if used.Has(i) {
			errs = append(errs, validateCredentials(&configs[i].WebhookSecurity, path.Index(i))...)
		}
	}
	return errs
}

// MalformedDurations finds the timeouts of webhooks that are not durations, such as 1d, in an object as JSON or YAML. They are looked for before
// the object is decoded, since decoding fails without naming the field. Nothing is found in what is neither JSON nor YAML.
func MalformedDurations(data []byte) field.ErrorList {
	var tree any
	if json.Unmarshal(data, &tree) != nil && yaml.Unmarshal(data, &tree) != nil {
		return nil
	}
	// Everything that is a webhook's is there. A ControllerRevision has fields of other kinds elsewhere.
	object, _ := tree.(map[string]any) // Reading a nil map is fine.
	errs := walkDurations(object["spec"], field.NewPath("spec"))
	slices.SortFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
	return errs
}

func walkDurations(node any, path *field.Path) field.ErrorList {
	object, ok := node.(map[string]any)
	if !ok {
		return nil
	}
	var errs field.ErrorList
	for key, value := range object {
		at := path.Child(key)
		if webhook, ok := value.(map[string]any); ok && key == "webhook" {
			if err := checkDuration(webhook["timeout"]); err != nil {
				errs = append(errs, field.Invalid(at.Child("timeout"), webhook["timeout"], err.Error()))
			}
		}
		errs = append(errs, walkDurations(value, at)...)
	}
	return errs
}

var errDuration = errors.New(`must be a duration in hours, minutes and seconds, such as "1h30m", "90s" or "500ms"`)

func checkDuration(value any) error {
	if value == nil {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return errDuration
	}
	if _, err := time.ParseDuration(text); err != nil {
		return errDuration
	}
	return nil
}
