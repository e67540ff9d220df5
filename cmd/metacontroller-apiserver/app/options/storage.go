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
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// Storage are the options of the embedded storage.
type Storage struct {
	// DataDir is the directory of the embedded etcd, and of the serving certificate if none is given.
	DataDir string
}

func newStorage() *Storage {
	return &Storage{DataDir: "/var/lib/metacontroller-apiserver"}
}

func (s *Storage) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.DataDir, "data-dir", s.DataDir, "Directory of all that the server keeps: the embedded etcd, which "+
		"stores the objects if no --etcd-servers are given, and the serving certificate if no --tls-cert-file is given. "+
		"One process at a time may use it. Back it up.")
}

// mediaType is that of the objects in etcd.
const mediaType = runtime.ContentTypeJSON

// hideUnsupported keeps those of the generic server's flags out of the help that validate refuses.
func hideUnsupported(fs *pflag.FlagSet) {
	for _, name := range []string{"etcd-servers-overrides", "storage-media-type"} {
		fs.Lookup(name).Hidden = true
	}
}

func (s *Storage) validate(etcd *genericoptions.EtcdOptions) []error {
	var errs []error
	if s.DataDir == "" {
		errs = append(errs, errors.New("--data-dir must not be empty"))
	}
	// The generic server would take both and not heed them: there is one store, and the codec is ours.
	if len(etcd.EtcdServersOverrides) > 0 {
		errs = append(errs, errors.New("--etcd-servers-overrides is not supported: all objects are in one etcd"))
	}
	if etcd.DefaultStorageMediaType != mediaType {
		errs = append(errs, fmt.Errorf("--storage-media-type must be %s, in which objects are stored, not %q", mediaType, etcd.DefaultStorageMediaType))
	}
	transport := etcd.StorageConfig.Transport
	if len(transport.ServerList) == 0 && (transport.CertFile != "" || transport.KeyFile != "" || transport.TrustedCAFile != "") {
		errs = append(errs, errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile need --etcd-servers"))
	}
	return errs
}

// EtcdDir is the directory of the embedded etcd.
func (s *Storage) EtcdDir() string { return EtcdDir(s.DataDir) }

// EtcdDir is the directory of the embedded etcd in a data directory of the server.
func EtcdDir(dataDir string) string { return filepath.Join(dataDir, "etcd") }

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
