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
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Register registers the server at Options.Host and Options.Port, and waits until it is available. Doing it again is harmless,
// and changes host, port and authority. It changes no namespace that exists, and no role whose rules somebody else has
// written unless Options.RestoreRoles is set.
//
// The error is a *ServedByDefinitionsError or an *OccupiedError when the cluster has another registration, in which case
// nothing was changed, and an *UnavailableError when the server was not reached in time.
func Register(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	client, err := newClient(o.Config)
	if err != nil {
		return err
	}
	if o.BesideDefinitions {
		err = checkExistingService(ctx, client)
	} else if err = checkServed(ctx, client); err == nil {
		err = checkExisting(ctx, client)
	}
	if err != nil {
		return err
	}
	objects, err := manifests(o)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if o.BesideDefinitions && object.GetKind() == kindAPIService {
			continue
		}
		if err := applyOne(ctx, client, object, o); err != nil {
			return err
		}
	}
	if o.Timeout == 0 || o.BesideDefinitions {
		return nil
	}
	return waitAvailable(ctx, client, o)
}

// applyOne writes one object of a registration.
func applyOne(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured, o Options) error {
	switch object.GetKind() {
	case kindNamespace:
		return ensureNamespace(ctx, client, object, o.Progress)
	case kindClusterRole, kindRole:
		return applyRole(ctx, client, object, o)
	default:
		if err := apply(ctx, client, object, FieldManager); err != nil {
			return err
		}
		progressf(o.Progress, "applied %s", describe(object))
		return nil
	}
}

// ApplyRoles applies the roles of a registration alone, and the namespace of one of them, so that they can be bound to the user of a server
// that is no administrator before that server starts. Of the options it takes Config, RestoreRoles and Progress.
func ApplyRoles(ctx context.Context, o Options) error {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	client, err := newClient(o.Config)
	if err != nil {
		return err
	}
	objects, err := manifests(o)
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch object.GetKind() {
		case kindNamespace, kindClusterRole, kindRole:
		default:
			continue
		}
		if err := applyOne(ctx, client, object, o); err != nil {
			return err
		}
	}
	return nil
}

func newClient(config *rest.Config) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// checkServed refuses clusters in which CustomResourceDefinitions serve the group. Those that the server's registration hides already do not.
func checkServed(ctx context.Context, client dynamic.Interface) error {
	apiService, err := client.Resource(resources[kindAPIService]).Get(ctx, APIServiceName, metav1.GetOptions{})
	if err == nil && checkOwn(apiService, namespace, serviceName) == nil {
		return nil
	}
	return checkDefinitions(ctx, client)
}

// apply writes one object. Fields that another field manager owns are taken over: a registration is explicit.
func apply(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured, manager string) error {
	target, err := resourceFor(client, object)
	if err != nil {
		return err
	}
	_, err = target.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("applying %s: %w", describe(object), err)
	}
	return nil
}

// progressf tells the user of a step. Nobody is helped when that fails.
func progressf(w io.Writer, format string, arguments ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", arguments...)
}

// Unregister deletes what Register applied, except for the namespace, which may hold objects of others: earlier versions applied
// labels to it, which are taken off. A role that Register has left to others stays. Objects that are not there are no error. It refuses with an
// *OccupiedError when the registration is that of another server, and deletes nothing then. The server's own objects stay in its store.
func Unregister(ctx context.Context, config *rest.Config, out io.Writer) error {
	if out == nil {
		out = io.Discard
	}
	client, err := newClient(config)
	if err != nil {
		return err
	}
	if err := checkExisting(ctx, client); err != nil {
		return err
	}
	objects, err := manifests(Options{})
	if err != nil {
		return err
	}
	// Backwards: the cluster must stop asking for the server before the way to it goes.
	for _, object := range slices.Backward(objects) {
		if object.GetKind() == kindNamespace {
			err = releaseNamespace(ctx, client, object.GetName(), out)
		} else {
			err = remove(ctx, client, object, out)
		}
		if err != nil {
			return err
		}
	}
	if found, err := findDefinitions(ctx, client); err == nil && len(found) > 0 {
		progressf(out, "CustomResourceDefinitions serve the group again, with the objects that they had before the move to this server: %s", strings.Join(found, ", "))
	}
	return nil
}

// belongsToOthers reports whether a role is not that of register, or not any more, and then tells the user. One that was narrowed stays: with
// bindings of the user's, the next one that register makes would give all rights back.
func belongsToOthers(ctx context.Context, target dynamic.ResourceInterface, role *unstructured.Unstructured, out io.Writer) (bool, error) {
	existing, err := target.Get(ctx, role.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", describe(role), err)
	}
	if !appliedHere(existing) {
		progressf(out, "%s is not that of register and stays", describe(role))
		return true, nil
	}
	authors, _, _, err := rewritten(existing, role)
	if err != nil || len(authors) == 0 {
		return false, err
	}
	progressf(out, "%s was written by %s and stays", describe(role), strings.Join(authors, ", "))
	return true, nil
}

// remove deletes one object of a registration.
func remove(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured, out io.Writer) error {
	target, err := resourceFor(client, object)
	if err != nil {
		return err
	}
	if object.GetKind() == kindClusterRole || object.GetKind() == kindRole {
		stays, err := belongsToOthers(ctx, target, object, out)
		if err != nil || stays {
			return err
		}
	}
	err = target.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("deleting %s: %w", describe(object), err)
	default:
		progressf(out, "deleted %s", describe(object))
	}
	return nil
}

// pollInterval is the pause between two looks at the registration.
const pollInterval = 250 * time.Millisecond

// waitAvailable waits until the cluster says that it reaches the server, and really does: the condition may be left over from
// an earlier registration.
func waitAvailable(ctx context.Context, client dynamic.Interface, o Options) error {
	resources, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	last := condition{reason: "Pending", message: "the cluster has not looked for the server yet"}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, o.Timeout, true, func(ctx context.Context) (bool, error) {
		now := readCondition(ctx, client)
		if now.available {
			if _, err := resources.ServerResourcesForGroupVersion(group + "/" + version); err == nil {
				return true, nil
			} else if ctx.Err() == nil {
				now = condition{reason: "DiscoveryFailed", message: err.Error()}
			}
		}
		// The last look may have been cut short by the timeout; what came before says more.
		if ctx.Err() == nil && now != last {
			progressf(o.Progress, "waiting for APIService %s: %s: %s", APIServiceName, now.reason, now.message)
			last = now
		}
		return false, nil
	})
	switch {
	case err == nil:
		progressf(o.Progress, "APIService %s is available", APIServiceName)
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("waiting for APIService %s: %w", APIServiceName, context.Cause(ctx))
	default:
		return &UnavailableError{Waited: o.Timeout, Reason: last.reason, Message: last.message}
	}
}

// A condition is what the cluster says about the registration.
type condition struct {
	available       bool
	reason, message string
}

// readCondition reads the condition Available.
func readCondition(ctx context.Context, client dynamic.Interface) condition {
	apiService, err := client.Resource(resources[kindAPIService]).Get(ctx, APIServiceName, metav1.GetOptions{})
	if err != nil {
		return condition{reason: "ReadingFailed", message: err.Error()}
	}
	return conditionOf(apiService)
}

// conditionOf returns the condition Available of an APIService.
func conditionOf(apiService *unstructured.Unstructured) condition {
	conditions, _, _ := unstructured.NestedSlice(apiService.Object, "status", "conditions")
	for _, entry := range conditions {
		fields, ok := entry.(map[string]any)
		if !ok || fields["type"] != "Available" {
			continue
		}
		reason, _, _ := unstructured.NestedString(fields, "reason")
		message, _, _ := unstructured.NestedString(fields, "message")
		return condition{available: fields["status"] == "True", reason: reason, message: message}
	}
	return condition{reason: "Pending", message: "the cluster has not looked for the server yet"}
}

const (
	// FieldManager owns the fields that this package writes.
	FieldManager = "metacontroller-apiserver-register"
	// authorityFieldManager owns an authority that is published alone. What FieldManager applied before would be removed if it
	// were the same and did not repeat everything.
	authorityFieldManager = "metacontroller-apiserver-authority"
	// APIServiceName is the object that registers the server.
	APIServiceName = "v1alpha1.metacontroller.k8s.io"
	// group and version are what the server serves.
	group, version = "metacontroller.k8s.io", "v1alpha1"
	// namespace and serviceName are where the registration points, as in the manifests.
	namespace, serviceName = "metacontroller", "metacontroller-apiserver"
)

// Options describe a registration.
type Options struct {
	// Config reaches the cluster, as a user who may create ClusterRoles and grant what is in them.
	Config *rest.Config
	// Host is the DNS name or IPv4 address at which the cluster's kube-apiservers reach the server, and Port its port. The
	// server's certificate needs the name metacontroller-apiserver.metacontroller.svc, whatever Host is.
	Host string
	Port int
	// CABundle is the authority of the server's certificate, PEM.
	CABundle []byte
	// Timeout is how long to wait until the server is available. Zero: do not wait.
	Timeout time.Duration
	// BesideDefinitions leaves out the APIService: CustomResourceDefinitions may serve the group, and go on to.
	BesideDefinitions bool
	// RestoreRoles replaces ClusterRoles whose rules somebody else has written.
	RestoreRoles bool
	// Progress receives a line for every step. Nil: no lines.
	Progress io.Writer
}

// Validate returns everything that is wrong with the options, as one error.
func (o Options) Validate() error {
	var problems []error
	if o.Config == nil {
		problems = append(problems, errors.New("no configuration of a client"))
	}
	if o.Port < 1 || o.Port > 65535 {
		problems = append(problems, fmt.Errorf("port %d is not between 1 and 65535", o.Port))
	}
	if ip := net.ParseIP(o.Host); ip != nil && ip.To4() == nil {
		problems = append(problems, fmt.Errorf("host %s is an IPv6 address, which a Service cannot name; use a DNS name", o.Host))
	} else if reasons := validation.IsDNS1123Subdomain(o.Host); len(reasons) > 0 {
		problems = append(problems, fmt.Errorf("host %q: %s", o.Host, strings.Join(reasons, "; ")))
	}
	if len(o.CABundle) == 0 {
		problems = append(problems, errors.New("no certificate authority: without one the cluster would trust the system's"))
	}
	if o.Timeout < 0 {
		problems = append(problems, fmt.Errorf("timeout %s is negative", o.Timeout))
	}
	return errors.Join(problems...)
}

// A ServedByDefinitionsError means that CustomResourceDefinitions serve the group in this cluster. Registering over them
// would hide their objects, and bring them back, old, when the registration goes.
type ServedByDefinitionsError struct {
	// Definitions are the names of the CustomResourceDefinitions; empty when only their APIService is known.
	Definitions []string
}

// Error names the definitions and says what to do.
func (e *ServedByDefinitionsError) Error() string {
	what := "CustomResourceDefinitions"
	if len(e.Definitions) > 0 {
		what = "the CustomResourceDefinitions " + strings.Join(e.Definitions, ", ")
	}
	return fmt.Sprintf("this cluster already serves %s/%s by %s: register with --beside-definitions, and move their "+
		"objects with metacontroller-apiserver migrate", group, version, what)
}

// An OccupiedError means that the cluster has a registration which this package did not make and must not change.
type OccupiedError struct {
	// Object is the kind and name of what is there.
	Object string
	// Detail says in what it differs and what to do.
	Detail string
}

// Error names the object, and what to do.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s exists already: %s", e.Object, e.Detail)
}

// An UnavailableError means that everything was applied, but the cluster did not reach the server in time.
type UnavailableError struct {
	// Waited is how long it was waited for.
	Waited time.Duration
	// Reason and Message are those of the condition Available, or of the last error.
	Reason, Message string
}

// Error gives the cluster's reason, and where to look next.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("APIService %s is not available after %s: %s: %s; the registration stays, so look at the server's log and at "+
		"kubectl get apiservice %s -o yaml, or take it back with unregister",
		APIServiceName, e.Waited, e.Reason, e.Message, APIServiceName)
}
