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
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// maxAddress is the longest URL or path, as the markers in v1alpha1 have it. A longer one is refused there.
const maxAddress = 4096

// validateAddress demands an address that can be called: a URL, or a Service and a path. With a URL the others are ignored.
func validateAddress(webhook *v1alpha1.Webhook, path *field.Path) field.ErrorList {
	switch {
	case webhook.URL != nil:
		return validateURL(*webhook.URL, path.Child("url"))
	case webhook.Service == nil && webhook.Path == nil:
		return field.ErrorList{field.Required(path.Child("url"), "either url, or both service and path, must be set")}
	case webhook.Service == nil:
		return field.ErrorList{field.Required(path.Child("service"), "must be set together with path, or url instead of both")}
	case webhook.Path == nil:
		return field.ErrorList{field.Required(path.Child("path"), "must be set together with service, or url instead of both")}
	}
	return append(validateService(webhook.Service, path.Child("service")), validatePath(*webhook.Path, path.Child("path"))...)
}

func validateURL(value string, path *field.Path) field.ErrorList {
	if utf8.RuneCountInString(value) > maxAddress {
		return nil
	}
	demand := "must be an absolute URL that starts with http:// or https://"
	address, err := url.Parse(value)
	switch {
	case err != nil && revealing(value):
		// The error has parts of the URL.
	case err != nil:
		demand += ": " + err.Error()
	case address.Scheme != "http" && address.Scheme != "https" || address.Host == "":
	case address.Hostname() == "":
		demand = "must have a host"
	case badPort(address.Port()):
		demand = "must have a port from 1 to 65535, or none"
	default:
		return nil
	}
	return field.ErrorList{invalidAddress(path, value, demand)}
}

func badPort(port string) bool {
	if port == "" {
		return false
	}
	n, err := strconv.Atoi(port)
	return err != nil || n < 1 || n > maxPort
}

const maxPort = 65535

// revealing reports whether an address has a part that may hold a password or a token: a user, a query or a fragment.
func revealing(address string) bool { return strings.ContainsAny(address, "@?#%") }

func invalidAddress(path *field.Path, value, demand string) *field.Error {
	if revealing(value) {
		return secret(path, demand)
	}
	return invalid(path, value, demand)
}

// validateService demands what makes up a host name of a Service and nothing else: the parts are joined to a URL
// (docs/reference/compatibility.md#v-service).
func validateService(service *v1alpha1.ServiceReference, path *field.Path) field.ErrorList {
	errs := validateServiceName(service.Name, path.Child("name"), "must be the name of a Service, such as my-hook")
	errs = append(errs, validateServiceName(service.Namespace, path.Child("namespace"), "must be the name of a namespace")...)
	if port := ptr.Deref(service.Port, 1); port < 1 || port > maxPort {
		errs = append(errs, field.Invalid(path.Child("port"), port, "must be between 1 and 65535"))
	}
	if protocol := ptr.Deref(service.Protocol, "http"); !strings.EqualFold(protocol, "http") && !strings.EqualFold(protocol, "https") {
		errs = append(errs, field.NotSupported(path.Child("protocol"), cut(protocol), []string{"http", "https"}))
	}
	return errs
}

// validateServiceName takes upper case for lower case, as name servers do.
func validateServiceName(name string, path *field.Path, demand string) field.ErrorList {
	if name == "" || len(validation.IsDNS1123Label(strings.ToLower(name))) == 0 {
		return nil
	}
	return field.ErrorList{invalidAddress(path, name, demand)}
}

// validatePath demands that the path, put behind a host, leaves the host what it is.
func validatePath(value string, path *field.Path) field.ErrorList {
	if utf8.RuneCountInString(value) > maxAddress {
		return nil
	}
	demand := "must begin with a slash"
	if strings.HasPrefix(value, "/") {
		if _, err := url.Parse("http://host" + value); err == nil {
			return nil
		}
		demand = "must be a path as in a URL"
	}
	return field.ErrorList{invalidAddress(path, value, demand)}
}

// addressOf is the URL that is called; nil if there is none that can be.
func addressOf(webhook *v1alpha1.Webhook) *url.URL {
	raw := ""
	switch service := webhook.Service; {
	case webhook.URL != nil:
		raw = *webhook.URL
	case service != nil && webhook.Path != nil:
		raw = ptr.Deref(service.Protocol, "http") + "://" + service.Name + "." + service.Namespace + ":" +
			strconv.Itoa(int(ptr.Deref(service.Port, 80))) + *webhook.Path
	}
	address, err := url.Parse(raw)
	if err != nil || address.Host == "" {
		return nil
	}
	return address
}
