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

package clusterwarnings

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// lookupsOfHooks are those of the hooks' addresses, and of the Secrets and ConfigMaps that calls need, unless a service account reads
// these, or the update is not about them: of its author nobody has asked then whether he may know of them.
func (p *Plugin) lookupsOfHooks(d *definition) lookups {
	var all lookups
	silent := d.account || d.unchecked
	for _, hook := range d.hooks {
		all = append(all, p.lookupOfAddress(hook)...)
		if !silent {
			all = append(all, p.lookupsOfSecurity(&hook.WebhookSecurity, hook.path)...)
		}
	}
	if silent {
		return all
	}
	for i := range d.endpoints {
		all = append(all, p.lookupsOfSecurity(&d.endpoints[i].WebhookSecurity, field.NewPath("spec", "endpointConfigs").Index(i))...)
	}
	return all
}

// An address is that of a hook, in terms of the cluster.
type address struct {
	namespace, name string
	port            int32
	// sure says that the address is that of a Service; else it may be one.
	sure bool
}

// lookupOfAddress is the lookup of the Service of a hook, if it has one.
func (p *Plugin) lookupOfAddress(hook namedHook) lookups {
	var a address
	path := hook.path.Child("service")
	switch {
	case hook.URL != nil:
		path = hook.path.Child("url")
		u, err := url.Parse(*hook.URL)
		if err != nil {
			return nil
		}
		if p.isThisServer(u) {
			return lookups{{path, func(context.Context) ([]string, error) { return []string{ownAddress}, nil }}}
		}
		var ok bool
		if a, ok = serviceOf(u); !ok {
			return nil
		}
	case hook.Service != nil:
		// The DNS knows no upper case.
		namespace, name := strings.ToLower(hook.Service.Namespace), strings.ToLower(hook.Service.Name)
		a = address{namespace: namespace, name: name, port: ptr.Deref(hook.Service.Port, 80), sure: true}
	default:
		return nil
	}
	if a.namespace == p.service.Namespace && a.name == p.service.Name {
		return lookups{{path, func(context.Context) ([]string, error) { return []string{ownAddress}, nil }}}
	}
	return lookups{{path, func(ctx context.Context) ([]string, error) { return p.warnService(ctx, a) }}}
}

const ownAddress = "this is the address of this server, which serves no hooks"

// isThisServer reports whether a URL names the port of this server on its own host.
func (p *Plugin) isThisServer(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return p.port > 0 && u.Port() == strconv.Itoa(p.port) && (strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback())
}

// serviceOf returns the Service in a URL: <name>.<namespace>.svc with or without the cluster's domain, or <name>.<namespace>, which may
// be something else.
func serviceOf(u *url.URL) (address, bool) {
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), ".")
	if len(labels) < 2 || net.ParseIP(u.Hostname()) != nil || len(labels) > 2 && labels[2] != "svc" {
		return address{}, false
	}
	port := int32(80)
	if strings.EqualFold(u.Scheme, "https") {
		port = 443
	}
	if text := u.Port(); text != "" {
		number, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return address{}, false
		}
		port = int32(number)
	}
	return address{namespace: labels[1], name: labels[0], port: port, sure: len(labels) > 2}, true
}

// warnService looks at the Service and its endpoints.
func (p *Plugin) warnService(ctx context.Context, a address) ([]string, error) {
	what := fmt.Sprintf("Service %s/%s", a.namespace, a.name)
	service, err := p.client.CoreV1().Services(a.namespace).Get(ctx, a.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if !a.sure {
			if _, err := p.client.CoreV1().Namespaces().Get(ctx, a.namespace, metav1.GetOptions{}); err != nil {
				return nil, err
			}
		}
		return []string{what + " does not exist; calls of the hook fail until it does"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, nil
	}
	// The address of a headless Service is that of its Pods, with their ports.
	hasPort := slices.ContainsFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.Port == a.port })
	if !hasPort && service.Spec.ClusterIP != corev1.ClusterIPNone {
		return []string{fmt.Sprintf("%s has no port %d; calls of the hook fail", what, a.port)}, nil
	}
	slicesOf, err := p.client.DiscoveryV1().EndpointSlices(a.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + a.name})
	if err != nil {
		return nil, fmt.Errorf("listing the endpoints of %s: %w", what, err)
	}
	for i := range slicesOf.Items {
		for _, endpoint := range slicesOf.Items[i].Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				return nil, nil
			}
		}
	}
	return []string{what + " has no ready endpoints; calls of the hook fail until a Pod of it is ready"}, nil
}

// lookupsOfSecurity are those of the Secrets and ConfigMaps that calls need. They tell an author only of what he may read: others are
// refused by package escalation, if no service account is named.
func (p *Plugin) lookupsOfSecurity(s *v1alpha1.WebhookSecurity, path *field.Path) lookups {
	var all lookups
	s.EachReference(func(use, at, kind, namespace, name string, keys ...string) {
		all = append(all, lookup{path.Child(use, at), func(ctx context.Context) ([]string, error) { return p.warnKeys(ctx, kind, namespace, name, keys) }})
	})
	return all
}

// warnKeys looks whether a Secret or ConfigMap has keys.
func (p *Plugin) warnKeys(ctx context.Context, kind, namespace, name string, keys []string) ([]string, error) {
	what := fmt.Sprintf("%s %s/%s", kind, namespace, name)
	there, err := p.keysOf(ctx, kind, namespace, name)
	if apierrors.IsNotFound(err) {
		return []string{what + " does not exist; calls of the hook fail until it does"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	var texts []string
	for _, key := range keys {
		if !there.Has(key) {
			texts = append(texts, fmt.Sprintf("%s has no key %q; calls of the hook fail until it does", what, key))
		}
	}
	return texts, nil
}

func (p *Plugin) keysOf(ctx context.Context, kind, namespace, name string) (sets.Set[string], error) {
	if kind == "ConfigMap" {
		found, err := p.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return sets.KeySet(found.Data).Union(sets.KeySet(found.BinaryData)), nil
	}
	found, err := p.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return sets.KeySet(found.Data), nil
}
