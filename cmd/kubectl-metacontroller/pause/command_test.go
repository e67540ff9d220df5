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

package pause

import (
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster serves the CompositeController web, which is not paused until it is written to.
type cluster struct {
	written int
	// drops has it not know the field, as Metacontroller's CustomResourceDefinitions do.
	drops bool
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web" {
		http.NotFound(w, r)
		return
	}
	paused := "false"
	if r.Method == http.MethodPatch {
		c.written++
		if !c.drops {
			paused = "true"
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"web"},` +
		`"spec":{"paused":` + paused + `}}`)) // Who does not wait for it asks again.
}

func TestTheFormatIsReadBeforeAnythingIsWritten(t *testing.T) {
	for what, tc := range map[string]struct {
		args    []string
		written int
		printed string
		err     string
	}{
		"no format":           {nil, 1, "CompositeController web is paused.\n", ""},
		"a format":            {[]string{"-o", "name"}, 1, "compositecontroller.metacontroller.k8s.io/web\n", ""},
		"a template alone":    {[]string{"--template", "{{.spec.paused}}"}, 1, "true", ""},
		"a format of another": {[]string{"-o", "wide"}, 0, "", "--output: "},
		"no template":         {[]string{"-o", "jsonpath={.spec"}, 0, "", "--output: "},
	} {
		t.Run(what, func(t *testing.T) {
			c := &cluster{}
			printed, err := connectiontest.Run(t, NewPauseCommand, c, append(tc.args, "cc/web")...)
			if !strings.HasPrefix(printed, tc.printed) || (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("printed %q, error %v", printed, err)
			}
			if c.written != tc.written {
				t.Errorf("%d writes, want %d", c.written, tc.written)
			}
		})
	}
}

func TestAPauseThatIsNotThereIsAnError(t *testing.T) {
	for _, args := range [][]string{{"cc/web"}, {"cc/web", "-o", "name"}} {
		c := &cluster{drops: true}
		printed, err := connectiontest.Run(t, NewPauseCommand, c, args...)
		if printed != "" || c.written != 1 || err == nil || !strings.HasPrefix(err.Error(), "CompositeController web is not paused: ") {
			t.Errorf("%v: %d writes, printed %q, error %v", args, c.written, printed, err)
		}
	}
}
