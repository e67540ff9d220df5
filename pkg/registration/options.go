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
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
)

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
