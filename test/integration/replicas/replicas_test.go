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
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
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
