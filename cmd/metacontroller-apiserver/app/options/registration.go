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

package options

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// Registration are the options of how a server inside of the cluster registers itself.
type Registration struct {
	// Register creates the APIService when the server is ready. Default false.
	Register bool
	// Service is the name of the Service at which the cluster reaches the server, in Controllers.Namespace.
	Service string
	// CAFile is the authority of the serving certificate, if it is not the server's own.
	CAFile string
	// Owner is the ClusterRole with which the APIService goes. Empty: none.
	Owner string
}

func newRegistration() *Registration {
	return &Registration{Service: servingcert.DefaultServiceName}
}

func (r *Registration) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&r.Register, "register", r.Register, "Create the APIService of this server when it is ready, and keep the certificate authority "+
		"in it current. For a server in a Pod; others are registered by the command register.")
	fs.StringVar(&r.Service, "register-service", r.Service, "Service at which the cluster reaches this server, in --namespace.")
	fs.StringVar(&r.CAFile, "register-ca-file", r.CAFile, "Certificate authority of --tls-cert-file, for --register.")
	fs.StringVar(&r.Owner, "register-owner", r.Owner, "ClusterRole of this installation: when it is deleted, the cluster deletes the APIService, too. "+
		"Empty: the APIService stays.")
}

// validate takes whether the server makes its serving certificate itself.
func (r *Registration) validate(makesCertificate bool) []error {
	switch {
	case !r.Register:
		return nil
	case r.Service == "":
		return []error{errors.New("--register-service must not be empty")}
	case !makesCertificate && r.CAFile == "":
		return []error{errors.New("--register with --tls-cert-file needs --register-ca-file, which the cluster is told to trust")}
	case makesCertificate && r.CAFile != "":
		return []error{errors.New("--register-ca-file is for --tls-cert-file: without one the server has an authority of its own")}
	}
	return nil
}
