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
	"time"

	"github.com/spf13/pflag"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/metacontroller/metacontroller-apiserver/pkg/features"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

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
	if dir := c.Recommended.SecureServing.ServerCert.CertDirectory; dir != "" {
		return dir
	}
	return servingcert.Directory(c.Storage.DataDir)
}
