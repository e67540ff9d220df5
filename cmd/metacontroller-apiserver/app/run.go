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
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
)

// lostStorageGrace is how long the server may take to stop after its storage ended: no request can succeed any more.
const lostStorageGrace = 2 * time.Second

// Run waits until the cluster responds, serves until ctx ends, and then returns nil. With an embedded etcd, that is started before and
// closed after everything else; when it ends without being closed, Run returns its error.
func Run(ctx context.Context, o options.Completed, create NewEngine) (err error) {
	if _, err := reachCluster(ctx, o.Recommended.CoreAPI); err != nil {
		return unlessEnded(ctx, err)
	}
	if !o.Embedded() {
		return run(ctx, o, nil, create)
	}
	etcd, err := embeddedetcd.Start(ctx, embeddedetcd.Options{Dir: options.EtcdDir(o.Storage.DataDir), Logger: klog.FromContext(ctx)})
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() {
		if closeErr := etcd.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("closing embedded etcd: %w", closeErr)
		}
	}()
	transport := &o.Recommended.Etcd.StorageConfig.Transport
	transport.ServerList = []string{etcd.Endpoint()}
	defer func() { transport.ServerList = nil }()
	return run(ctx, o, etcd, create)
}

// reachCluster returns the configuration of requests to the cluster when that responds.
func reachCluster(ctx context.Context, o *genericoptions.CoreAPIOptions) (*rest.Config, error) {
	cluster, err := clusterConfig(o)
	if err != nil {
		return nil, err
	}
	if path := os.Getenv("KUBECONFIG"); path != "" && o.CoreAPIKubeconfigPath == "" {
		klog.FromContext(ctx).Info("KUBECONFIG is not read: the cluster of the Pod is meant. --kubeconfig means another one", "KUBECONFIG", path)
	}
	return cluster, awaitCluster(ctx, cluster)
}

// run serves. etcd is nil when the storage is an external etcd.
func run(ctx context.Context, o options.Completed, etcd *embeddedetcd.Server, create NewEngine) error {
	serving, stop := context.WithCancelCause(ctx)
	var owned sync.WaitGroup
	defer owned.Wait()
	defer stop(nil)
	fail := func(err error) { stop(&failure{err}) }

	if err := ensureCertificate(serving, o, &owned); err != nil {
		return unlessEnded(ctx, err)
	}
	server, err := newServer(serving, o, etcd, create, fail)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	if err := registerItself(serving, o, server, &owned); err != nil {
		server.Destroy()
		return unlessEnded(ctx, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.PrepareRun().RunWithContext(serving) }()
	if etcd == nil {
		err = <-ended
	} else {
		err = await(ended, etcd, fail, lostStorageGrace)
	}
	if failed, ok := errors.AsType[*failure](context.Cause(serving)); ok {
		return failed.error
	}
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// unlessEnded returns the error of a step of the start, and nil when the server was asked to end meanwhile: that is no failure.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // It was asked to.
	}
	return err
}

// failure is the cause of a stop that is not by ctx.
type failure struct{ error }

// storage is an embedded etcd, for tests to replace.
type storage interface {
	Done() <-chan struct{}
	Err() error
}

// await returns the error of the server. When the storage ends first, await calls fail and waits for the server for grace.
func await(server <-chan error, s storage, fail func(error), grace time.Duration) error {
	select {
	case err := <-server:
		return err
	case <-s.Done():
	}
	fail(fmt.Errorf("embedded etcd ended: %w", s.Err()))
	select {
	case err := <-server:
		return err
	case <-time.After(grace):
		return nil
	}
}

// storageCheck is a health check that names the embedded etcd.
func storageCheck(etcd *embeddedetcd.Server) healthz.HealthChecker {
	return healthz.NamedCheck("embedded-etcd", func(*http.Request) error {
		select {
		case <-etcd.Done():
			return errors.New("it has ended")
		default:
			return nil
		}
	})
}

const (
	// askInterval is how often a cluster that does not respond is asked again, and askTimeout how long it may take to.
	askInterval, askTimeout = time.Second, 10 * time.Second
	// complainEvery is in how many attempts it is logged that the cluster does not respond.
	complainEvery = 10
)

// awaitCluster waits until the cluster responds: without it nothing of the server can be configured. The error is the cause of ctx, or
// says that the configuration is wrong.
func awaitCluster(ctx context.Context, cluster *rest.Config) error {
	cluster = unlimited(cluster)
	cluster.Timeout = askTimeout
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("creating a client for the cluster: %w", err)
	}
	return ask(ctx, func() error {
		if err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); !responded(err) {
			return err
		}
		return nil
	}, "The cluster does not respond; waiting for it", "host", cluster.Host)
}

// ask waits until a question is answered without an error. The error that it returns is the cause of ctx. It logs the message at times.
func ask(ctx context.Context, question func() error, message string, keysAndValues ...any) error {
	attempts := 0
	err := wait.PollUntilContextCancel(ctx, askInterval, true, func(ctx context.Context) (bool, error) {
		err := question()
		if err != nil && attempts%complainEvery == 0 && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, message, keysAndValues...)
		}
		attempts++
		return err == nil, nil
	})
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// responded reports whether a cluster has responded that serves, be it with a refusal.
func responded(err error) bool {
	if err == nil {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	code := int(status.Status().Code)
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}
