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

package reconciler_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestAConflictWaitsForWhatTheOtherClientWrote has another client change a parent after its controller wrote it, while the events of
// both are to come: that of the controller's own write is no reason to try again.
func TestAConflictWaitsForWhatTheOtherClientWrote(t *testing.T) {
	written := thing(t, "a", 12, "", `,"status":{"of":"11"}`)
	apiServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patch, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(patch), `"of":"11"`) {
			refusal(http.StatusConflict, "Conflict")(w, r)
			return
		}
		_, _ = w.Write(written.JSON())
	}))
	t.Cleanup(apiServer.Close)
	s := newSceneAt(t, apiServer.URL)
	s.exist(thing(t, "a", 11, "", ""), thing(t, "b", 2, "", ""))
	var syncs [20]atomic.Int32 // of the parent a, by the version that it had
	var others atomic.Int32
	k := &kind{}
	k.write = func(sync *reconciler.Sync) error {
		version := sync.Parent.ResourceVersion()
		if sync.Parent.Name() == "b" {
			others.Add(1)
			return nil
		}
		var at int
		if _, err := fmt.Sscan(version, &at); err != nil {
			return err
		}
		syncs[at].Add(1)
		if at >= 13 {
			return nil
		}
		return sync.WriteParent(t.Context(), parent.Changes{Status: map[string]any{"of": version}})
	}
	s.start(k, nil)
	s.eventually("the second write", func() bool { return syncs[12].Load() > 0 })
	s.update(s.things, written)
	for n := range 20 {
		before := others.Load()
		s.update(s.widgets, widget(t, "w", 20+n, "b", ""))
		s.eventually("syncs of another parent", func() bool { return others.Load() > before })
	}
	s.update(s.things, thing(t, "a", 13, "", `,"status":{"of":"11"}`))
	s.eventually("a sync of what the other client wrote", func() bool { return syncs[13].Load() > 0 })
	if n := syncs[12].Load(); n != 1 {
		t.Errorf("%d syncs of the parent as its controller wrote it, want 1: the second one could only fail", n)
	}
}
