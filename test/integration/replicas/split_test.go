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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestControllersAreSplitByTheirLabels runs two servers over one store that take different controllers, and moves a controller from one to the
// other and back.
func TestControllersAreSplitByTheirLabels(t *testing.T) {
	c, name := cluster.Shared(t), strings.ToLower(t.Name())
	group := func(user, selector string) server.Options {
		o, _ := options(t, c, "", user, user, "--etcd-prefix=/"+name, "--etcd-servers="+c.EtcdServers, "--target-label-selector="+selector)
		return o
	}
	e := fixture.SetUp(t, fixture.Options{Limit: limit, Server: group(name+"-first", "site!=b")})
	first := &replica{Server: e.Server, user: name + "-first"}
	second := &replica{Server: server.Start(t, c, group(name+"-second", "site=b")), user: name + "-second"}
	first.leads(t, true)
	second.leads(t, true)

	test, script := e.NewTest(t), e.NewScript(fixture.Composite)
	script.Respond(copyRound)
	test.Handle("/hook", script)
	controller := test.Run(definition(test))
	test.Parent("parent", map[string]any{"round": "0"})
	copied := func(round string) *hook.Object {
		return test.Await(fixture.ConfigMaps, "parent", "to have round "+round, func(o *hook.Object) bool {
			return o != nil && fmt.Sprint(o.UnstructuredContent()["data"]) == fmt.Sprint(map[string]any{"round": round})
		})
	}
	uid := copied("0").GetUID()
	for round, step := range []struct {
		label string
		by    *replica
	}{{"site=b", second}, {"site-", first}} {
		test.Kubectl(t, "label", "compositecontroller", controller.Name, step.label)
		cluster.Eventually(t, limit, step.by.user+" to run the controller, and nobody else", func(ctx context.Context) (bool, string) {
			running := map[*replica]float64{}
			for _, r := range []*replica{first, second} {
				page, err := r.Metrics(ctx, "metacontroller_parents")
				if err != nil {
					return false, err.Error()
				}
				running[r], _ = page.Value("metacontroller_parents", "controller", controller.Kind+"-"+controller.Name, "state", "ready")
			}
			return running[step.by] > 0 && running[first]*running[second] == 0, fmt.Sprint(running)
		})
		want := fmt.Sprint(round + 1)
		test.Kubectl(t, "patch", "--namespace="+test.Name, "things", "parent", "--type=merge", "--patch", `{"spec":{"round":"`+want+`"}}`)
		if o := copied(want); o.GetUID() != uid {
			t.Errorf("the child was created again when %s took over", step.by.user)
		}
		events := test.Audited(t, test.Name)
		if last := user(&events[len(events)-1]); last != step.by.user {
			t.Errorf("%s wrote the child, though %s runs the controller", last, step.by.user)
		}
		cluster.Eventually(t, limit, "the controller to say that it is ready", func(ctx context.Context) (bool, string) {
			o, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().Get(ctx, controller.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReady), fmt.Sprint(o.Status.Conditions)
		})
	}
}
