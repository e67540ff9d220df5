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

package resync_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/resync"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatBecameOfParents(t *testing.T) {
	const (
		controller = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web"
		running    = `{"parentResource":{"apiVersion":"example.com/v1","resource":"websites"}}`
	)
	for what, tc := range map[string]struct{ spec, status, arg, printed, err string }{
		"one": {
			running, `{"parents":1}`, "", "1 parent is in the queue. See how it goes with: kubectl metacontroller parents cc/web -n shop\n", "",
		},
		"some": {running, `{"parents":2,"hidden":1}`, "", "1 parent is left out, ", ""},
		"none": {running, `{}`, "", "cc/web has no parent in namespace shop", ""},
		// Nothing is done, though there is something to do.
		"all are hidden": {running, `{"hidden":2}`, "", "", "2 parents are left out, "},
		"of one that is paused": {
			`{"paused":true}`, `{"parents":2}`, "--all",
			"2 parents are in the queue, and synced when cc/web is resumed: it is paused. Resume it with: kubectl metacontroller resume cc/web\n", "",
		},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, resync.NewCommand, connectiontest.Documents{
				controller:             `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"web"},"spec":` + tc.spec + `}`,
				controller + "/resync": `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerResync","status":` + tc.status + `}`,
			}, strings.Fields("cc/web "+tc.arg)...)
			if !strings.HasPrefix(printed, tc.printed) || strings.HasSuffix(tc.printed, "\n") && printed != tc.printed || tc.printed == "" && printed != "" {
				t.Errorf("printed %q, want %q", printed, tc.printed)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("ended with %v, want %q", err, tc.err)
			}
		})
	}
}
