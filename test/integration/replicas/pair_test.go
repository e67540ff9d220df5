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

package replicas

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/trio"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

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
