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

package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// readyInterval is the pause between two looks whether the server is ready to be registered.
const readyInterval = 250 * time.Millisecond

// registerItself has the server register itself when it is ready, if that is wanted: a cluster that counts on a server which does not serve
// yet cannot delete namespaces. What it starts ends with ctx, and owned waits for it.
func registerItself(ctx context.Context, o options.Completed, server *genericapiserver.GenericAPIServer, owned *sync.WaitGroup) error {
	if !o.Registration.Register {
		return nil
	}
	cluster, err := clusterConfig(o.Recommended.CoreAPI)
	if err != nil {
		return err
	}
	health, err := discovery.NewDiscoveryClientForConfig(unlimited(server.LoopbackClientConfig))
	if err != nil {
		return fmt.Errorf("creating a client for the server's own health: %w", err)
	}
	authority, err := ownAuthority(o, cluster)
	if err != nil {
		return err
	}
	self := registration.Self{
		Config: unlimited(cluster), ServiceNamespace: o.Controllers.Namespace, ServiceName: o.Registration.Service, Owner: o.Registration.Owner,
		Authority: authority, Missing: metrics.RegistrationMissing, Hidden: metrics.HiddenDefinitions,
	}
	owned.Go(func() {
		err := wait.PollUntilContextCancel(ctx, readyInterval, true, func(ctx context.Context) (bool, error) {
			return health.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
		})
		if err == nil {
			self.Run(ctx)
		}
	})
	return nil
}

// ownAuthority returns how to read the authority of the certificate that is served: from a file, or from the Secret that replicas share.
func ownAuthority(o options.Completed, cluster *rest.Config) (func(context.Context) ([]byte, error), error) {
	if o.Certificates.Secret != "" {
		client, err := kubernetes.NewForConfig(unlimited(cluster))
		if err != nil {
			return nil, fmt.Errorf("creating a client for the Secret with the serving authority: %w", err)
		}
		namespace, name := o.Certificates.SecretName()
		return func(ctx context.Context) ([]byte, error) {
			secret, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("reading Secret %s: %w", o.Certificates.Secret, err)
			}
			return secret.Data[servingcert.AuthoritiesKey], nil
		}, nil
	}
	file := cmp.Or(o.Registration.CAFile, servingcert.FilesIn(o.CertificateDir()).CAFile)
	return func(context.Context) ([]byte, error) { return os.ReadFile(file) }, nil
}

// serviceHost is the name that the aggregation layer expects in the certificate.
func serviceHost(o options.Completed) string {
	return o.Registration.Service + "." + o.Controllers.Namespace + ".svc"
}

// ensureCertificate creates a serving certificate if none is given, and starts its renewal.
func ensureCertificate(ctx context.Context, o options.Completed, owned *sync.WaitGroup) error {
	if !o.MakesCertificate() {
		return nil
	}
	serving := &o.Recommended.SecureServing.ServerCert
	certificates := servingcert.Options{Hosts: certificateHosts(o)}
	var store servingcert.Store
	if o.Certificates.Secret == "" {
		files := servingcert.FilesIn(o.CertificateDir())
		serving.CertKey.CertFile, serving.CertKey.KeyFile = files.CertFile, files.KeyFile
		store = files
	} else {
		secret, trust, err := sharedAuthority(o)
		if err != nil {
			return err
		}
		serving.GeneratedCert = secret
		store, certificates.Registration, certificates.Lifetimes = secret, trust, o.Certificates.Lifetimes
	}
	manager := servingcert.New(store, certificates)
	if err := manager.Ensure(ctx); err != nil {
		return err
	}
	owned.Go(func() { manager.Run(ctx) })
	return nil
}

// certificateHosts are the names of the server's own certificate besides those that servingcert adds.
func certificateHosts(o options.Completed) []string {
	hosts := []string{o.ServerRun.ExternalHost}
	if o.Registration.Register {
		hosts = append(hosts, serviceHost(o))
	}
	return hosts
}

// sharedAuthority returns the Secret with the authority of several servers, and where the cluster looks up whom it trusts.
func sharedAuthority(o options.Completed) (*servingcert.Secret, *registration.Trust, error) {
	config, err := clusterConfig(o.Recommended.CoreAPI)
	if err != nil {
		return nil, nil, err
	}
	config = unlimited(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client for the Secret with the serving authority: %w", err)
	}
	var service types.NamespacedName
	if o.Registration.Register {
		service = types.NamespacedName{Namespace: o.Controllers.Namespace, Name: o.Registration.Service}
	}
	trust, err := registration.NewTrust(config, service)
	if err != nil {
		return nil, nil, err
	}
	namespace, name := o.Certificates.SecretName()
	return servingcert.NewSecret(name, client.CoreV1().Secrets(namespace)), trust, nil
}

// exposeCertificate shows the end of the certificate that is served as a metric, wherever it comes from.
func exposeCertificate(served dynamiccertificates.CertKeyContentProvider) {
	metrics.ObserveServingCertificate(func() (time.Time, bool) {
		certificate, _ := served.CurrentCertKeyContent()
		return servingcert.Expiration(certificate)
	})
}
