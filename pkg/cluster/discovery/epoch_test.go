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

package discovery_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
)

// passes waits until the epoch of a group is another one, and reports whether that happens.
func passes(t *testing.T, d *discovery.Discovery, group string, from int64) bool {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return d.Epoch(group) > from, nil
	})
	return err == nil
}

func TestTheEpochChangesWithDefinitionsOfTheGroupAndWithAdmission(t *testing.T) {
	s, d := run(t)
	const group, other = "example.com", "other.com"
	if d.Epoch(group) != 0 || d.Epoch(other) != 0 {
		t.Errorf("epochs %d and %d at the start", d.Epoch(group), d.Epoch(other))
	}
	s.definitions <- `{"type":"ADDED","object":{"metadata":{"name":"things.example.com","uid":"u","generation":1,"resourceVersion":"2"}}}`
	if !passes(t, d, group, 0) {
		t.Error("a definition changed, and the epoch did not")
	}
	if d.Epoch(other) != 0 {
		t.Errorf("the epoch of another group is %d", d.Epoch(other))
	}
	before := d.Epoch(group)
	told := make(chan int64, 100)
	defer d.Subscribe(func() { told <- d.Epoch(other) })()
	s.webhooks <- `{"type":"ADDED","object":{"metadata":{"name":"w","uid":"v","generation":1,"resourceVersion":"3"}}}`
	for _, group := range []string{group, other, ""} {
		if !passes(t, d, group, d.Epoch(group)-1) || d.Epoch(other) == 0 && !passes(t, d, other, 0) {
			t.Errorf("a webhook changed, and the epoch of %q did not", group)
		}
	}
	if d.Epoch(group) <= before {
		t.Errorf("the epoch went from %d to %d", before, d.Epoch(group))
	}
	for epoch := int64(0); epoch == 0; {
		select {
		case epoch = <-told:
		case <-time.After(10 * time.Second):
			t.Fatal("subscribers are not told of the webhook")
		}
	}
	// API servers follow a moment later.
	if !passes(t, d, other, d.Epoch(other)) {
		t.Error("the epoch does not change again after a change")
	}
}

func TestTheStatusOfADefinitionIsNoEpoch(t *testing.T) {
	s, d := run(t)
	event := func(kind, name, uid, version string) string {
		return `{"type":"` + kind + `","object":{"metadata":{"name":"` + name + `","uid":"` + uid + `","generation":1,"resourceVersion":"` + version + `"}}}`
	}
	s.definitions <- event("ADDED", "things.example.com", "u", "2")
	if !passes(t, d, "example.com", 0) {
		t.Fatal("a definition changed, and the epoch did not")
	}
	const repeats = 8
	s.definitions <- event("MODIFIED", "things.example.com", "u", "3")
	// What comes later is seen later.
	s.definitions <- event("ADDED", "things.later.com", "w", "4")
	if !passes(t, d, "later.com", 0) {
		t.Fatal("a definition changed, and the epoch did not")
	}
	if got := d.Epoch("example.com"); got > 2*repeats-1 {
		t.Errorf("the epoch is %d", got)
	}
}
