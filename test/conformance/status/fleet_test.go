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

package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// controllersOfFleet is the number of controllers, of which every second one fails at first, and parentsOfEach that of the parents of
	// each.
	controllersOfFleet, parentsOfEach = 50, 8
	// fleet is the label that tells the controller of a parent.
	fleet = "example.com/fleet"
)

// TestFleet has many controllers run at once, of which half fail, and then all mend. Conditions follow, each change is one write, and
// nobody is called for a write of a status.
func TestFleet(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Limit: 2 * time.Minute})
	s := e.NewTest(t)
	script := e.NewScript(fixture.Composite)
	var mu sync.Mutex
	mended := false
	fails := func(controller string) bool {
		mu.Lock()
		defer mu.Unlock()
		return !mended && strings.HasSuffix(controller, "-bad")
	}
	script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		if fails(c.Controller) {
			return nil, errors.New("the hook is broken")
		}
		return &fixture.Reply{}, nil
	})
	s.Handle("/sync", script)
	writes := countWrites(t, e)
	all := make([]*controllers.Controller, controllersOfFleet)
	for n := range all {
		name := fmt.Sprintf("%s-%d-%s", s.Name, n, [...]string{"good", "bad"}[n%2])
		all[n] = s.Declare(fixture.Definition{
			Kind: fixture.Composite, Name: name, Sync: s.At("/sync"), Selector: map[string]string{fleet: name},
		})
		for i := range parentsOfEach {
			s.CreateIn(s.Namespace, fixture.Things, fmt.Sprintf("%d-%d", n, i), nil, map[string]string{fleet: name})
		}
	}
	for n, c := range all {
		if n%2 == 0 {
			c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to be true", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
			c.AwaitReady()
			continue
		}
		c.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to be false", is(metav1.ConditionFalse, v1alpha1.ReasonHookFailing, "the hook is broken"))
		c.AwaitCondition(v1alpha1.ConditionReady, "to be false", is(metav1.ConditionFalse, v1alpha1.ReasonHookFailing, "the hook is broken"))
	}
	for n, c := range all {
		failing := int64(n % 2 * parentsOfEach)
		c.AwaitCounters("the parents", func(k *v1alpha1.ControllerCounters) bool { return k.Parents == parentsOfEach && k.Failing == failing })
		c.AwaitCondition(v1alpha1.ConditionProgressing, "to be false", is(metav1.ConditionFalse, v1alpha1.ReasonSettled))
	}
	calls := callsOfGood(script)
	mu.Lock()
	mended = true
	mu.Unlock()
	for n := 1; n < len(all); n += 2 {
		for i := range parentsOfEach {
			s.Patch(fixture.Things, fmt.Sprintf("%d-%d", n, i), `{"spec":{"n":"1"}}`)
		}
	}
	for n := 1; n < len(all); n += 2 {
		all[n].AwaitReady()
		all[n].AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", is(metav1.ConditionTrue, v1alpha1.ReasonResponding))
		all[n].AwaitCounters("healthy parents", func(k *v1alpha1.ControllerCounters) bool { return k.Failing == 0 })
	}
	if now := callsOfGood(script); !maps.Equal(calls, now) {
		t.Errorf("the hook was called for healthy parents while only statuses changed:\n%v\n%v", calls, now)
	}
	// Created, one or two changes of a condition to each state, and numbers every 30 s of a test of some minutes.
	for name, n := range writes() {
		if n > 16 {
			t.Errorf("the status of %s was written %d times", name, n)
		}
	}
}

// callsOfGood returns how often the hook was called for each parent of a controller that never fails.
func callsOfGood(script *fixture.Script) map[string]int {
	calls := script.Count()
	maps.DeleteFunc(calls, func(name string, _ int) bool {
		var n, i int
		_, err := fmt.Sscanf(name, "%d-%d", &n, &i)
		return err != nil || n%2 == 1
	})
	return calls
}

// countWrites counts the changes of each CompositeController from now on.
func countWrites(t *testing.T, e *fixture.Environment) func() map[string]int {
	t.Helper()
	w, err := e.Versioned.MetacontrollerV1alpha1().CompositeControllers().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	var mu sync.Mutex
	var counting sync.WaitGroup
	counting.Go(func() {
		for event := range w.ResultChan() {
			if c, ok := event.Object.(*v1alpha1.CompositeController); ok && event.Type == watch.Modified {
				mu.Lock()
				counts[c.Name]++
				mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { w.Stop(); counting.Wait() })
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}

// TestAClientUpdatesWhatItCreated updates controllers in the version in which they were created, as programs do that were written for
// objects without a status.
func TestAClientUpdatesWhatItCreated(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	s := e.NewTest(t)
	s.Handle("/sync", fine())
	client := e.Versioned.MetacontrollerV1alpha1().CompositeControllers()
	timely := 0
	for n := range 15 {
		d := fixture.Definition{Kind: fixture.Composite, Sync: s.At("/sync")}
		began := time.Now()
		created, err := client.Create(t.Context(), &v1alpha1.CompositeController{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(s.Name, "-", n)}, Spec: s.CompositeSpec(d),
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		created.Labels = map[string]string{"a": "b"}
		_, err = client.Update(t.Context(), created, metav1.UpdateOptions{})
		switch slow := time.Since(began) > 500*time.Millisecond; {
		case err == nil:
			timely++
		case !apierrors.IsConflict(err) || !slow:
			t.Errorf("updating controller %d: %v", n, err)
		}
		if err := client.Delete(t.Context(), created.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	if timely == 0 {
		t.Error("every update was a conflict")
	}
	cluster.Eventually(t, s.Limit, "the controllers to be gone", func(context.Context) (bool, string) {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, fmt.Sprint(len(list.Items), err)
	})
}
