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

package world_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

var update = flag.Bool("update", false, "write what plain controllers send and write")

// TestPlainControllersSendAndWriteTheSameBytes runs controllers that use nothing but what they have from the beginning through one life, and compares
// each request to a hook and each write with those that are kept: a feature that is not used must change none. They are those of the version before
// the condition Synced, paused parents and children that stay. A change of what every controller writes may write the files again, a feature may not.
func TestPlainControllersSendAndWriteTheSameBytes(t *testing.T) {
	for name, definition := range plain() {
		t.Run(name, func(t *testing.T) {
			file, sent := filepath.Join("testdata", "plain", name+".txt"), &transcript{ids: map[string]string{}}
			synctest.Test(t, func(t *testing.T) { sent.live(t, definition) })
			found := sent.String()
			if *update {
				if err := os.WriteFile(file, []byte(found), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			kept, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(kept), "\n"), strings.Split(found, "\n")); diff != "" {
				t.Errorf("-kept +sent:\n%s\nall bodies:\n%s", diff, sent.bodies.String())
			}
		})
	}
}

// plain are definitions, by names of files: each way to write children, with each hook.
func plain() map[string]string {
	inPlace := `"updateStrategy":{"method":"InPlace"}`
	all := map[string]string{"composite-customize": customizing(composite), "decorator": decorator, "decorator-customize": customizing(decorator)}
	for _, method := range []string{"OnDelete", "InPlace", "Recreate", "RollingInPlace", "RollingRecreate"} {
		all["composite-"+method] = strings.Replace(composite, inPlace, `"updateStrategy":{"method":"`+method+`"}`, 1)
	}
	for name, definition := range map[string]string{"composite": composite, "decorator": decorator} {
		all[name+"-ServerSide"] = strings.Replace(definition, inPlace, `"updateStrategy":{"method":"InPlace","apply":"ServerSide"}`, 1)
	}
	return all
}

// customizing gives a definition a customize hook.
func customizing(definition string) string {
	kind := "decorator/d"
	if definition == composite {
		kind = "composite/c"
	}
	return strings.Replace(definition, `"hooks":{`, `"hooks":{"customize":{"webhook":{"url":"http://hooks/`+kind+`/customize"}},`, 1)
}

// transcript is what an engine has sent: a line for each hook call and each write, with the digest of its body.
type transcript struct {
	lines, bodies bytes.Buffer
	calls, writes int
	// ids are the UIDs and hashes that were seen, with their numbers.
	ids map[string]string
}

var (
	versions = regexp.MustCompile(`"resourceVersion":"\d+"`)
	times    = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"`)
	ids      = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{40}`)
)

// add adds something that was sent. Versions, times and UIDs, and hashes with a UID in them, depend on what else is written, such as events.
func (s *transcript) add(what string, sent []byte) {
	body := versions.ReplaceAllString(string(sent), `"resourceVersion":"N"`)
	body = s.numbered(times.ReplaceAllString(body, `"TIME"`))
	what = s.numbered(what)
	fmt.Fprintf(&s.lines, "%s: %d bytes, %x\n", what, len(body), sha256.Sum256([]byte(body)))
	fmt.Fprintf(&s.bodies, "%s\n  %s\n", what, body)
}

// numbered has numbers in place of UIDs and hashes, in the order in which they were seen first.
func (s *transcript) numbered(text string) string {
	return ids.ReplaceAllStringFunc(text, func(found string) string {
		if s.ids[found] == "" {
			s.ids[found] = fmt.Sprintf("ID-%d", len(s.ids)+1)
		}
		return s.ids[found]
	})
}

// String implements fmt.Stringer.
func (s *transcript) String() string {
	return fmt.Sprintf("%d hook calls, %d writes\n%s", s.calls, s.writes, s.lines.String())
}

// hook is [pure], and selects a ConfigMap as related.
func (s *transcript) hook(c world.HookCall) world.HookResponse {
	s.calls++
	var request struct {
		Parent object `json:"parent"`
		Object object `json:"object"`
	}
	if err := json.Unmarshal(c.Request, &request); err != nil {
		return world.HookResponse{Err: err}
	}
	s.add(fmt.Sprintf("%s of %s for %s%s", c.Hook, c.Controller, request.Parent.Metadata.Name, request.Object.Metadata.Name), c.Request)
	if c.Hook == "customize" {
		return world.HookResponse{Body: []byte(`{"relatedResources":[{"apiVersion":"v1","resource":"configmaps","names":["settings"]}]}`)}
	}
	return pure(c)
}

// arrived notes writes, but for events and those of the controller object, which happen beside the syncs.
func (s *transcript) arrived(p world.Pending) {
	if p.Writes() && p.Resource != "events" && p.Resource != "compositecontrollers" && p.Resource != "decoratorcontrollers" {
		s.writes++
		s.add(strings.TrimPrefix(p.String(), "request "), p.Body())
	}
}

// live lets two parents and their controller live: everything is created, changed by its owner and by others, kept through a restart, and deleted.
func (s *transcript) live(t *testing.T, definition string) {
	t.Helper()
	w := begin(t, world.Options{Hook: s.hook, Arrived: s.arrived})
	step := func(what string) {
		w.settle()
		fmt.Fprintf(&s.lines, "-- %s\n", what)
	}
	kind, name := "compositecontrollers", "c"
	if strings.Contains(definition, `"DecoratorController"`) {
		kind, name = "decoratorcontrollers", "d"
	}
	w.create(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"a":"b"}}`)
	engine := w.Start()
	w.create(own+kind, definition)
	w.createThing("a", 2, "x")
	w.createThing("b", 1, "y")
	step("a parent wants another text and another child")
	w.editThing("a", 3, "z")
	step("another client changes a child and deletes one")
	w.must(http.MethodPatch, configMaps+"/a-0", "application/merge-patch+json", `{"data":{"text":"drift","more":"kept"}}`)
	w.must(http.MethodDelete, configMaps+"/a-1", "application/json", "")
	step("a related object and the labels of a parent change")
	w.must(http.MethodPatch, configMaps+"/settings", "application/merge-patch+json", `{"data":{"a":"c"}}`)
	w.must(http.MethodPatch, things+"/b", "application/merge-patch+json", `{"metadata":{"labels":{"l":"m"}}}`)
	step("a parent wants fewer children")
	w.editThing("a", 1, "z")
	step("the engine restarts")
	if err := w.Stop(engine); err != nil {
		t.Fatal(err)
	}
	w.Start()
	step("a parent is deleted")
	w.deleteThing("a")
	step("the controller is deleted")
	w.must(http.MethodDelete, own+kind+"/"+name, "application/json", "")
	step("the end")
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
