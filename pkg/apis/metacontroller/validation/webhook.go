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
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
)

// validateHooks checks the hooks that are called; preUpdateChild and postUpdateChild are not.
func validateHooks(sync, finalize, customize *metacontroller.Hook, path *field.Path) field.ErrorList {
	errs := validateHook(sync, path.Child("sync"))
	errs = append(errs, validateHook(finalize, path.Child("finalize"))...)
	if finalize != nil && finalize.Webhook == nil {
		// With Metacontroller this adds a finalizer to every parent that nothing ever removes (docs/reference/contract.md#s15).
		errs = append(errs, field.Required(path.Child("finalize", "webhook"),
			"a finalize hook needs a webhook, which decides when objects may go"))
	}
	return append(errs, validateHook(customize, path.Child("customize"))...)
}

func validateHook(hook *metacontroller.Hook, path *field.Path) field.ErrorList {
	if hook == nil || hook.Webhook == nil {
		return nil
	}
	webhook := path.Child("webhook")
	errs := validateURL(hook.Webhook.URL, webhook.Child("url"))
	return append(errs, validateSecurity(&hook.Webhook.WebhookSecurity, webhook)...)
}

func validateURL(value *string, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	const demand = "must be an absolute URL that starts with http:// or https://"
	address, err := url.Parse(*value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, *value, demand+": "+err.Error())}
	}
	if (address.Scheme != "http" && address.Scheme != "https") || address.Host == "" {
		return field.ErrorList{field.Invalid(path, *value, demand)}
	}
	return nil
}

func validateEndpointConfigs(configs []metacontroller.EndpointConfig, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range configs {
		errs = append(errs, validateSecurity(&configs[i].WebhookSecurity, path.Index(i))...)
	}
	return errs
}

// validateSecurity holds the rules of docs/reference/contract.md#s1.5, docs/reference/contract.md#s2.3, which Metacontroller checks when it starts a controller.
func validateSecurity(security *metacontroller.WebhookSecurity, path *field.Path) field.ErrorList {
	errs := validateCABundle(security.CABundle, path.Child("caBundle"))
	if security.Authorization == nil {
		return errs
	}
	if security.BasicAuth != nil {
		errs = append(errs, field.Forbidden(path.Child("basicAuth"), "must not be set together with authorization"))
	}
	scheme := security.Authorization.Type
	if scheme != nil && strings.EqualFold(strings.TrimSpace(*scheme), "basic") {
		errs = append(errs, field.Invalid(path.Child("authorization", "type"), *scheme,
			"use basicAuth for a user name and a password"))
	}
	return errs
}

func validateCABundle(bundle *metacontroller.CABundle, path *field.Path) field.ErrorList {
	if bundle == nil {
		return nil
	}
	given := 0
	for _, set := range []bool{bundle.Inline != nil, bundle.SecretRef != nil, bundle.ConfigMapRef != nil} {
		if set {
			given++
		}
	}
	switch given {
	case 1:
		return nil
	case 0:
		return field.ErrorList{field.Required(path, "exactly one of inline, secretRef and configMapRef must be set")}
	default:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{},
			"exactly one of inline, secretRef and configMapRef must be set")}
	}
}
