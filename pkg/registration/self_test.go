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

package registration

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// objects answers requests for a registration and its owner, one at a time. What the API makes of them is tested at a control plane,
// in test/integration/registration.
type objects struct {
	// owner is the UID of the ClusterRole, empty for none.
	owner string
	// apiService is the registration, nil for none.
	apiService []byte
	writes     int
	// definition is the name of the CustomResourceDefinition that there is, empty for none.
	definition string
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	found := []byte(nil)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/apiservices/"+APIServiceName):
		if r.Method == http.MethodPatch {
			o.apiService, _ = io.ReadAll(r.Body)
			o.writes++
		}
		found = o.apiService
	case o.definition != "" && strings.HasSuffix(path, "/customresourcedefinitions/"+o.definition):
		found = []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + o.definition + `"}}`)
	case strings.HasSuffix(path, "/clusterroles/owner") && o.owner != "":
		found = []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"owner","uid":"` + o.owner + `"}}`)
	}
	if found == nil {
		w.WriteHeader(http.StatusNotFound)
		found = []byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	}
	_, _ = w.Write(found)
}

// points has the registration point to a Service of a name.
func (o *objects) points(t *testing.T, name string) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(o.apiService, &object); err != nil {
		t.Fatal(err)
	}
	object["spec"].(map[string]any)["service"].(map[string]any)["name"] = name
	var err error
	if o.apiService, err = json.Marshal(object); err != nil {
		t.Fatal(err)
	}
}

func TestARegistrationThatGoesAway(t *testing.T) {
	const (
		deleted = "The registration of this server was deleted"
		failed  = "Cannot register this server"
	)
	for name, test := range map[string]struct {
		owner string
		// change is what somebody does to the cluster after the server was registered.
		change func(t *testing.T, o *objects)
		// back says whether the server is registered after that, and logged is what is said, once; empty for nothing.
		back   bool
		logged string
	}{
		"nothing happens":                           {owner: "owner", change: func(*testing.T, *objects) {}, back: true},
		"somebody takes the server out":             {owner: "owner", change: func(_ *testing.T, o *objects) { o.apiService = nil }, logged: deleted},
		"the same without an owner":                 {change: func(_ *testing.T, o *objects) { o.apiService = nil }, logged: deleted},
		"the installation is removed":               {owner: "owner", change: func(_ *testing.T, o *objects) { o.apiService, o.owner = nil, "" }, logged: failed},
		"it goes with an owner that is another now": {owner: "owner", change: func(_ *testing.T, o *objects) { o.apiService, o.owner = nil, "2" }, back: true},
		"it outlives its owner for a while":         {owner: "owner", change: func(_ *testing.T, o *objects) { o.owner = "2" }, back: true},
		"another server takes the group":            {owner: "owner", change: func(t *testing.T, o *objects) { o.points(t, "other") }, logged: failed},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &objects{owner: "1"}
			server := httptest.NewServer(cluster)
			defer server.Close()
			files, err := servingcert.Ensure(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			missing, logs := true, &bytes.Buffer{}
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
			k := keeper{Self: &Self{
				Config: &rest.Config{Host: server.URL}, ServiceNamespace: "ns", ServiceName: "self", Owner: test.owner,
				Authority: func(context.Context) ([]byte, error) { return os.ReadFile(files.CAFile) },
				Missing:   func(now bool) { missing = now },
			}}
			k.look(ctx)
			if missing || cluster.writes != 1 {
				t.Fatalf("after the start the registration was written %d times, and is missing: %v\n%s", cluster.writes, missing, logs)
			}
			logs.Reset()
			test.change(t, cluster)
			for range 3 {
				k.look(ctx)
			}
			if missing == test.back {
				t.Errorf("it is told as missing: %v", missing)
			}
			if test.back {
				if !strings.Contains(string(cluster.apiService), `"name":"self"`) || test.owner != "" && !strings.Contains(string(cluster.apiService), `"uid":"`+cluster.owner+`"`) {
					t.Errorf("the registration is %s", cluster.apiService)
				}
			} else if cluster.writes != 1 {
				t.Error("it was written again")
			}
			for _, message := range []string{deleted, failed} {
				want := 0
				if message == test.logged {
					want = 1
				}
				if got := strings.Count(logs.String(), message); got != want {
					t.Errorf("%q was logged %d times, want %d:\n%s", message, got, want, logs)
				}
			}
		})
	}
}

// What is put back by somebody else counts, and its next deletion is told again.
func TestARegistrationThatIsDeletedTwice(t *testing.T) {
	cluster := &objects{}
	server := httptest.NewServer(cluster)
	defer server.Close()
	files, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	logs := &bytes.Buffer{}
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
	k := keeper{Self: &Self{
		Config: &rest.Config{Host: server.URL}, ServiceNamespace: "ns", ServiceName: "self",
		Authority: func(context.Context) ([]byte, error) { return os.ReadFile(files.CAFile) },
	}}
	k.look(ctx)
	stored := cluster.apiService
	for _, there := range [][]byte{nil, nil, stored, nil} {
		cluster.apiService = there
		k.look(ctx)
	}
	if got := strings.Count(logs.String(), "was deleted"); got != 2 {
		t.Errorf("two deletions were logged %d times:\n%s", got, logs)
	}
}

// Metacontroller may be installed again, of which its definitions are seen, and nothing else.
func TestDefinitionsThatComeBack(t *testing.T) {
	cluster := &objects{}
	server := httptest.NewServer(cluster)
	defer server.Close()
	files, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	hidden, logs := -1, &bytes.Buffer{}
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
	k := keeper{Self: &Self{
		Config: &rest.Config{Host: server.URL}, ServiceNamespace: "ns", ServiceName: "self",
		Authority: func(context.Context) ([]byte, error) { return os.ReadFile(files.CAFile) },
		Hidden:    func(definitions int) { hidden = definitions },
	}}
	const name, come, gone = "compositecontrollers.metacontroller.k8s.io", "The cluster has CustomResourceDefinitions", "the group that this server serves are gone"
	for _, step := range []struct {
		what string
		// definition is there then, and the registration if it is not taken away.
		definition   string
		unregistered bool
		// hidden are counted, and come and gone logged so far.
		hidden, come, gone int
	}{
		{"there are none", "", false, 0, 0, 0},
		{"one comes", name, false, 1, 1, 0},
		{"it stays", name, false, 1, 1, 0},
		{"it goes", "", false, 0, 1, 1},
		{"it comes again", name, false, 1, 2, 1},
		{"somebody takes the server out", name, true, 0, 2, 1},
	} {
		cluster.definition = step.definition
		if step.unregistered {
			cluster.apiService = nil
		}
		k.look(ctx)
		if hidden != step.hidden || strings.Count(logs.String(), come) != step.come || strings.Count(logs.String(), gone) != step.gone {
			t.Errorf("%s: %d are hidden, want %d; the log is\n%s", step.what, hidden, step.hidden, logs)
		}
	}
}

func TestAServiceOfAServerInTheClusterSaysHowToRegisterIt(t *testing.T) {
	objects, err := readManifest("service.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkService(objects[0]); err == nil || !strings.Contains(err.Error(), "restart its Pod") {
		t.Errorf("got %v", err)
	}
}
