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

// Package replicas checks servers of which one runs the controllers: two replicas over one store, and two servers with a store each. One ends
// in order, is killed, or stands still for longer than its Lease lasts and goes on; the audit log of the kube-apiserver shows who wrote what,
// since each replica acts as a user of its own.
//
// With FAULTS_LONG=1 replicas stand still for a minute, and there are ten times as many parents.
package replicas

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/trio"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/tcpproxy"
)

// TestOneReplicaRunsTheControllers looks at two replicas at rest.
func TestOneReplicaRunsTheControllers(t *testing.T) {
	p := start(t, times{time.Minute, 40 * time.Second, 2 * time.Second})
	p.second.leads(t, false)
	p.churn()
	p.rounds(3)
	p.settle()
	if writes := p.requestsOf(p.second); len(writes) > 0 {
		t.Errorf("the replica that waits made %d requests that write, the first of which is %s", len(writes), cluster.AuditedRequest(&writes[0]))
	}
	p.judge()
	p.figures.Sayf("while parents change, the one that waits writes nothing")
	if status, err := p.second.Get(t.Context(), "/readyz"); status != 200 {
		t.Errorf("the replica that waits is not ready: %d %v", status, err)
	}
	// Its caches are filled.
	cluster.Eventually(t, limit, "the caches of the replica that waits", func(ctx context.Context) (bool, string) {
		page, err := p.second.Metrics(ctx, "metacontroller_cache_objects")
		if err != nil {
			return false, err.Error()
		}
		things, _ := page.Value("metacontroller_cache_objects", "resource", fixture.Things.GroupResource().String())
		children, _ := page.Value("metacontroller_cache_objects", "resource", "configmaps")
		return int(things) >= len(p.parents) && int(children) >= len(p.parents), fmt.Sprint(things, children)
	})
	// The API of the cluster leads to the second one, which knows who could answer.
	lease, err := p.Kube.CoordinationV1().Leases(leaseNamespace).Get(t.Context(), p.lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/" + p.controller.Name + "/parents"
	output, err := p.TryKubectl(t.Context(), "", "get", "--raw", path)
	if err == nil || !strings.Contains(output, *lease.Spec.HolderIdentity) {
		t.Errorf("the replica that waits answers %v: %s\nbut the Lease is held by %s", err, output, *lease.Spec.HolderIdentity)
	}
	// Where requests reach both, the one that waits sends the client to the other one. Each has an authority of its own here.
	const apiService = "v1alpha1.metacontroller.k8s.io"
	registered := p.Kubectl(t, "get", "apiservice", apiService, "--output=jsonpath={.spec}")
	both := tcpproxy.Start(t, fmt.Sprintf("127.0.0.1:%d", p.second.Port()), fmt.Sprintf("127.0.0.1:%d", p.first.Port()))
	p.Kubectl(t, "patch", "apiservice", apiService, "--type=merge",
		fmt.Sprintf(`--patch={"spec":{"caBundle":null,"insecureSkipTLSVerify":true,"service":{"port":%d}}}`, both.Port()))
	cluster.Eventually(t, limit, "the kube-apiserver to ask both", func(ctx context.Context) (bool, string) {
		output, err := p.TryKubectl(ctx, "", "get", "--raw", path)
		return err == nil, output
	})
	for range 3 {
		if output := p.Kubectl(t, "get", "--raw", path); !strings.Contains(output, p.parents[0]) {
			t.Errorf("kubectl prints\n%s", output)
		}
	}
	p.Kubectl(t, "patch", "apiservice", apiService, "--type=json", fmt.Sprintf(`--patch=[{"op":"replace","path":"/spec","value":%s}]`, registered))
	// What they serve is the same.
	p.Kubectl(t, "get", "compositecontroller", p.controller.Name)
}

// TestAReplicaThatEndsHandsOver has the Lease last a minute: the second replica runs the controllers before it could have expired.
func TestAReplicaThatEndsHandsOver(t *testing.T) {
	x := times{time.Minute, 40 * time.Second, 2 * time.Second}
	p := start(t, x)
	p.churn()
	p.rounds(3)
	asked := time.Now()
	if err := p.first.Stop(); err != nil {
		t.Error(err)
	}
	p.takesOver(p.second, "ended in order", asked, x.lease)
	p.rounds(3)
	p.settle()
	p.judge()
}

// A pair are two replicas over one store, with a controller whose parents change all the time.
type pair struct {
	*fixture.Test

	// first leads at the start. The API of the cluster leads to the second.
	first, second *replica
	lease         string
	script        *fixture.Script
	controller    *controllers.Controller
	parents       []string
	figures       *report.Figures
	// stop ends the changes of the parents.
	stop func()

	mu    sync.Mutex
	round int
}

// takesOver waits until a replica writes after the leader ended somehow, and checks that it did within a time.
func (p *pair) takesOver(r *replica, how string, since time.Time, within time.Duration) {
	p.T.Helper()
	var took time.Duration
	cluster.Eventually(p.T, limit, r.user+" to write", func(context.Context) (bool, string) {
		at, found := p.firstAfter(r, since)
		took = at.Sub(since)
		return found, "it has not"
	})
	p.figures.Sayf("%s: the other one wrote %s later", how, took.Round(10*time.Millisecond))
	if within > 0 && took >= within {
		p.T.Errorf("%s began %s after the other one ended, when its Lease had expired", r.user, took)
	}
}

func TestAReplicaThatIsKilledIsReplaced(t *testing.T) {
	p := start(t, defaults)
	p.churn()
	p.rounds(3)
	p.first.leads(t, true)
	killed := time.Now()
	p.first.Kill()
	p.takesOver(p.second, "killed", killed, 0)
	p.rounds(3)
	p.settle()
	p.judge()
}

// TestAReplicaThatStoodStillWritesNothing stops a replica in the middle of its work for longer than its Lease lasts. When
// it goes on, it sends what it was about to send: one write for each parent at most, and one for the controller.
func TestAReplicaThatStoodStillWritesNothing(t *testing.T) {
	p := start(t, defaults)
	p.churn()
	p.rounds(3)
	p.first.leads(t, true)
	stopped := time.Now()
	p.first.Suspend()
	p.takesOver(p.second, "stopped", stopped, 0)
	p.rounds(10)
	p.aMinuteAfter(stopped)
	logged := p.first.logged(t)
	goesOn := time.Now()
	p.first.Resume()
	p.first.seesThatItLeadsNoMore(t, logged)
	p.rounds(10)
	p.refused("stood still", p.withoutLease(p.first, goesOn), len(p.parents)+1)
	p.leadsAgain()
}

// TestAReplicaThatIsCutOffWritesNothing cuts a replica off from the kube-apiserver and from etcd in the middle of its work, but not from
// the hook. What it has sent arrives when it is connected again.
func TestAReplicaThatIsCutOffWritesNothing(t *testing.T) {
	c := cluster.Shared(t)
	toAPIServer, apiServer := tcpproxy.StartURL(t, c.Config(t).Host)
	proxies, servers := []*tcpproxy.Proxy{toAPIServer}, store(t)
	var etcd []string
	for server := range strings.SplitSeq(servers, ",") {
		to, address := tcpproxy.StartURL(t, server)
		proxies, etcd = append(proxies, to), append(etcd, address)
	}
	p := startApart(t, defaults, apiServer, strings.Join(etcd, ","), servers)
	p.churn()
	p.rounds(3)
	p.first.leads(t, true)
	cut := time.Now()
	logged := p.first.logged(t)
	for _, each := range proxies {
		each.Cut()
	}
	p.takesOver(p.second, "cut off", cut, 0)
	p.first.seesThatItLeadsNoMore(t, logged)
	p.rounds(10)
	p.aMinuteAfter(cut)
	connected := time.Now()
	for _, each := range proxies {
		each.Restore()
	}
	p.rounds(10)
	p.refused("was cut off", p.withoutLease(p.first, connected), math.MaxInt)
	p.leadsAgain()
}

// aMinuteAfter waits until a minute is over since a time, in the long form.
func (p *pair) aMinuteAfter(since time.Time) {
	p.T.Helper()
	if report.Long() {
		cluster.Eventually(p.T, limit, "a minute to be over", func(context.Context) (bool, string) { return time.Since(since) > time.Minute, "" })
	}
}

// leadsAgain has the second replica end, and waits until the first one, which stands for election again, has taken over and all is at rest.
func (p *pair) leadsAgain() {
	p.T.Helper()
	asked := time.Now()
	if err := p.second.Stop(); err != nil {
		p.T.Error(err)
	}
	p.takesOver(p.first, "ended in order", asked, 0)
	p.second.Restart() // The API of the cluster leads to it.
	p.settle()
	p.judge()
}

const (
	limit = cluster.Limit
	// pace is how long the parents rest between their changes while a replica is disturbed, and while a Lease expires.
	pace = 250 * time.Millisecond
	// leaseNamespace is where servers keep their Lease, unless a flag says otherwise.
	leaseNamespace = "metacontroller"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, cluster.Audit)) }

// times are those of an election.
type times struct{ lease, renew, retry time.Duration }

// defaults are those of the server: with less, busy machines lose Leases that nobody disturbs.
var defaults = times{lease: 15 * time.Second, renew: 10 * time.Second, retry: 2 * time.Second}

func (x times) flags() []string {
	return []string{
		"--leader-elect-lease-duration=" + x.lease.String(),
		"--leader-elect-renew-deadline=" + x.renew.String(),
		"--leader-elect-retry-period=" + x.retry.String(),
	}
}

// A replica is a server, and the user as whom it acts.
type replica struct {
	*server.Server

	user string
	// audit is the audit log of its own API.
	audit string
}

// leads reports whether the replica says that it runs controllers.
func (r *replica) leads(t *testing.T, want bool) {
	t.Helper()
	cluster.EventuallyEvery(t, 200*time.Millisecond, limit, fmt.Sprintf("%s to run controllers: %t", r.user, want),
		func(ctx context.Context) (bool, string) {
			page, err := r.Metrics(ctx, "metacontroller_engine_running")
			if err != nil {
				return false, err.Error()
			}
			running, found := page.Value("metacontroller_engine_running")
			return found && (running == 1) == want, fmt.Sprint(running, found)
		})
}

// logged returns how long the log of the replica is.
func (r *replica) logged(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(r.Log())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// seesThatItLeadsNoMore waits until the replica has logged so, behind a place in its log.
func (r *replica) seesThatItLeadsNoMore(t *testing.T, behind int64) {
	t.Helper()
	cluster.Eventually(t, limit, r.user+" to see that it leads no more", func(context.Context) (bool, string) {
		log, err := os.ReadFile(r.Log())
		return err == nil && strings.Contains(string(log[behind:]), "This process leads no more"), "its log does not say so"
	})
}

// options are those of a replica that acts as a user. It reaches the kube-apiserver at an address of its own, unless that is empty.
func options(t *testing.T, c *cluster.Cluster, address, user, lease string, args ...string) (o server.Options, audit string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	for _, info := range config.Clusters {
		info.Server = cmp.Or(address, info.Server)
	}
	folder := t.TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "create", "clusterrolebinding", user, "--clusterrole=cluster-admin", "--user="+user)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if output, err := c.TryKubectl(ctx, "", "delete", "clusterrolebinding", user); err != nil {
			t.Errorf("deleting the rights of %s: %v\n%s", user, err, output)
		}
	})
	policy := filepath.Join(folder, "policy.yaml")
	if err := os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`), 0o600); err != nil {
		t.Fatal(err)
	}
	audit = filepath.Join(folder, "audit.log")
	// Requests under way are broken off when a Lease is lost.
	return server.Options{Kubeconfig: kubeconfig, Tolerate: []string{"context canceled"}, Args: append([]string{
		"--leader-elect-resource-name=" + lease, "--audit-policy-file=" + policy, "--audit-log-path=" + audit,
	}, args...)}, audit
}

// start starts two replicas and a controller with parents.
func start(t *testing.T, x times) *pair {
	t.Helper()
	servers := store(t)
	return startApart(t, x, "", servers, servers)
}

// store returns the addresses of an etcd: in the long form of three members that nobody else uses.
func store(t *testing.T) string {
	t.Helper()
	c := cluster.Shared(t)
	if report.Long() {
		return trio.New(t, c).Servers()
	}
	return c.EtcdServers
}

// startApart is start where the first replica reaches the kube-apiserver and etcd at addresses of its own.
func startApart(t *testing.T, x times, apiServer, etcd, servers string) *pair {
	t.Helper()
	c := cluster.Shared(t)
	lease := strings.ToLower(t.Name())
	args := append(x.flags(), "--etcd-prefix=/"+lease)
	p := &pair{lease: lease, figures: report.For(t, report.Replicas)}
	o, audit := options(t, c, apiServer, lease+"-first", lease, append(args, "--etcd-servers="+etcd)...)
	e := fixture.SetUp(t, fixture.Options{Limit: limit, Server: o})
	p.first = &replica{Server: e.Server, user: lease + "-first", audit: audit}
	p.first.leads(t, true)
	o, audit = options(t, c, "", lease+"-second", lease, append(args, "--etcd-servers="+servers)...)
	p.second = &replica{Server: server.Start(t, c, o), user: lease + "-second", audit: audit}
	p.Test = e.NewTest(t)
	p.script = e.NewScript(fixture.Composite)
	p.script.Respond(copyRound)
	p.Handle("/hook", p.script)
	p.controller = p.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: p.At("/hook"),
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	})
	for i := range report.Pick(12, 120) {
		name := fmt.Sprintf("parent-%d", i)
		p.parents = append(p.parents, name)
		p.Parent(name, map[string]any{"round": "0"})
	}
	p.converged()
	return p
}

// copyRound wants a ConfigMap with the round of the parent.
func copyRound(c *fixture.Call) (*fixture.Reply, error) {
	round := fixture.Value(c.Parent, "spec", "round")
	return &fixture.Reply{
		Children: []*hook.Object{fixture.ConfigMap(c.Parent.GetName(), map[string]any{"round": round})},
		Status:   map[string]any{"round": round},
	}, nil
}

// churn changes all parents again and again, until the test ends or settle is called.
func (p *pair) churn() {
	ctx, cancel := context.WithCancel(p.T.Context())
	ended := make(chan struct{})
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	p.T.Cleanup(p.stop)
	go func() {
		defer close(ended)
		wait.UntilWithContext(ctx, func(ctx context.Context) { p.change(ctx) }, pace)
	}()
}

// change changes every parent once. Its requests finish whatever happens.
func (p *pair) change(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round++
	patch := []byte(`{"spec":{"round":"` + strconv.Itoa(p.round) + `"}}`)
	things := p.Dynamic.Resource(fixture.Things).Namespace(p.Name)
	for _, name := range p.parents {
		if _, err := things.Patch(context.WithoutCancel(ctx), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			p.T.Errorf("changing a parent: %v", err)
			return
		}
	}
}

// rounds waits until the parents were changed so often again.
func (p *pair) rounds(more int) {
	p.T.Helper()
	p.mu.Lock()
	wanted := p.round + more
	p.mu.Unlock()
	cluster.Eventually(p.T, limit, "further changes", func(context.Context) (bool, string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.round >= wanted, strconv.Itoa(p.round)
	})
}

// settle ends the changes, and waits until each parent has its one child as it is now.
func (p *pair) settle() {
	p.T.Helper()
	p.stop()
	p.converged()
}

func (p *pair) converged() {
	p.T.Helper()
	wanted := strconv.Itoa(p.round)
	for _, name := range p.parents {
		p.Await(fixture.ConfigMaps, name, "to have round "+wanted, func(o *unstructured.Unstructured) bool {
			return o != nil && fixture.Value(o, "data", "round") == wanted
		})
	}
	list, err := p.Kube.CoreV1().ConfigMaps(p.Name).List(p.T.Context(), metav1.ListOptions{})
	if err != nil {
		p.T.Fatal(err)
	}
	for _, o := range list.Items {
		if o.Name != "kube-root-ca.crt" && metav1.GetControllerOf(&o) == nil {
			p.T.Errorf("the ConfigMap %s has no parent", o.Name)
		}
	}
	if got, want := len(list.Items), len(p.parents)+1; got > want {
		p.T.Errorf("there are %d ConfigMaps, not %d", got, want)
	}
}

// never are the times of a Lease that does not expire within a test.
var never = []string{"--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=50m"}

// embedded starts a server with an etcd of its own.
func embedded(t *testing.T, lease string, args ...string) *replica {
	t.Helper()
	s := server.Start(t, cluster.Shared(t), server.Options{Args: append([]string{"--leader-elect-resource-name=" + lease}, args...)})
	return &replica{Server: s, user: "the first server"}
}

// greeter runs a controller with one parent, and waits until that has its child.
func greeter(t *testing.T, e *fixture.Environment) (*fixture.Test, *fixture.Script) {
	t.Helper()
	test, script := e.NewTest(t), e.NewScript(fixture.Composite)
	script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
		return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("child", nil)}}, nil
	})
	test.Handle("/hook", script)
	test.Parent("parent", map[string]any{})
	return test, script
}

func definition(test *fixture.Test) fixture.Definition {
	return fixture.Definition{
		Kind: fixture.Composite, Sync: test.At("/hook"),
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	}
}

// TestASecondServerWaits starts a server with a store of its own over a cluster that has one.
func TestASecondServerWaits(t *testing.T) {
	lease := strings.ToLower(t.Name())
	first := embedded(t, lease, never...)
	first.leads(t, true)
	e := fixture.SetUp(t, fixture.Options{Limit: limit, Server: server.Options{Args: append([]string{"--leader-elect-resource-name=" + lease}, never...)}})
	second := &replica{Server: e.Server, user: "the second server"}
	second.leads(t, false)
	test, script := greeter(t, e)
	controller := test.Declare(definition(test))
	second.leads(t, false)
	// It has time for a call until the first one has renewed its Lease twice.
	declared := time.Now()
	cluster.Eventually(t, limit, "the first server to renew its Lease twice", func(ctx context.Context) (bool, string) {
		held, err := e.Kube.CoordinationV1().Leases(leaseNamespace).Get(ctx, lease, metav1.GetOptions{})
		if err != nil || held.Spec.RenewTime == nil {
			return false, fmt.Sprint(held, err)
		}
		return held.Spec.RenewTime.After(declared.Add(2 * defaults.retry)), held.Spec.RenewTime.String()
	})
	if calls := script.All(); calls > 0 {
		t.Errorf("the hook was called %d times by a server that waits", calls)
	}
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	controller.AwaitReady()
	second.leads(t, true)
	test.Await(fixture.ConfigMaps, "child", "to be there", func(o *hook.Object) bool { return o != nil })
}

// TestAServerThatCrashedGoesOnAtOnce has the Lease last an hour: who is restarted on the data directory of its holder does not wait for it.
func TestAServerThatCrashedGoesOnAtOnce(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{
		Limit: limit, Server: server.Options{Args: append([]string{"--leader-elect-resource-name=" + strings.ToLower(t.Name())}, never...)},
	})
	test, script := greeter(t, e)
	test.Run(definition(test))
	script.AwaitCalls(t, "parent", 1)
	e.Server.Kill()
	calls := script.Calls("parent")
	e.Server.Restart()
	(&replica{Server: e.Server, user: "the server"}).leads(t, true)
	script.AwaitCalls(t, "parent", calls+1)
}

// TestTheAPIIsServedWithoutControllers is what a server is for whose controllers must not run.
func TestTheAPIIsServedWithoutControllers(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Limit: limit, Server: server.Options{Args: []string{"--enable-controllers=false"}}})
	(&replica{Server: e.Server, user: "the server"}).leads(t, false)
	test, script := greeter(t, e)
	controller := test.Declare(definition(test))
	if status, err := e.Server.Get(t.Context(), "/readyz"); status != 200 {
		t.Errorf("the server is not ready: %d %v", status, err)
	}
	output, err := e.TryKubectl(t.Context(), "", "get", "--raw", "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/"+controller.Name+"/parents")
	if err == nil || !strings.Contains(output, "--enable-controllers=false") {
		t.Errorf("the server answers %v: %s", err, output)
	}
	o, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().Get(t.Context(), controller.Name, metav1.GetOptions{})
	if err != nil || len(o.Status.Conditions) != 1 || o.Status.Conditions[0].Reason != v1alpha1.ReasonPending {
		t.Errorf("the controller has the conditions %v: %v", o.Status.Conditions, err)
	}
	if output := e.Kubectl(t, "get", "compositecontroller", controller.Name); !strings.Contains(output, "the status of controllers may be from before") {
		t.Errorf("kubectl does not warn of the status:\n%s", output)
	}
	// Each change is stored, though nobody knows what it does.
	args := []string{"patch", "compositecontroller", controller.Name, "--type=merge", "-p", `{"spec":{"resyncPeriodSeconds":77}}`}
	if output := e.Kubectl(t, append(args, "--dry-run=server")...); !strings.Contains(output, "Warning: what syncs would do was not looked at: ") {
		t.Errorf("kubectl does not say that nothing is known:\n%s", output)
	}
	if output := e.Kubectl(t, args...); strings.Contains(output, "what syncs would do") {
		t.Errorf("kubectl warns of what nobody looked at:\n%s", output)
	}
	cluster.Eventually(t, limit, "the change", func(ctx context.Context) (bool, string) {
		o, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().Get(ctx, controller.Name, metav1.GetOptions{})
		return err == nil && o.Spec.ResyncPeriodSeconds != nil && *o.Spec.ResyncPeriodSeconds == 77, "it is not there"
	})
	if calls := script.All(); calls > 0 {
		t.Errorf("the hook was called %d times", calls)
	}
}

// requestsOf returns what a replica wrote in the case's namespace, in the order of the kube-apiserver, refused or not.
func (p *pair) requestsOf(r *replica) []auditv1.Event {
	p.T.Helper()
	return slices.DeleteFunc(p.Audited(p.T, p.Name), func(e auditv1.Event) bool { return user(&e) != r.user })
}

// user is as whom a request was made.
func user(e *auditv1.Event) string {
	if e.ImpersonatedUser != nil {
		return e.ImpersonatedUser.Username
	}
	return e.User.Username
}

func succeeded(e *auditv1.Event) bool { return e.ResponseStatus == nil || e.ResponseStatus.Code < 300 }

// firstAfter returns when the first successful write of a replica after a time was received.
func (p *pair) firstAfter(r *replica, after time.Time) (time.Time, bool) {
	p.T.Helper()
	for _, e := range p.requestsOf(r) {
		if succeeded(&e) && e.RequestReceivedTimestamp.After(after) {
			return e.RequestReceivedTimestamp.Time, true
		}
	}
	return time.Time{}, false
}

// renewal is a successful write of the Lease.
type renewal struct {
	at time.Time
	by string
}

// renewals returns the writes of the Lease in their order.
func (p *pair) renewals() (list []renewal) {
	p.T.Helper()
	for _, e := range p.Audited(p.T, leaseNamespace) {
		if e.ObjectRef.Resource == "leases" && e.ObjectRef.Name == p.lease && succeeded(&e) {
			list = append(list, renewal{e.StageTimestamp.Time, user(&e)})
		}
	}
	if len(list) == 0 {
		p.T.Fatal("nobody wrote the Lease")
	}
	slices.SortStableFunc(list, func(a, b renewal) int { return a.at.Compare(b.at) })
	return list
}

// refused checks that the writes of a replica that arrived without the Lease are no more than were under way, and were all refused.
func (p *pair) refused(how string, late []auditv1.Event, most int) {
	p.T.Helper()
	if len(late) > 0 {
		p.figures.Sayf("%d writes of the one that %s arrived late, and were refused", len(late), how)
	}
	if len(late) > most {
		p.T.Errorf("%d writes of the one that %s arrived late, want %d at most", len(late), how, most)
	}
	for _, e := range late {
		if succeeded(&e) {
			p.T.Errorf("%s arrived late, %s, and was not refused", cluster.AuditedRequest(&e), e.ObjectRef.Name)
		}
	}
}

// withoutLease returns the writes that a replica asked for after a time and before it had written the Lease again.
func (p *pair) withoutLease(r *replica, after time.Time) []auditv1.Event {
	p.T.Helper()
	until := time.Now()
	for _, x := range p.renewals() {
		if x.by == r.user && x.at.After(after) {
			until = x.at
			break
		}
	}
	return slices.DeleteFunc(slices.Concat(p.requestsOf(r), p.ownWrites(r)), func(e auditv1.Event) bool {
		return !e.RequestReceivedTimestamp.After(after) || !e.RequestReceivedTimestamp.Time.Before(until)
	})
}

// judge checks that every write was made by the replica that held the Lease: the one that had written it last.
func (p *pair) judge() {
	p.T.Helper()
	renewals := p.renewals()
	writes := 0
	for _, e := range p.Audited(p.T, p.Name) {
		by := user(&e)
		if by != p.first.user && by != p.second.user || !succeeded(&e) {
			continue
		}
		writes++
		holder := ""
		for _, r := range renewals {
			if r.at.After(e.RequestReceivedTimestamp.Time) {
				break
			}
			holder = r.by
		}
		if holder != by {
			p.T.Errorf("%s made %s %s at %s, when %q held the Lease", by, cluster.AuditedRequest(&e), e.ObjectRef.Name,
				e.RequestReceivedTimestamp.Format(time.RFC3339Nano), holder)
		}
	}
	if writes == 0 {
		p.T.Error("no replica wrote anything")
	}
}

// ownWrites returns what the engine of a replica wrote to the replica's own API.
func (p *pair) ownWrites(r *replica) (list []auditv1.Event) {
	p.T.Helper()
	file, err := os.Open(r.audit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Nothing was written.
	}
	if err != nil {
		p.T.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // It is read.
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // The last line may be half written.
		}
		if e.User.Username == "system:apiserver" && e.ObjectRef != nil && e.ObjectRef.APIGroup == "metacontroller.k8s.io" {
			list = append(list, e)
		}
	}
	if err := lines.Err(); err != nil {
		p.T.Fatal(err)
	}
	return list
}
