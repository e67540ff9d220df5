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

// Package engine tests the rows of docs/reliability.md#faults in which the engine loses something: its process, the kube-apiserver, its
// registration, its hook, or the right to take a finalizer off.
package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/fleet"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// TestOneServer has one server for the faults that leave it as it was.
func TestOneServer(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Limit: limit()})
	for _, fault := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"HookDown", hookDown},
		{"NoChildren", noChildren},
		{"ReleaseBlocked", releaseBlocked},
		{"APIServiceUnavailable", apiServiceUnavailable},
	} {
		t.Run(fault.name, func(t *testing.T) { fault.run(t, e) })
	}
}

// limit is more than anything takes on a busy machine.
func limit() time.Duration { return report.Pick(5*time.Minute, 10*time.Minute) }

// pause lets a fault last.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// seconds is how figures say how long something took.
func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// callsPerChange is how often the hook may be called for a parent that was changed while the kube-apiserver was away: for the change, for
// what the change led to, and when informers list anew.
const callsPerChange = 4

// TestKubeAPIServer takes the kube-apiserver away from the server. The test, and the controllers of Kubernetes, use another one.
func TestKubeAPIServer(t *testing.T) {
	figures := report.For(t, report.KubeAPIServer)
	parents, away := report.Pick(40, 500), report.Pick(3*time.Second, time.Minute)
	api := cluster.Shared(t).NewAPIServer(t)
	waited := startWithout(t, api)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		Kubeconfig: api.Kubeconfig,
		// Requests are broken off when the kube-apiserver ends.
		Tolerate: []string{"connection refused", "context canceled", "could not write"},
	}})
	figures.Sayf("absent when the server starts: it waits, and serves %s after the kube-apiserver does", seconds(waited))
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Finalize: true})
	f.Create("first")
	f.Converge("creation")
	changed := f.Names()[:parents/4]
	for i, c := range []struct {
		what string
		away time.Duration
	}{{"down", away}, {"restarted", 0}} {
		f.Idle(f.Controller)
		f.Hook.Forget()
		api.Stop()
		f.Change("while "+c.what, changed...)
		pause(t, c.away)
		api.Start()
		took := f.Converge("the kube-apiserver was " + c.what)
		f.Idle(f.Controller)
		calls := 0
		for _, n := range f.Hook.Seen() {
			calls += n
		}
		if most := callsPerChange*len(changed) + parents; calls > most {
			t.Errorf("the hook was called %d times for %d changes and %d parents, want %d at most", calls, len(changed), parents, most)
		}
		figures.Sayf("%s: converged %s after it, %d calls of the hook for %d changes of %d parents, no child made again",
			[]string{"down for " + away.String(), "restarted"}[i], seconds(took), calls, len(changed), parents)
	}
	select {
	case <-e.Server.Ended():
		t.Error("the server ended")
	default:
	}
}

// startWithout starts a server while there is no kube-apiserver, and returns how long after that it serves.
func startWithout(t *testing.T, api *cluster.APIServer) time.Duration {
	t.Helper()
	command := process.Command(t.Context(), server.Binary(t), "--kubeconfig", api.Kubeconfig, "--data-dir", t.TempDir(),
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(freeport.Find(t)))
	const waits = "The cluster does not respond"
	running, err := process.Start(command, process.Options{Name: "the server", Log: filepath.Join(t.TempDir(), "server.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Kill()
	awaitLine := func(text string) {
		t.Helper()
		cluster.Eventually(t, limit(), "the server to log "+text, func(context.Context) (bool, string) {
			select {
			case <-running.Ended():
				t.Fatalf("%v\n%s", running.Err(), running.Tail(10))
			default:
			}
			log := running.Tail(1000)
			return strings.Contains(log, text), running.Tail(10)
		})
	}
	awaitLine(waits)
	api.Start()
	there := time.Now()
	awaitLine("Serving securely")
	return time.Since(there)
}

// apiService is the registration.
const apiService = "apiservice/v1alpha1.metacontroller.k8s.io"

// apiServiceUnavailable leads the registration to a port where nobody is.
func apiServiceUnavailable(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.APIService)
	parents, away := report.Pick(20, 200), report.Pick(2*time.Second, 5*time.Minute)
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Finalize: true})
	f.Create("before")
	f.Converge("creation")

	port := strings.TrimSpace(e.Kubectl(t, "get", apiService, "-o", "jsonpath={.spec.service.port}"))
	lead := func(port, available string) {
		e.Kubectl(t, "patch", apiService, "--type=merge", "-p", `{"spec":{"service":{"port":`+port+`}}}`)
		e.Kubectl(t, "wait", "--for=condition=Available="+available, "--timeout=3m", apiService)
	}
	lead("9", "False") // The port of discard, which nobody serves.
	began := time.Now()
	doomed := e.Kube.CoreV1().Namespaces()
	name := f.Namespace + "-doomed"
	if _, err := doomed.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := doomed.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Change("meanwhile", f.Names()...)
	took := f.Converge("a change while the APIService is unavailable")
	f.Delete(f.Names()[0])
	f.Converge("a deletion while the APIService is unavailable")
	cluster.Eventually(t, f.Limit, "the namespace to say why it stays", func(ctx context.Context) (bool, string) {
		n, err := doomed.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		shown := fmt.Sprint(n.Status.Conditions)
		return strings.Contains(shown, "metacontroller.k8s.io/v1alpha1"), shown
	})
	pause(t, away-time.Since(began))
	f.Create("new")
	f.Converge("a creation while the APIService is unavailable")
	down := time.Since(began)

	lead(port, "True")
	returned := time.Now()
	cluster.Eventually(t, f.Limit, "the namespace to be gone", func(ctx context.Context) (bool, string) {
		_, err := doomed.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	figures.Sayf("unavailable for %s: a change of %d parents converged in %s meanwhile", seconds(down), parents, seconds(took))
	figures.Sayf("a namespace that was deleted in it was gone %s after its end", seconds(time.Since(returned)))
}

const (
	// workers is how many calls of a hook there are at once.
	workers = 20
	// retriedWithin is how soon every parent is tried again after the hook has returned.
	retriedWithin = 5 * time.Minute
	// guarded is how many children a guard lets go.
	guarded = 5
)

// hookDown lets changes of all parents meet a hook that nobody serves.
func hookDown(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.HookDown)
	parents, away := report.Pick(100, 1000), report.Pick(3*time.Second, 10*time.Minute)
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 1})
	f.Create("before")
	f.Converge("creation")
	f.Hook.Down()
	f.Change("meanwhile", f.Names()...)
	f.Controller.AwaitStatus("what is wrong", func(s *v1alpha1.ControllerStatus) bool { return len(s.LastErrors) > 0 })
	pause(t, away)

	f.Hook.Forget()
	f.Hook.Up()
	returned := time.Now()
	var tried int
	cluster.EventuallyEvery(t, 20*time.Millisecond, retriedWithin, "every parent to be tried again", func(context.Context) (bool, string) {
		tried = len(f.Hook.Seen())
		return tried == parents, fmt.Sprintf("%d of %d", tried, parents)
	})
	took := time.Since(returned)
	f.Converge("the hook returned")
	if most := f.Hook.Most(); most > workers {
		t.Errorf("there were %d calls at once, want %d at most", most, workers)
	}
	figures.Sayf("down for %s: all of %d parents were tried again within %s of its return", away, parents, seconds(took))
	figures.Sayf("%d calls at once at most, with %d workers", f.Hook.Most(), workers)
}

// noChildren has the hook want no children any more, and then again what it wanted before.
func noChildren(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.NoChildren)
	parents := report.Pick(30, 500)
	t.Run("Guarded", func(t *testing.T) {
		f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Edit: func(spec *v1alpha1.CompositeControllerSpec) {
			spec.DeletionGuard = &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(guarded))}
		}})
		f.Create("before")
		f.Converge("creation")
		left := wantNone(t, f)
		f.Controller.AwaitCondition(v1alpha1.ConditionDeletionsHeld, "to be true", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
		if left < 2*parents-guarded {
			t.Errorf("%d children of %d are left, and the guard lets %d go", left, 2*parents, guarded)
		}
		wantAgain(f)
		figures.Sayf("with a guard of %d: %d of %d children are left", guarded, left, 2*parents)
	})
	t.Run("Unguarded", func(t *testing.T) {
		f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2})
		f.Create("before")
		f.Converge("creation")
		if left := wantNone(t, f); left != 0 {
			t.Errorf("%d children are left although the hook wants none", left)
		}
		wantAgain(f)
		figures.Sayf("without one: 0 are left, as the hook wants, and all are back once it wants them")
	})
}

// wantNone has the hook want no children for all parents, and returns how many are left.
func wantNone(t *testing.T, f *fleet.Fleet) int {
	t.Helper()
	f.Hook.RespondNone(true)
	f.Change("none", f.Names()...)
	f.AwaitState("all parents to be synced", func(s *fleet.State) (bool, string) {
		synced := 0
		for _, parent := range s.Parents {
			if fixture.Value(parent, "status", "value") == "none" {
				synced++
			}
		}
		return synced == len(s.Parents), fmt.Sprintf("%d of %d", synced, len(s.Parents))
	})
	f.Idle(f.Controller)
	state, err := f.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(state.Children)
}

// wantAgain has the hook want the children again. Those that are left must stay.
func wantAgain(f *fleet.Fleet) {
	f.T.Helper()
	f.ForgetDeleted()
	f.Hook.RespondNone(false)
	f.Change("again", f.Names()...)
	f.Converge("the hook wants children again")
}

// TestServerKilled kills the server while parents are created, rolled out and finalized, in turns.
func TestServerKilled(t *testing.T) {
	figures := report.For(t, report.ServerKilled)
	kills, parents := report.Pick(3, 20), report.Pick(60, 500)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		// Requests to the cluster are broken off when those end that need them.
		Tolerate: []string{"Failed to make webhook authorizer request"},
	}})
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 2, Method: v1alpha1.ChildUpdateRollingInPlace, Finalize: true})
	names := f.Names()
	var slowest time.Duration
	for kill := range kills {
		var do func()
		var during string
		affected := names
		switch kill % 3 {
		case 0:
			during, do = "creations", func() { f.Create("created") }
			if kill > 0 {
				affected = names[:parents/2]
			}
		case 1:
			during, do = "rollouts", func() { f.Change("value "+strconv.Itoa(kill), names...) }
		case 2:
			affected = names[:parents/2]
			during, do = "finalizations", func() { f.Delete(affected...) }
		}
		// Each of these needs one call of the hook at least.
		at := f.Hook.Calls() + 1 + rand.IntN(len(affected))
		killed := killAt(t, f, at)
		do()
		<-killed
		f.Remember()
		restarted := time.Now()
		e.Server.Restart()
		f.Converge("a kill during " + during)
		took := time.Since(restarted)
		t.Logf("kill %d, during %s, at call %d of the hook: converged %s after the start", kill+1, during, at, seconds(took))
		slowest = max(slowest, took)
	}
	figures.Sayf("%d kills, %d parents with 2 children each", kills, parents)
	figures.Sayf("nothing lost, left over or made again")
	figures.Sayf("converged %s after the start at the latest", seconds(slowest))
	// Those that are there are finalized, and nothing is left.
	f.Delete(slices.DeleteFunc(names, func(name string) bool { return (kills-1)%3 == 2 && slices.Contains(names[:parents/2], name) })...)
	f.Converge("all were deleted")
}

// killAt kills the server when its hook has been called so often, while the caller does something else.
func killAt(t *testing.T, f *fleet.Fleet, calls int) <-chan struct{} {
	t.Helper()
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for until := time.Now().Add(f.Limit); f.Hook.Calls() < calls; {
			if time.Now().After(until) {
				t.Errorf("the hook was called %d times in %s, want %d", f.Hook.Calls(), f.Limit, calls)
				break
			}
			select {
			case <-ticker.C:
			case <-t.Context().Done():
				return // What was to be done meanwhile has failed.
			}
		}
		f.Server.Kill()
	}()
	return killed
}

const (
	// frozen is the label of parents that keep their finalizers.
	frozen = fixture.Group + "/frozen"
	// denial is what the policy says.
	denial = "frozen things keep their finalizers"
)

// releaseBlocked has a policy deny that the finalizer of some parents is taken off.
func releaseBlocked(t *testing.T, e *fixture.Environment) {
	figures := report.For(t, report.ReleaseBlocked)
	parents, watched := report.Pick(20, 100), report.Pick(10*time.Second, time.Minute)
	f := fleet.New(e.NewTest(t), fleet.Options{Parents: parents, Children: 1, Finalize: true})
	f.Create("before")
	f.Converge("creation")
	held, free := f.Names()[:parents/4], f.Names()[parents/4:parents/2]
	for _, name := range held {
		f.Patch(fixture.Things, name, `{"metadata":{"labels":{"`+frozen+`":"yes"}}}`)
	}
	thaw := freeze(t, f, held[0])

	f.Delete(held...)
	f.Delete(free...)
	f.Change("others", f.Names()[parents/2:]...)
	f.AwaitState("the others to go and to be changed", func(s *fleet.State) (bool, string) {
		wrong := f.Wrong(s)
		return len(wrong) == len(held) && len(s.Parents) == parents-len(free), fmt.Sprint(wrong)
	})
	f.Controller.AwaitStatus("what the policy says", func(s *v1alpha1.ControllerStatus) bool {
		for _, e := range s.LastErrors {
			if strings.Contains(e.Message, denial) {
				return true
			}
		}
		return false
	})
	f.Hook.Forget()
	pause(t, watched)
	most := 0
	for _, name := range held {
		most = max(most, f.Hook.Seen()[name])
	}
	// The delays between attempts double, and the first ones are over.
	if few := int(watched / time.Second); most > few {
		t.Errorf("one parent was tried %d times in %s, want %d at most", most, watched, few)
	}
	figures.Sayf("%d of %d parents held for %s: told in the status, %d attempts for one of them at most in that time, the others converged",
		len(held), parents, watched, most)
	thaw()
	figures.Sayf("released %s after the policy was gone", seconds(f.Converge("the policy was gone")))
}

// freeze makes the policy and waits until it denies what it must. The function that it returns deletes it.
func freeze(t *testing.T, f *fleet.Fleet, name string) (thaw func()) {
	t.Helper()
	client := f.Kube.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{frozen: "yes"}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{fixture.Things.Group}, APIVersions: []string{"*"}, Resources: []string{fixture.Things.Resource},
					},
				}}},
			},
			Validations: []admissionv1.Validation{{
				Expression: "has(object.metadata.finalizers) && object.metadata.finalizers.size() > 0", Message: denial,
			}},
		},
	}
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: f.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	without := []byte(`{"metadata":{"finalizers":null}}`)
	cluster.Eventually(t, f.Limit, "the policy to deny", func(ctx context.Context) (bool, string) {
		_, err := f.Resource(fixture.Things).Patch(ctx, name, types.MergePatchType, without, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), denial), fmt.Sprint(err)
	})
	return func() {
		t.Helper()
		if err := client.ValidatingAdmissionPolicyBindings().Delete(t.Context(), f.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := client.ValidatingAdmissionPolicies().Delete(t.Context(), f.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
