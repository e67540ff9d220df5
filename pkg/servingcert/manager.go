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

package servingcert

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// DefaultServiceName is the name of the Service under which the server is registered.
	DefaultServiceName = "metacontroller-apiserver"
	// DefaultServiceNamespace is its namespace.
	DefaultServiceNamespace = "metacontroller"

	// authorityLife is the validity of the authority. It is renewed with the same key and name, so that certificates signed
	// before and clients that know the old one keep working.
	authorityLife = 10 * 365 * 24 * time.Hour
	// certificateLife is the validity of the serving certificate.
	certificateLife = 90 * 24 * time.Hour
	// backdate is how far before now a validity begins: the clocks of clients may be late.
	backdate = time.Hour
	// checkInterval is the pause between two looks at the certificates. Time passes for a suspended machine as well, so this is
	// not computed from the dates in them.
	checkInterval = time.Hour
)

// Options says for whom a Manager makes certificates. Only Dir is required.
type Options struct {
	// Dir is the directory of the files, made with mode 0700 when it is missing.
	Dir string
	// Hosts are DNS names and IP addresses that the certificate is valid for, besides localhost, 127.0.0.1, ::1 and the names of
	// the Service.
	Hosts []string
	// ServiceName and ServiceNamespace name the Service of the APIService. The aggregation layer expects a certificate for
	// <name>.<namespace>.svc, whatever address it dials. Empty means DefaultServiceName and DefaultServiceNamespace.
	ServiceName, ServiceNamespace string
	// Clock tells the time. Nil means the clock of the machine.
	Clock clock.WithTicker
}

// A Manager keeps the certificates in one directory. It may be used from several goroutines, and several processes may each
// have one for the same directory.
type Manager struct {
	dir   string
	names names
	clock clock.WithTicker
}

// New returns a Manager. It writes nothing before Ensure or Run is called.
func New(o Options) *Manager {
	if o.ServiceName == "" {
		o.ServiceName = DefaultServiceName
	}
	if o.ServiceNamespace == "" {
		o.ServiceNamespace = DefaultServiceNamespace
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	service := o.ServiceName + "." + o.ServiceNamespace
	hosts := slices.Concat([]string{service + ".svc", service, o.ServiceName, "localhost", "127.0.0.1", "::1"}, o.Hosts)
	return &Manager{dir: o.Dir, names: newNames(hosts), clock: o.Clock}
}

// Ensure makes the certificates in dir, or renews them when that is necessary, for the default Service, this machine, and the
// given DNS names and IP addresses. It is New(Options{Dir: dir, Hosts: hosts}).Ensure().
func Ensure(dir string, hosts ...string) (Files, error) {
	return New(Options{Dir: dir, Hosts: hosts}).Ensure()
}

// Ensure makes what is missing, and renews what expires soon or is not valid for all names. A certificate that cannot be read
// is made again; a key of the authority that cannot be read is an error, because a new authority needs a new registration.
func (m *Manager) Ensure() (Files, error) {
	files := FilesIn(m.dir)
	unlock, err := lock(m.dir)
	if err != nil {
		return Files{}, err
	}
	defer unlock()
	authority, err := m.ensureAuthority(files)
	if err != nil {
		return Files{}, fmt.Errorf("preparing certificate authority: %w", err)
	}
	if err := m.ensureCertificate(files, authority); err != nil {
		return Files{}, fmt.Errorf("preparing serving certificate: %w", err)
	}
	return files, nil
}

// Run renews the certificates when it is time, until ctx ends. A renewal that does not succeed is logged and tried again an
// hour later, for a month.
func (m *Manager) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := m.clock.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if _, err := m.Ensure(); err != nil {
			logger.Error(err, "Cannot renew the serving certificate; trying again", "dir", m.dir, "after", checkInterval)
		}
	}
}
