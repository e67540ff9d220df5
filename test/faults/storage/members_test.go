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

package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	client "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	informers "github.com/metacontroller/metacontroller-apiserver/pkg/generated/informers/externalversions"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/trio"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestEtcdMembers kills members of an external etcd under load.
func TestEtcdMembers(t *testing.T) {
	figures := report.For(t, report.EtcdMembers)
	writes, away := report.Pick(40, 400), report.Pick(3*time.Second, time.Minute)
	etcd := trio.New(t, cluster.Shared(t))
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		Args: []string{"--etcd-servers", etcd.Servers(), stored},
		// Requests that etcd did not serve are broken off.
		Tolerate: []string{"context canceled", "could not write", "Handler timeout"},
	}})
	l := newLedger(e.NewTest(t))
	l.again = late
	for _, victim := range []struct {
		what string
		pick func(leader int) int
	}{
		{"a follower", func(leader int) int { return (leader + 1) % trio.Members }},
		{"the leader", func(leader int) int { return leader }},
	} {
		dead := victim.pick(etcd.Await())
		began := time.Now()
		killed := make(chan struct{})
		start := l.acknowledged()
		go func() {
			defer close(killed)
			for l.acknowledged() < start+writes/4 && time.Since(began) < limit() {
				<-time.After(time.Millisecond)
			}
			etcd.Kill(dead)
		}()
		failed := l.write(t.Context(), writes)
		<-killed
		for _, err := range failed {
			t.Errorf("with %s killed: %v", victim.what, err)
		}
		l.check()
		etcd.Start(dead)
		figures.Sayf("%s killed during %d writes: all of them served, in %s, %d times again since etcd was late",
			victim.what, l.acknowledged()-start, seconds(time.Since(began)), l.repeated.Swap(0))
	}
	etcd.Await()
	for i := range trio.Members {
		etcd.Kill(i)
	}
	told, unavailable := kubectlInOutage(t, e)
	refused := outage(t, e, away)
	for i := range trio.Members {
		etcd.Start(i)
	}
	back := time.Now()
	etcd.Await()
	cluster.Eventually(t, limit(), "writes to be served again", func(ctx context.Context) (bool, string) {
		failed := l.write(ctx, 1)
		return len(failed) == 0, fmt.Sprint(failed)
	})
	figures.Sayf("all killed for %s: %d of %d requests refused with 503 and its cause; kubectl get said it after %s, the APIService after %s; "+
		"served again %s after they were started", away, refused, refused, seconds(told), seconds(unavailable), seconds(time.Since(back)))
	e.Kubectl(t, "wait", "--for=condition=Available=True", "--timeout=2m", "apiservice/v1alpha1.metacontroller.k8s.io")
	l.check()
	select {
	case <-e.Server.Ended():
		t.Error("the server ended")
	default:
	}
}

// late reports whether a write failed because etcd took longer than it is waited for, as the election of a leader may on a busy machine:
// the server has waited as long as it does, or the client has repeated the request as often as it does. What fails sooner fails the test.
func late(err error) bool {
	_, repeated := apierrors.SuggestsClientDelay(err)
	return apierrors.IsServiceUnavailable(err) && (repeated || strings.Contains(err.Error(), "it did not respond within"))
}

// kubectlPatience is how long somebody at a terminal waits for an error.
const kubectlPatience = 15 * time.Second

// kubectlInOutage asks as people do while there is no etcd. It returns after which time kubectl and the APIService have said so.
func kubectlInOutage(t *testing.T, e *fixture.Environment) (told, unavailable time.Duration) {
	t.Helper()
	began := time.Now()
	output, err := e.TryKubectl(t.Context(), "", "get", "compositecontrollers")
	told = time.Since(began)
	if err == nil || !strings.Contains(output, "etcd") {
		t.Errorf("kubectl get: %v: %s, want an error that names etcd", err, output)
	}
	// It is what the server waits for etcd, once, and what kubectl takes for itself.
	if told > kubectlPatience {
		t.Errorf("kubectl get said so after %s, want %s at most", told, kubectlPatience)
	}
	e.Kubectl(t, "wait", "--for=condition=Available=False", "--timeout=2m", "apiservice/v1alpha1.metacontroller.k8s.io")
	return told, time.Since(began)
}

// outage asks the server while it has no etcd, and returns how many requests it has refused as it must.
func outage(t *testing.T, e *fixture.Environment, away time.Duration) int {
	t.Helper()
	until := time.Now().Add(away)
	body, err := json.Marshal(controller("refused", nil))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := 0; n < 2 || time.Now().Before(until); n++ {
		request, content := http.MethodPost, string(body)
		at := path
		if n%2 == 1 {
			request, content, at = http.MethodDelete, "", path+"/refused"
		}
		status, retry, text := ask(t, e.Server, request, at, content)
		var is metav1.Status
		err := json.Unmarshal([]byte(text), &is)
		// Whether etcd got the first of them nobody knows, so that it may not be repeated blindly; after it, none is sent. The server has repeated what
		// etcd did not respond to itself.
		silent := strings.Contains(is.Message, "it did not respond within")
		if err != nil || status != http.StatusServiceUnavailable || (retry == "") != silent || !strings.Contains(is.Message, "etcd") {
			t.Errorf("%s got %d, Retry-After %q: %s, want 503 with a cause", request, status, retry, text)
		} else {
			refused++
		}
		pause(t, 100*time.Millisecond)
	}
	for path, want := range map[string]int{"/livez?exclude=etcd": http.StatusOK, "/readyz": http.StatusInternalServerError} {
		if status, err := e.Server.Get(t.Context(), path); err != nil || status != want {
			t.Errorf("%s is %d without etcd, want %d: %v", path, status, want, err)
		}
	}
	return refused
}

// ask makes a request to the server itself.
func ask(t *testing.T, s *server.Server, method, path, body string) (status int, retryAfter, text string) {
	t.Helper()
	transport, err := s.Transport()
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close() //nolint:errcheck // It is read.
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, response.Header.Get("Retry-After"), string(read)
}

const (
	// writers write at the same time, each to objects of its own.
	writers = 4
	// numberAnnotation holds the number of the last write of an object.
	numberAnnotation = fixture.Group + "/number"
	// fillAnnotation makes objects large.
	fillAnnotation = fixture.Group + "/fill"
	// writesOfEach is how often each object is written before there is another one.
	writesOfEach = 4
)

// A ledger writes controllers, and knows which writes were acknowledged.
type ledger struct {
	t      testing.TB
	name   string
	client client.CompositeControllerInterface
	// fill is how many bytes each write has.
	fill int
	// again says which errors a writer repeats its write after. Nil: none.
	again func(error) bool

	acks, repeated atomic.Int64
	mu             sync.Mutex
	// tried and acked are the numbers of the last writes of each object.
	tried, acked map[string]int
	// next is the number of the next write of each writer.
	next [writers]int
}

func newLedger(test *fixture.Test) *ledger {
	return &ledger{
		t: test.T, name: test.Name, client: test.Versioned.MetacontrollerV1alpha1().CompositeControllers(),
		tried: map[string]int{}, acked: map[string]int{},
	}
}

// acknowledged is how many writes were acknowledged so far.
func (l *ledger) acknowledged() int { return int(l.acks.Load()) }

// write writes until so many writes more were acknowledged, or until a writer fails. It returns the first error of each writer.
func (l *ledger) write(ctx context.Context, writes int) []error {
	var working sync.WaitGroup
	errs := make([]error, writers)
	end := l.acks.Load() + int64(writes)
	for w := range writers {
		working.Go(func() {
			for l.acks.Load() < end && errs[w] == nil && ctx.Err() == nil {
				errs[w] = l.writeOne(ctx, w)
			}
		})
	}
	working.Wait()
	var failed []error
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// writeOne makes the next write of a writer. A write that is not acknowledged may have happened, and its number is not used again.
func (l *ledger) writeOne(ctx context.Context, w int) error {
	l.mu.Lock()
	n := l.next[w]
	l.next[w]++
	name := fmt.Sprintf("%s-%d-%d", l.name, w, n/writesOfEach)
	_, known := l.acked[name]
	l.tried[name] = n
	l.mu.Unlock()
	annotations := map[string]string{numberAnnotation: strconv.Itoa(n), fillAnnotation: strings.Repeat("x", l.fill)}
	err := l.put(ctx, name, annotations, known)
	for began := time.Now(); err != nil && l.again != nil && l.again(err) && time.Since(began) < limit(); err = l.put(ctx, name, annotations, known) {
		l.repeated.Add(1)
		<-time.After(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[name] = n
	l.acks.Add(1)
	return nil
}

func (l *ledger) put(ctx context.Context, name string, annotations map[string]string, known bool) error {
	if !known {
		_, err := l.client.Create(ctx, controller(name, annotations), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`,
		numberAnnotation, annotations[numberAnnotation], fillAnnotation, annotations[fillAnnotation])
	_, err := l.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// controller returns a controller that is not run with the flag stored.
func controller(name string, annotations map[string]string) *v1alpha1.CompositeController {
	return &v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{runLabel: run}},
		Spec: v1alpha1.CompositeControllerSpec{
			ParentResource: v1alpha1.CompositeControllerParentResourceRule{ResourceRule: fixture.Rule(fixture.Things)},
			Hooks:          &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:9/")}}},
		},
	}
}

// check complains of each object that does not have its last acknowledged write, or a later one that was tried.
func (l *ledger) check() {
	l.t.Helper()
	list, err := l.client.List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatalf("listing what was written: %v", err)
	}
	found := map[string]*v1alpha1.CompositeController{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, acked := range l.acked {
		o := found[name]
		if o == nil {
			l.t.Errorf("%s is lost, of which the write %d was acknowledged", name, acked)
			continue
		}
		if n, err := strconv.Atoi(o.Annotations[numberAnnotation]); err != nil || n < acked || n > l.tried[name] {
			l.t.Errorf("%s has the write %q, want one from %d, which was acknowledged, to %d, which was tried", name, o.Annotations[numberAnnotation], acked, l.tried[name])
		}
		if got := len(o.Annotations[fillAnnotation]); got != l.fill {
			l.t.Errorf("%s has %d bytes to fill it, want %d", name, got, l.fill)
		}
	}
}

// oldVersion is the commit of the version from which is upgraded, and to which is gone back.
const oldVersion = "3cfab47"

// watchers watch at the same time.
const watchers = 3

// TestUpgrade replaces the server by another version of it, one beside the other as in a rolling update, and goes back.
func TestUpgrade(t *testing.T) {
	figures := report.For(t, report.Upgrade)
	parents, writes := report.Pick(20, 200), report.Pick(60, 1000)
	old := server.Binary(t)
	if report.Long() {
		old = build(t, oldVersion)
	}
	c := cluster.Shared(t)
	o := server.Options{
		Binary: old, Args: []string{"--etcd-servers", c.EtcdServers, "--etcd-prefix", "/test-upgrade", stored},
		Tolerate: []string{"context canceled", "could not write", "Handler timeout"},
	}
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: o})
	running := e.Server
	test := e.NewTest(t)
	l := newLedger(test)
	l.again = temporary
	f := fleet.New(test, fleet.Options{Parents: parents, Children: 2, Method: v1alpha1.ChildUpdateRollingInPlace, Finalize: true})
	f.Create("first")
	f.Converge("creation")
	stores := watch(t, e)
	for i, next := range []string{server.Binary(t), old} {
		start := l.acknowledged()
		loaded := make(chan []error, 1)
		go func() { loaded <- l.write(t.Context(), writes) }()
		f.Change("value "+strconv.Itoa(i), f.Names()...)
		o.Binary = next
		successor := server.Start(t, c, o)
		if err := running.Stop(); err != nil {
			t.Errorf("stopping the former server: %v", err)
		}
		running = successor
		f.Converge("the other version took over")
		for _, err := range <-loaded {
			t.Errorf("under the load: %v", err)
		}
		// Some for the successor alone.
		for _, err := range l.write(t.Context(), writes/4) {
			t.Errorf("after the load: %v", err)
		}
		l.check()
		figures.Sayf("%s: %d writes, 0 failed", []string{"to the new version", "back to the old one"}[i], l.acknowledged()-start)
	}
	for _, store := range stores {
		cluster.Eventually(t, limit(), "a watch to show all writes", func(context.Context) (bool, string) { return l.shown(store) })
	}
	// The server that runs now ends before what the others cleaned up.
	f.Controller.Delete()
	f.Controller.AwaitGone()
	figures.Sayf("%d writes repeated by their client, %d watches followed them all, %d parents and their children whole", l.repeated.Load(), watchers, parents)
}

// temporary reports whether a request may be repeated: the server was going or not there yet.
func temporary(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return !answered || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// watch watches controllers until the test ends.
func watch(t *testing.T, e *fixture.Environment) []cache.Store {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	var stores []cache.Store
	for range watchers {
		informer := informers.NewSharedInformerFactory(e.Versioned, 0).Metacontroller().V1alpha1().CompositeControllers().Informer()
		running.Go(func() { informer.RunWithContext(ctx) })
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("the watch did not begin")
		}
		stores = append(stores, informer.GetStore())
	}
	return stores
}

// shown reports whether a store has the acknowledged writes, or later ones.
func (l *ledger) shown(store cache.Store) (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, acked := range l.acked {
		o, there, err := store.GetByKey(name)
		if err != nil || !there {
			return false, fmt.Sprintf("%s is not there: %v", name, err)
		}
		annotation := o.(*v1alpha1.CompositeController).Annotations[numberAnnotation]
		if n, err := strconv.Atoi(annotation); err != nil || n < acked {
			return false, fmt.Sprintf("%s has the write %q, want %d", name, annotation, acked)
		}
	}
	return true, ""
}

// build builds the server of a commit, unless that was done before, and returns the binary.
func build(t *testing.T, commit string) string {
	t.Helper()
	folder := filepath.Join(cluster.Root(), "bin", "faults", commit)
	binary := filepath.Join(folder, "metacontroller-apiserver")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	tree := filepath.Join(t.TempDir(), "tree")
	git := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = cluster.Root()
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, output)
		}
	}
	git("worktree", "add", "--detach", tree, commit)
	defer git("worktree", "remove", "--force", tree)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", binary+".part", "./cmd/metacontroller-apiserver")
	command.Dir = tree
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", commit, err, output)
	}
	if err := os.Rename(binary+".part", binary); err != nil {
		t.Fatal(err)
	}
	t.Logf("built the server of %s in %s", commit, seconds(time.Since(began)))
	return binary
}
