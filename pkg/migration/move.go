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

package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

// Options describe a move.
type Options struct {
	// Config reaches the cluster, as an administrator.
	Config *rest.Config
	// Service is that of this server, and Port its port. Its namespace has the Lease and the state.
	Service types.NamespacedName
	Port    int
	// CABundle is the authority of the server's certificate, PEM. Back opens the way to the server again if it has it, and Finish does without.
	CABundle []byte
	// Lease is the name of the Lease of the server that runs controllers.
	Lease string
	// Metacontroller is the StatefulSet or Deployment of the engine that runs with definitions. Empty: none runs.
	Metacontroller types.NamespacedName
	// Timeout is how long to wait for each thing that others have to do.
	Timeout time.Duration
	// SkipPlan leaves out what Forward finds out by hooks before anything stops, PlanTimeout is how long that may take, and AllowChanges has it go on
	// though children would change.
	SkipPlan, AllowChanges bool
	PlanTimeout            time.Duration
	// Out receives a line for each step, and for what is to be known.
	Out io.Writer
}

const (
	// fieldManager is the name under which objects are written. The freeze lets it pass.
	fieldManager = "metacontroller-apiserver-migrate"
	// pollInterval is the pause between two looks at what others have to do.
	pollInterval = 50 * time.Millisecond
	// pageSize is how many objects are listed at a time.
	pageSize = 500
)

// move is one run of the command.
type move struct {
	Options

	kube    kubernetes.Interface
	dynamic dynamic.Interface
	store   stateStore
	state   *state
	user    string
	// rehearsed is the name of the object of which warnings are printed. Empty: none are.
	rehearsed string
	// answered says that the engine of this server has answered a request for a plan, or was waited for.
	answered bool
	// stopped is when this process has stopped the engine that ran.
	stopped time.Time
}

// The times of the Lease of the command's runs are those of Kubernetes' own controllers.
const leaseDuration, renewDeadline, retryPeriod = 15 * time.Second, 10 * time.Second, 2 * time.Second

// alone runs the command in a direction while this process holds a Lease of the command's own. Nothing is written without it, whatever the process
// was doing when it lost it.
func alone(ctx context.Context, o Options, d func(m *move, ctx context.Context) error) error {
	client, err := coordinationclient.NewForConfig(o.Config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the name of this host: %w", err)
	}
	elector, err := leaderelection.New(leaderelection.Config{
		Client: client, Namespace: o.Service.Namespace, Name: ConfigMapName, Identity: host + "_" + string(uuid.NewUUID()),
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
	})
	if err != nil {
		return err
	}
	if found, err := client.Leases(o.Service.Namespace).Get(ctx, ConfigMapName, metav1.GetOptions{}); err == nil && ptr.Deref(found.Spec.HolderIdentity, "") != "" {
		o.sayf("Waiting for another run of the command, that of %s. If it was killed, this takes %s.", *found.Spec.HolderIdentity, leaseDuration)
	}
	o.Config = rest.CopyConfig(o.Config)
	o.Config.Wrap(elector.Fence().Wrap)
	standing, withdraw := context.WithCancel(klog.NewContext(ctx, klog.Logger{})) // The command prints what is to be known.
	defer withdraw()
	waiting := time.AfterFunc(leaseDuration+2*retryPeriod, withdraw)
	elected := false
	var moved error
	released := elector.Stand(standing, func(term context.Context) {
		if elected = waiting.Stop(); !elected {
			return
		}
		var m *move
		if m, moved = newMove(term, o); moved == nil {
			moved = d(m, term)
		}
	})
	switch {
	case elected && moved == nil && released != nil:
		o.sayf("%v", released)
		return nil
	case elected || ctx.Err() != nil:
		return cmp.Or(moved, ctx.Err())
	case elector.Holder() == "":
		return fmt.Errorf("taking Lease %s/%s, with which the command runs alone: %w", o.Service.Namespace, ConfigMapName, elector.Failure())
	}
	return fmt.Errorf("another run of the command is under way, that of %s, which holds Lease %s/%s: let it end", elector.Holder(), o.Service.Namespace, ConfigMapName)
}

// newMove connects, and loads the state.
func newMove(ctx context.Context, o Options) (*move, error) {
	m := &move{Options: o}
	m.Config = rest.CopyConfig(o.Config)
	m.Config.WarningHandler = m
	kube, err := kubernetes.NewForConfig(m.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if m.dynamic, err = dynamic.NewForConfig(m.Config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	m.kube, m.store.client = kube, kube.CoreV1().ConfigMaps(o.Service.Namespace)
	if m.state, err = m.store.load(ctx); err != nil {
		return nil, err
	}
	self, err := kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking the cluster who this is: %w", err)
	}
	m.user = self.Status.UserInfo.Username
	return m, nil
}

func (o *Options) sayf(format string, arguments ...any) {
	_, _ = fmt.Fprintf(o.Out, format+"\n", arguments...) // Nobody is helped when that fails.
}

// HandleWarningHeader prints what an API server warns of while the objects are rehearsed.
func (m *move) HandleWarningHeader(_ int, _, text string) {
	if m.rehearsed != "" && text != "" {
		m.sayf("  %s: %s", m.rehearsed, text)
	}
}

// run runs the steps of a direction from where it was interrupted.
func (m *move) run(ctx context.Context, steps []step) error {
	save := func(ctx context.Context, name string) error {
		m.state.Step = name
		return m.store.save(ctx, m.state)
	}
	return proceed(ctx, steps, m.state.Step, save, func(line string) { m.sayf("%s", line) })
}

// repeat has the next run go on after an earlier step, because of an error.
func (m *move) repeat(ctx context.Context, after string, why error) error {
	m.state.Step = after
	if err := m.store.save(ctx, m.state); err != nil {
		return err
	}
	return why
}

// await polls until something is so, or Timeout is over. The last thing that was seen is said then.
func (m *move) await(ctx context.Context, what string, is func(ctx context.Context) (bool, string)) error {
	seen := ""
	err := wait.PollUntilContextTimeout(ctx, pollInterval, m.Timeout, true, func(ctx context.Context) (bool, error) {
		done, now := is(ctx)
		if !done && ctx.Err() == nil {
			seen = now
		}
		return done, nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("waited %s for %s: %s", m.Timeout, what, seen)
	}
	return err
}

// list returns the objects of all kinds, from whoever serves the group or from behind the door.
func (m *move) list(ctx context.Context, behindDoor bool) (objects, error) {
	all := objects{}
	for _, k := range kinds() {
		resource := k.served()
		if behindDoor {
			resource = k.stored()
		}
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return m.dynamic.Resource(resource).List(ctx, o)
		})
		list.PageSize = pageSize
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			o, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("the list has a %T", item)
			}
			// The items of a list may lack them.
			o.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
			o.SetKind(k.name)
			all[keyOf(k, o)] = o
			return nil
		})
		if behindDoor && apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w: if there is no APIService %s.%s, run --back in the Pod of this server, or with --ca-file or --ca-secret, which makes it again",
				err, doorVersion, Group)
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
		}
	}
	return all, nil
}

// kindOf returns the kind of a listed object.
func kindOf(o *unstructured.Unstructured) kind {
	for _, k := range kinds() {
		if k.name == o.GetKind() {
			return k
		}
	}
	return kind{}
}

// behindDoor is the client for an object of the server's store.
func (m *move) behindDoor(o *unstructured.Unstructured) dynamic.ResourceInterface {
	return m.dynamic.Resource(kindOf(o).stored()).Namespace(o.GetNamespace())
}

// put has the server's store have an object as it is.
func (m *move) put(ctx context.Context, o *unstructured.Unstructured, dryRun bool) error {
	options := metav1.UpdateOptions{FieldManager: fieldManager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := m.behindDoor(o).Update(ctx, o, options)
	return err
}

// removeCopy removes an object from the server's store. One that is not there is no error.
func (m *move) removeCopy(ctx context.Context, o *unstructured.Unstructured) error {
	uid := o.GetUID()
	err := m.behindDoor(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the copy of %s: %w", keyOf(kindOf(o), o), err)
	}
	return nil
}

// servers asks the server that responds behind the door what it does.
func (m *move) servers(ctx context.Context) (serverReport, error) {
	var report serverReport
	text, err := m.kube.Discovery().RESTClient().Get().AbsPath(DoorPath, serversResource).DoRaw(ctx)
	if err == nil {
		err = decodeReport(text, &report)
	}
	if err != nil {
		return report, fmt.Errorf("asking this server whether it runs controllers: %w", err)
	}
	return report, nil
}

// servedHere reports whether this server serves the group in the cluster.
func (m *move) servedHere(ctx context.Context) (bool, error) {
	list := &metav1.APIResourceList{}
	err := m.kube.Discovery().RESTClient().Get().AbsPath("/apis", v1alpha1.GroupName, v1alpha1.SchemeGroupVersion.Version).Do(ctx).Into(list)
	if err != nil {
		return false, fmt.Errorf("asking who serves %s: %w", v1alpha1.GroupName, err)
	}
	return registration.ByServer(list.APIResources), nil
}

// requireDefinitions returns the error that a definition is missing.
func (m *move) requireDefinitions(ctx context.Context) error {
	existing, err := registration.Inspect(ctx, m.Config)
	if err != nil {
		return err
	}
	var missing []string
	for _, k := range kinds() {
		if !slices.Contains(existing.Definitions, k.definition()) {
			missing = append(missing, k.definition())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the cluster has no CustomResourceDefinition %s, and a move is from or to Metacontroller's three", strings.Join(missing, ", "))
	}
	return nil
}

// errChanged is what ends a move in which the objects were changed by someone else.
var errChanged = errors.New("they were changed since they were copied: see who may pass ValidatingAdmissionPolicy " + freezeName +
	"; run the command again, which copies them once more")
