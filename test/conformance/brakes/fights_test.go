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

package brakes

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// fights are about what a controller writes and somebody undoes each time, without end: each ends in a pause, and in an event that names both.
func fights(t *testing.T, e *fixture.Environment) {
	for name, run := range map[string]func(*fighters){
		"DeletesWhatIsMadeAgain": deletesWhatIsMadeAgain, "ReleasesWhatIsAdoptedAgain": releasesWhatIsAdoptedAgain,
		"TwoDeleteEachOthersChildren": twoDeleteEachOthersChildren, "TwoReleaseAndAdopt": twoReleaseAndAdopt,
		"ParentsThatAnswerEachOther": parentsThatAnswerEachOther, "TwoAnnotateADeployment": twoAnnotateADeployment,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(&fighters{Test: e.NewTest(t)})
		})
	}
}

// fighters are a case with several controllers.
type fighters struct {
	*fixture.Test

	running []*controllers.Controller
}

// wants runs a controller of CompositeControllers' kind whose hook returns one ConfigMap, called as the parent with a suffix.
func (f *fighters) wants(suffix string, labels map[string]any, d fixture.Definition) (name string) {
	f.T.Helper()
	script := f.NewScript(fixture.Composite)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		child := fixture.ConfigMap(c.Parent.GetName()+suffix, map[string]any{"a": "b"})
		child.Object["metadata"].(map[string]any)["labels"] = labels
		return &fixture.Reply{Children: []*hook.Object{child}}, nil
	})
	f.Handle("/"+suffix, script)
	d.Kind, d.Name, d.Sync = fixture.Composite, f.Name+suffix, f.At("/"+suffix)
	d.Children = append(d.Children, fixture.Child{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace})
	f.running = append(f.running, f.Run(d))
	return d.Name
}

// awaitFlapping waits until an event of an object has all parts.
func (f *fighters) awaitFlapping(name string, parts ...string) {
	f.T.Helper()
	f.AwaitEventAs(name, fmt.Sprintf("a Warning with %q", parts), func(e *corev1.Event) bool {
		for _, part := range parts {
			if !strings.Contains(e.Message, part) {
				return false
			}
		}
		return e.Type == corev1.EventTypeWarning && e.Reason == "ChildFlapping"
	})
}

// stays waits for an object, has its parent synced again, and checks that the object is still the one that it was.
func (f *fighters) stays(parents schema.GroupVersionResource, parent string, r schema.GroupVersionResource, name string) {
	f.T.Helper()
	before := f.Await(r, name, "to be there", func(o *unstructured.Unstructured) bool { return o != nil && o.GetDeletionTimestamp() == nil })
	f.Patch(parents, parent, `{"metadata":{"annotations":{"touched":"yes"}}}`)
	for _, c := range f.running {
		f.Idle(c)
	}
	if after := f.Get(r, name); after == nil || after.GetUID() != before.GetUID() {
		f.T.Errorf("%s was deleted during the pause", name)
	}
}

// set creates a StatefulSet whose Pods have a controller of their own.
func (f *fighters) set(name string) {
	f.T.Helper()
	f.Selected(fixture.StatefulSets, name, map[string]any{"spec": map[string]any{
		"replicas": 2, "serviceName": name, "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": name}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "nginx"}}},
		},
	}})
}

// deletesWhatIsMadeAgain has a hook that declares the Pods of StatefulSets as children, to be shown them, and does not return them.
func deletesWhatIsMadeAgain(f *fighters) {
	f.wants("-info", map[string]any{"app": "db"}, fixture.Definition{
		Parents: []schema.GroupVersionResource{fixture.StatefulSets}, Children: []fixture.Child{{Resource: pods}},
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) { spec.GenerateSelector = nil },
	})
	f.set("db")
	f.awaitFlapping("db", "Pod ", "db-0", "is made again by", "kube-controller-manager", "customize hook")
	f.stays(fixture.StatefulSets, "db", pods, "db-0")
}

// releasesWhatIsAdoptedAgain has the controller select by a label that the Pods do not have.
func releasesWhatIsAdoptedAgain(f *fighters) {
	f.wants("-info", nil, fixture.Definition{
		Parents: []schema.GroupVersionResource{fixture.StatefulSets}, Children: []fixture.Child{{Resource: pods}},
	})
	f.set("db")
	f.awaitFlapping("db", "Pod ", "db-0", "is released", "adopted again by", "kube-controller-manager")
	f.stays(fixture.StatefulSets, "db", pods, "db-0")
}

// twoDeleteEachOthersChildren has two controllers of the same parents and the same kind of children: the children of one are unwanted children of the other.
func twoDeleteEachOthersChildren(f *fighters) {
	first := f.wants("-a", nil, fixture.Definition{})
	second := f.wants("-b", nil, fixture.Definition{})
	f.Parent("t", nil)
	f.awaitFlapping("t", "t-b", "again by CompositeController "+second)
	f.awaitFlapping("t", "t-a", "again by CompositeController "+first)
	for _, child := range []string{"t-a", "t-b"} {
		f.stays(fixture.Things, "t", fixture.ConfigMaps, child)
	}
}

// twoReleaseAndAdopt has one of them select children by another label than the other.
func twoReleaseAndAdopt(f *fighters) {
	first := f.wants("-a", nil, fixture.Definition{})
	second := f.wants("-b", map[string]any{"app": "x"}, fixture.Definition{
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) { spec.GenerateSelector = nil },
	})
	f.Parent("t", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}})
	f.awaitFlapping("t", "t-b", "adopted again by CompositeController "+second)
	f.awaitFlapping("t", "t-a", "adopted again by CompositeController "+first)
	for _, child := range []string{"t-a", "t-b"} {
		f.stays(fixture.Things, "t", fixture.ConfigMaps, child)
		f.Await(fixture.ConfigMaps, child, "to have its owner", func(o *unstructured.Unstructured) bool {
			return cluster.Exists(o) && len(o.GetOwnerReferences()) == 1
		})
	}
}

// twoAnnotateADeployment has a status follow each write, by kube-controller-manager: annotations of a Deployment count in its generation.
func twoAnnotateADeployment(f *fighters) {
	for _, team := range []string{"a", "b"} {
		script := f.NewScript(fixture.Decorator)
		script.Respond(func(*fixture.Call) (*fixture.Reply, error) {
			return &fixture.Reply{Annotations: map[string]*string{"team": &team}}, nil
		})
		f.Handle("/"+team, script)
		f.running = append(f.running, f.Run(fixture.Definition{
			Kind: fixture.Decorator, Name: f.Name + "-" + team, Sync: f.At("/" + team), Parents: []schema.GroupVersionResource{fixture.Deployments},
		}))
	}
	f.Selected(fixture.Deployments, "web", map[string]any{"spec": map[string]any{
		"replicas": 0, "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "nginx"}}},
		},
	}})
	f.AwaitEvent("web", corev1.EventTypeWarning, "ParentFlapping", "metadata.annotations.team")
	// Once one of them is, the other one may have what it wants.
	controllers.AwaitOne(f.running, v1alpha1.ConditionProgressing, "to say that it is slowed down", func(c metav1.Condition) bool {
		return c.Reason == v1alpha1.ReasonChangedBack
	})
}

// parentsThatAnswerEachOther has a customize hook that selects the children of all parents, and a child with another value each time.
func parentsThatAnswerEachOther(f *fighters) {
	script := f.NewScript(fixture.Composite)
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		versions := 0
		for _, o := range c.Related["ConfigMap.v1"] {
			if o.GetName() != c.Parent.GetName() {
				n, err := strconv.Atoi(fixture.Value(o, "data", "n"))
				if err != nil {
					return nil, err
				}
				versions += n
			}
		}
		child := fixture.ConfigMap(c.Parent.GetName(), map[string]any{"n": strconv.Itoa(versions + 1)})
		child.SetLabels(map[string]string{"pair": f.Name})
		return &fixture.Reply{Children: []*hook.Object{child}}, nil
	})
	f.Handle("/sync", script)
	f.Hook.Handle("/customize", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{{
			APIVersion: "v1", Resource: "configmaps", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pair": f.Name}},
		}}}, nil
	}))
	f.running = append(f.running, f.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: f.At("/sync"), Customize: f.At("/customize"),
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	}))
	f.Parent("one", nil)
	f.Parent("two", nil)
	// Once one of them is held back, the other one answers too seldom to be.
	controllers.AwaitOne(f.running, v1alpha1.ConditionHooksHealthy, "to say that responses differ", func(c metav1.Condition) bool {
		return c.Reason == v1alpha1.ReasonResponsesDiffer && strings.Contains(c.Message, "data.n of ConfigMap")
	})
}
