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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	// Registers the metrics of requests to the cluster.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/manager"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
)

// engineGrace is how long the engine may take to stop before the API server begins to stop. It is longer than the grace of the
// syncs, so that these end by themselves or canceled, and their last writes reach an API server that still serves.
const engineGrace = queue.Grace + time.Second

// Engine runs controllers.
type Engine interface {
	// Run runs the controllers, from when this process is elected until ctx ends, and returns when everything that it started has ended.
	Run(ctx context.Context) error
}

// EngineConfig configures an engine.
type EngineConfig struct {
	// Loopback is for requests about controller objects and their revisions: to the API server of this process, where it has all rights, or
	// to the cluster if that serves them.
	Loopback *rest.Config
	// Cluster is for requests to the cluster, about all other objects.
	Cluster *rest.Config
	// Controllers are the settings.
	Controllers options.Controllers
	// Elected is closed when the engine may call hooks and write. Until then it fills its caches. Nil: it may at once.
	Elected <-chan struct{}
	// Port is where this process serves the API, or metrics if it serves none; no hook can be there. 0: it is not known.
	Port int
	// TracerProvider gets the spans of the engine. Nil: there are none.
	TracerProvider trace.TracerProvider
	// Inspection lets the API server ask the engine while it runs. Nil: it does not ask.
	Inspection *inspection.Link
	// Standby lets it ask also while the engine waits to be elected. Nil: it does not ask.
	Standby *inspection.Link
}

// NewEngine creates an engine. It is called when the API server serves.
type NewEngine func(ctx context.Context, c EngineConfig) (Engine, error)

// engineRunner runs engines, one after the other, from when the API server serves until before it stops: each while this process is elected.
// One that waits to be elected fills its caches meanwhile.
type engineRunner struct {
	create NewEngine
	config EngineConfig
	// elector elects this process. Nil: it is always elected.
	elector elector
	// leads is called when this process is elected.
	leads func(ctx context.Context)
	// fail ends the process with an error. It is called when an engine ends without being stopped, or does not end when it is.
	fail func(error)

	// ctx is the context of the engines; stop cancels it.
	ctx  context.Context
	stop context.CancelFunc
	// mu guards against a start after the stop.
	mu      sync.Mutex
	running sync.WaitGroup
}

// elector elects processes, as *leaderelection.Elector does.
type elector interface {
	Stand(ctx context.Context, lead func(term context.Context)) error
	Fence() *leaderelection.Fence
}

// add has the API server start and stop the runner. The signal to the process cancels ctx; the engine is stopped by the pre-shutdown hook
// instead, which waits for it.
func (h *engineRunner) add(ctx context.Context, s *genericapiserver.GenericAPIServer) error {
	h.prepare(ctx)
	start := func(hook genericapiserver.PostStartHookContext) error { //nolint:contextcheck // The engines have a context of their own.
		h.start(unlimited(hook.LoopbackClientConfig))
		return nil
	}
	if err := s.AddPostStartHook("start-controllers", start); err != nil {
		return fmt.Errorf("adding the start of controllers: %w", err)
	}
	if err := s.AddPreShutdownHook("stop-controllers", h.shutdown); err != nil {
		return fmt.Errorf("adding the stop of controllers: %w", err)
	}
	return nil
}

// prepare has the engines outlive ctx until shutdown is called.
func (h *engineRunner) prepare(ctx context.Context) {
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
}

// start runs engines. Own reaches who serves controller objects.
func (h *engineRunner) start(own *rest.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	h.config.Loopback = own
	if h.elector != nil {
		h.config.Loopback.Wrap(h.elector.Fence().Wrap)
		h.config.Cluster = rest.CopyConfig(h.config.Cluster)
		h.config.Cluster.Wrap(h.elector.Fence().Wrap)
	}
	h.running.Go(func() {
		for h.ctx.Err() == nil && h.runOne() {
			klog.FromContext(h.ctx).Info("Controllers have stopped here, and run again when this server is elected")
		}
	})
}

// runOne runs an engine until it is not elected any more. It returns false when the process is to end.
func (h *engineRunner) runOne() bool {
	elected := make(chan struct{})
	config := h.config
	config.Elected = elected
	engine, err := h.create(h.ctx, config)
	if err != nil {
		h.fail(fmt.Errorf("preparing to run controllers: %w", err))
		return false
	}
	running, stop := context.WithCancel(h.ctx)
	standing, withdraw := context.WithCancel(h.ctx)
	defer withdraw()
	asked, answers := engine.(inspection.Engine)
	cut := func() {}
	if answers && h.config.Standby != nil {
		cut = h.config.Standby.Connect(asked)
	}
	defer cut()
	ended := make(chan struct{})
	var failed error
	outlived := false
	go func() {
		defer close(ended)
		defer withdraw()
		err := engine.Run(running)
		if running.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		failed = err
	}()
	h.stand(standing, func(term context.Context) {
		close(elected)
		if answers && h.config.Inspection != nil {
			defer h.config.Inspection.Connect(asked)()
		}
		if h.leads != nil {
			h.leads(term)
		}
		<-term.Done()
		cut() // The next engine answers sooner than one that ends.
		stop()
		outlived = !h.await(term, ended)
	})
	stop()
	<-ended
	if failed != nil {
		h.fail(fmt.Errorf("running controllers: %w", failed))
	}
	return failed == nil && !outlived
}

// stand calls lead when this process is elected, if it is before ctx ends.
func (h *engineRunner) stand(ctx context.Context, lead func(term context.Context)) {
	if h.elector == nil {
		lead(ctx)
		return
	}
	if err := h.elector.Stand(ctx, lead); err != nil {
		klog.FromContext(ctx).Error(err, "The next server cannot run controllers at once")
	}
}

// await waits for an engine whose term is over. One that does not end after the Lease was lost could do what the next one does: it is ended
// with the process, and false is returned.
func (h *engineRunner) await(term context.Context, ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-time.After(engineGrace):
	}
	lost := errors.Is(context.Cause(term), leaderelection.ErrLost)
	if lost {
		h.fail(fmt.Errorf("controllers did not stop within %s after %w", engineGrace, leaderelection.ErrLost))
	}
	<-ended
	return !lost
}

// shutdown stops the engine and waits for it, for engineGrace at most.
func (h *engineRunner) shutdown() error {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(engineGrace):
		klog.FromContext(h.ctx).Error(nil, "Controllers did not stop in time; what they were doing is done again after the next start",
			"grace", engineGrace)
	}
	return nil
}

// named returns a copy of a client configuration with this program's user agent, and without compression of responses, as in
// kube-controller-manager: compressing what a controller reads takes the API server longer than sending it.
func named(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.DisableCompression = true
	c.UserAgent = apiserver.Name + "/" + version.Get().GitVersion
	return c
}

// unlimited is named without a client-side rate limit: both API servers have API Priority and Fairness.
func unlimited(c *rest.Config) *rest.Config {
	c = named(c)
	c.QPS = -1
	return c
}

// elect has the runner wait for the Lease that the options name, if they want an election. Alone says that no other process uses the data
// directory, as where the storage is embedded.
func (h *engineRunner) elect(o options.Completed, cluster *rest.Config, alone bool) error {
	election := o.LeaderElection
	if !election.LeaderElect {
		return nil
	}
	// Renewals wait neither for the engine's limit nor for its requests.
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(unlimited(cluster), "leader-election"))
	if err != nil {
		return fmt.Errorf("creating a client for the leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the name of this host: %w", err)
	}
	config := leaderelection.Config{
		Client:    client.CoordinationV1(),
		Namespace: election.ResourceNamespace, Name: election.ResourceName,
		Identity:      host + "_" + string(uuid.NewUUID()),
		LeaseDuration: election.LeaseDuration.Duration, RenewDeadline: election.RenewDeadline.Duration, RetryPeriod: election.RetryPeriod.Duration,
		CreateNamespace: func(ctx context.Context) error {
			return createNamespace(ctx, client.CoreV1(), election.ResourceNamespace)
		},
	}
	if alone {
		last := leaderFile{path: filepath.Join(o.Storage.DataDir, "leader"), host: host}
		if config.Former, err = last.read(); err != nil {
			return err
		}
		h.leads = func(ctx context.Context) {
			if err := last.write(config.Identity); err != nil {
				klog.FromContext(ctx).Error(err, "After a crash, the next start has to wait for the Lease")
			}
		}
	}
	elector, err := leaderelection.New(config)
	if err != nil {
		return err
	}
	h.elector = elector
	h.config.Inspection.Explain(func() (string, bool) {
		return absence(elector.Holder(), config.Identity, elector.Failure()), elector.Vacant() < vacancy
	})
	return nil
}

// vacancy is how long nobody holds the Lease until the statuses of controllers count as outdated. It is longer than a hand-over.
const vacancy = 10 * time.Second

// absence says which server runs controllers. Failure is why this one cannot take the Lease, if that is so.
func absence(holder, own string, failure error) string {
	switch holder {
	case "":
		if apierrors.IsForbidden(failure) {
			return fmt.Sprintf("this server cannot run controllers, because it may not take the Lease: %v. See rights-leader-election in what "+
				"'metacontroller-apiserver preflight' prints", failure)
		}
		if failure != nil {
			return fmt.Sprintf("this server cannot take the Lease, and so does not run controllers: %v", failure)
		}
		return "no server runs controllers at present. One is about to: try again"
	case own:
		return "this server is about to run controllers: try again"
	default:
		return fmt.Sprintf("controllers are run by another server, %s, which answers this. The first part is the name of its Pod or host", holder)
	}
}

// createNamespace creates the namespace of the Lease where nobody has: a server outside of the cluster may start before it is registered.
func createNamespace(ctx context.Context, client typedcorev1.NamespacesGetter, name string) error {
	_, err := client.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the namespace of the Lease: %w", err)
	}
	return nil
}

// leaderFile has the identity of the process that led with this data directory last. Since one process at a time uses the directory, a
// process that reads another's identity in it knows that the other one has ended, and need not wait for its Lease.
type leaderFile struct {
	path string
	// host is the name of this host. What another one wrote does not count: the directory may be a copy. Nor does what stands in another file
	// than the one that was written, as in a copy on the same host.
	host string
}

// read returns the identity, empty if there is none that counts.
func (f leaderFile) read() (string, error) {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading which process led last: %w", err)
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return "", fmt.Errorf("reading which process led last: %w", err)
	}
	identity, inode, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	if !strings.HasPrefix(identity, f.host+"_") || inode != inodeOf(info) {
		return "", nil
	}
	return identity, nil
}

// inodeOf returns the number of a file, which a copy of it does not have. It stays when the file is renamed.
func inodeOf(info fs.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(stat.Ino, 10)
	}
	return ""
}

func (f leaderFile) write(identity string) error {
	next := f.path + ".new"
	err := writeWithInode(next, identity)
	if err == nil {
		err = os.Rename(next, f.path)
	}
	if err != nil {
		return fmt.Errorf("writing which process leads: %w", err)
	}
	return nil
}

func writeWithInode(path, identity string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = fmt.Fprintln(file, identity, inodeOf(info))
	}
	return errors.Join(err, file.Close())
}

// runControllers creates the controller manager that the flags configure: the one place where the two halves meet.
func runControllers(ctx context.Context, c EngineConfig) (Engine, error) {
	destinations, err := c.Controllers.Webhooks.Destinations(c.Port)
	if err != nil {
		return nil, err
	}
	return manager.New(ctx, manager.Config{
		Loopback: c.Loopback,
		Cluster:  c.Cluster,
		Elected:  c.Elected,
		Options: reconciler.Options{
			Workers:             c.Controllers.Workers,
			CacheFlushInterval:  c.Controllers.CacheFlushInterval,
			ClientQPS:           c.Controllers.ClientQPS,
			ClientBurst:         c.Controllers.ClientBurst,
			EventsQPS:           c.Controllers.EventsQPS,
			EventsBurst:         c.Controllers.EventsBurst,
			TargetLabelSelector: c.Controllers.TargetLabelSelector,
			ServerSideApply:     c.Controllers.ApplyStrategy == options.ServerSideApply,
			FieldManager:        c.Controllers.FieldManager,
			TracerProvider:      c.TracerProvider,
			HookManagedFields:   c.Controllers.HookManagedFields,
			HookResponseLimit:   c.Controllers.HookResponseLimit.Value(),
			HookRequestBudget:   c.Controllers.HookRequestBudget.Value(),
			HookResponseBudget:  c.Controllers.HookResponseBudget.Value(),
			HookEtagBudget:      c.Controllers.HookEtagBudget.Value(),
			HookDestinations:    destinations,
			HookRefuseRedirects: c.Controllers.Webhooks.Redirects == options.NoRedirects,
			SyncHistoryBytes:    cmp.Or(c.Controllers.SyncHistoryBytes.Value(), -1), // The flag's 0 says that syncs are not recorded.
			ServerNamespace:     c.Controllers.Namespace,
		},
	})
}
