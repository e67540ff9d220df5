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
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/metacontroller/metacontroller-apiserver/pkg/features"
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

const (
	// defaultPort is not a privileged one.
	defaultPort = 8443
	// maxBody is as much as an etcd takes by default, for the object and what is stored with it. Objects that are little smaller may be more than an
	// external etcd takes, which package apiserver tells. The embedded one takes them.
	maxBody = 3 << 19
	// watchGrace is how long watches may take to end when the server stops.
	watchGrace = time.Second
	// aggregatorStreams is the maximum number of concurrent requests of one connection: the aggregator sends those of all
	// clients through one connection.
	aggregatorStreams = 1000
)

func newServerRun(registry basecompatibility.ComponentGlobalsRegistry) *genericoptions.ServerRunOptions {
	o := genericoptions.NewServerRunOptionsForComponent(features.Component, registry)
	o.MaxRequestBodyBytes = maxBody
	// Clients retry, instead of delaying the shutdown.
	o.ShutdownSendRetryAfter = true
	o.ShutdownWatchTerminationGracePeriod = watchGrace
	return o
}

func defaultServing(o *genericoptions.SecureServingOptionsWithLoopback) {
	o.BindPort = defaultPort
	o.HTTP2MaxStreamsPerConnection = aggregatorStreams
	o.ServerCert.CertDirectory = ""
}

// validateServing returns what is wrong beside what the generic API server finds, for which port 0 means not to serve.
func validateServing(o *genericoptions.SecureServingOptionsWithLoopback) []error {
	if o.BindPort == 0 && o.Listener == nil {
		return []error{errors.New("--secure-port must be between 1 and 65535, not 0: a server that does not serve has no use")}
	}
	return nil
}

func describeServing(fs *pflag.FlagSet) {
	fs.Lookup("secure-port").Usage = "The port on which to serve HTTPS with authentication and authorization, between 1 and 65535."
	fs.Lookup("cert-dir").Usage = "Directory of the serving certificate that the server makes and renews, with its own " +
		"certificate authority, if no --tls-cert-file and no --serving-cert-secret is given. Default: serving-certificates in --data-dir."
}

// MakesCertificate reports whether the server creates its serving certificate itself, in CertificateDir or for Certificates.Secret.
func (c Completed) MakesCertificate() bool {
	pair := c.Recommended.SecureServing.ServerCert.CertKey
	return pair.CertFile == "" && pair.KeyFile == ""
}

// CertificateDir is the directory of the serving certificate that the server creates.
func (c Completed) CertificateDir() string {
	return cmp.Or(c.Recommended.SecureServing.ServerCert.CertDirectory, servingcert.Directory(c.Storage.DataDir))
}

// secretFlag names the Secret with the authority that replicas share.
const secretFlag = "serving-cert-secret" //nolint:gosec // It is the name of a flag.

// Certificates are the options of a serving certificate that replicas of the server make with an authority that they share.
type Certificates struct {
	// Secret is the namespace and name, as in metacontroller/name, of the Secret with the authority. Empty: there is none, and the
	// certificate is in files.
	Secret string
	// Lifetimes are those of certificates and authority.
	Lifetimes servingcert.Lifetimes
}

func newCertificates() *Certificates {
	return &Certificates{Lifetimes: servingcert.DefaultLifetimes()}
}

func (c *Certificates) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Secret, secretFlag, c.Secret, "NAMESPACE/NAME of the Secret with the certificate authority that all replicas of this server share. "+
		"Each signs its serving certificate with it, keeps that in memory, and renews it ahead of its end. The authority is replaced ahead of its end too: "+
		"the caBundle of the APIService holds the next and former ones, and the replicas keep it. An empty Secret is filled, a missing one made. "+
		"Empty: the certificate is in files, those of --tls-cert-file or of --cert-dir.")
	l := &c.Lifetimes
	fs.DurationVar(&l.Certificate, "serving-cert-duration", l.Certificate, "How long a serving certificate is valid that is signed with the authority in --"+secretFlag+".")
	fs.DurationVar(&l.CertificateRenewBefore, "serving-cert-renew-before", l.CertificateRenewBefore, "How long before its end it is renewed. 0: a third of its duration.")
	fs.DurationVar(&l.Authority, "serving-ca-duration", l.Authority, "How long the authority in --"+secretFlag+" is valid.")
	fs.DurationVar(&l.AuthorityRenewBefore, "serving-ca-renew-before", l.AuthorityRenewBefore, "How long before its end the next one is made. 0: a third of its duration.")
	fs.DurationVar(&l.Propagation, "serving-ca-propagation", l.Propagation, "How long the APIService must have held the next authority before that signs: "+
		"by then every kube-apiserver must have seen it.")
}

func (c *Certificates) validate(serving *genericoptions.SecureServingOptionsWithLoopback) []error {
	if c.Secret == "" {
		if c.Lifetimes != servingcert.DefaultLifetimes() {
			return []error{errors.New("--serving-cert-duration, --serving-ca-duration and the flags beside them have an effect with --" + secretFlag + " alone")}
		}
		return nil
	}
	var errs []error
	if given := serving.ServerCert; given.CertKey.CertFile != "" || given.CertKey.KeyFile != "" || given.CertDirectory != "" {
		errs = append(errs, errors.New("--"+secretFlag+" cannot be used with --tls-cert-file, --tls-private-key-file or --cert-dir"))
	}
	namespace, name := c.SecretName()
	if reasons := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)...); len(reasons) > 0 {
		errs = append(errs, fmt.Errorf("--%s must be NAMESPACE/NAME, not %q: %s", secretFlag, c.Secret, reasons[0]))
	}
	if err := c.Lifetimes.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--serving-cert-duration, --serving-ca-duration and the flags beside them: %w", err))
	}
	return errs
}

// SecretName returns the two parts of Secret.
func (c *Certificates) SecretName() (namespace, name string) {
	namespace, name, _ = strings.Cut(c.Secret, "/")
	return namespace, name
}
