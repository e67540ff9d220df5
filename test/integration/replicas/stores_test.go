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
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

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
	if err != nil || len(o.Status.Conditions) > 0 {
		t.Errorf("the controller has the conditions %v: %v", o.Status.Conditions, err)
	}
	if output := e.Kubectl(t, "get", "compositecontroller", controller.Name); !strings.Contains(output, "the status of controllers may be from before") {
		t.Errorf("kubectl does not warn of the status:\n%s", output)
	}
	// Each change is stored.
	controller.Patch(`{"spec":{"resyncPeriodSeconds":77}}`)
	cluster.Eventually(t, limit, "the change", func(ctx context.Context) (bool, string) {
		o, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().Get(ctx, controller.Name, metav1.GetOptions{})
		return err == nil && o.Spec.ResyncPeriodSeconds != nil && *o.Spec.ResyncPeriodSeconds == 77, "it is not there"
	})
	if calls := script.All(); calls > 0 {
		t.Errorf("the hook was called %d times", calls)
	}
}
