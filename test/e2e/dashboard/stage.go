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

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

// Hostile is in the error of an invoice: markup, a script, and a character that turns the text around.
const Hostile = `<script>document.title="harmed"</script><img src=x onerror='document.title="harmed"'> ` + "\u202egnp.exe"

// SecretValue is in a Secret that belongs to a website.
const SecretValue = "correct-horse-battery"

// Namespace is that of all parents, and Other has one website more.
const (
	Namespace = "shop"
	Other     = "back-office"
)

// Kinds of parents and children.
var (
	Websites  = resource("websites")
	Invoices  = resource("invoices")
	Caches    = resource("caches")
	Databases = resource("databases")
	Shards    = resource("shards")
	Backups   = resource("backups")
	Mails     = resource("mails")
	Queues    = resource("queues")
	Items     = resource("items")
)

func resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
}

// Resources are what the server's cluster has to define.
func Resources() []cluster.CustomResource {
	var defined []cluster.CustomResource
	for r, kind := range map[schema.GroupVersionResource]string{
		Websites: "Website", Invoices: "Invoice", Caches: "Cache", Databases: "Database", Shards: "Shard", Backups: "Backup", Mails: "Mail", Queues: "Queue", Items: "Item",
	} {
		defined = append(defined, cluster.CustomResource{Resource: r, Kind: kind})
	}
	return defined
}

// Stage are controllers in every state.
type Stage struct {
	*fixture.Test

	t           *testing.T
	controllers map[string]*controllers.Controller
	// first is the dashboard that was served first.
	first *process.Process
}

// New sets the stage.
func New(t *testing.T, e *fixture.Environment) *Stage {
	t.Helper()
	s := &Stage{Test: e.NewTest(t), t: t, controllers: map[string]*controllers.Controller{}}
	for _, name := range []string{Namespace, Other} {
		s.KubectlInput(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name), "create", "-f", "-")
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), s.Limit)
			defer cancel()
			if output, err := s.TryKubectl(ctx, "", "delete", "namespace", name, "--wait=false"); err != nil {
				t.Errorf("deleting the namespace %s: %v\n%s", name, err, output)
			}
		})
	}
	s.Objects = s.In(Namespace)
	s.website()
	s.invoice()
	s.cache()
	s.database()
	s.backup()
	s.queue()
	s.mailer()
	s.badge()
	return s
}

// run runs a controller of a name, whose hook responds with what respond returns.
func (s *Stage) run(name string, parents schema.GroupVersionResource, d fixture.Definition, respond func(*fixture.Call) (*fixture.Reply, error)) *controllers.Controller {
	s.t.Helper()
	script := s.NewScript(fixture.Composite)
	script.Respond(respond)
	path := "/" + name
	s.Handle(path, script)
	d.Kind, d.Name, d.Parents, d.Sync = fixture.Composite, name, []schema.GroupVersionResource{parents}, s.At(path)
	d.Selector = map[string]string{"app": name}
	if d.Finalize != nil {
		d.Finalize = s.At(path)
	}
	s.controllers[name] = s.Run(d)
	return s.controllers[name]
}

// parent creates a parent of a controller.
func (s *Stage) parent(controller string, r schema.GroupVersionResource, name string, spec map[string]any) {
	s.t.Helper()
	s.CreateIn(Namespace, r, name, withSpec(spec), map[string]string{"app": controller})
}

func withSpec(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }

func child(apiVersion, kind, name string, content map[string]any) *hook.Object {
	object := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	maps.Copy(object, content)
	return &hook.Object{Object: object}
}

// website is fine: three websites, each with a ConfigMap, a Secret and a Deployment; one is paused.
func (s *Stage) website() {
	s.t.Helper()
	s.run("website", Websites, fixture.Definition{Children: []fixture.Child{
		{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace},
		{Resource: fixture.Secrets, Method: v1alpha1.ChildUpdateInPlace},
		{Resource: fixture.Deployments, Method: v1alpha1.ChildUpdateInPlace},
	}}, func(c *fixture.Call) (*fixture.Reply, error) {
		name := c.Parent.GetName()
		labels := map[string]any{"website": name}
		return &fixture.Reply{Status: map[string]any{"pages": int64(len(c.Children["ConfigMap.v1"]))}, Children: []*hook.Object{
			fixture.ConfigMap(name+"-pages", map[string]any{"title": fixture.Value(c.Parent, "spec", "title")}),
			child("v1", "Secret", name+"-login", map[string]any{"stringData": map[string]any{"password": SecretValue}}),
			child("apps/v1", "Deployment", name, map[string]any{"spec": map[string]any{
				"replicas": int64(2), "selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
					"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "nginx:1.29"}}},
				},
			}}),
		}}, nil
	})
	for _, name := range []string{"blog", "docs", "example"} {
		s.parent("website", Websites, name, map[string]any{"title": name})
	}
	s.CreateIn(Other, Websites, "intranet", withSpec(map[string]any{"title": "intranet"}), map[string]string{"app": "website"})
	s.Patch(Websites, "docs", `{"metadata":{"annotations":{"`+v1alpha1.AnnotationPaused+`":"true"}}}`)
}

// invoice fails: the error of its hook is hostile.
func (s *Stage) invoice() {
	s.t.Helper()
	s.run("invoice", Invoices, fixture.Definition{}, func(*fixture.Call) (*fixture.Reply, error) {
		return nil, errors.New("the ledger is closed: " + Hostile)
	})
	for _, name := range []string{"first", "second"} {
		s.parent("invoice", Invoices, name, map[string]any{})
	}
}

// cache is fought over: somebody changes back what it writes.
func (s *Stage) cache() {
	s.t.Helper()
	s.run("cache", Caches, fixture.Definition{Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}}},
		func(c *fixture.Call) (*fixture.Reply, error) {
			return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap(c.Parent.GetName()+"-limits", map[string]any{"memory": "512Mi"})}}, nil
		})
	s.parent("cache", Caches, "sessions", map[string]any{})
	for range 3 {
		s.AwaitMemory("512Mi")
		s.ChangeBack("64Mi")
	}
	s.AwaitMemory("512Mi")
}

// AwaitMemory waits until the ConfigMap of the cache has a value.
func (s *Stage) AwaitMemory(want string) {
	s.t.Helper()
	s.Await(fixture.ConfigMaps, "sessions-limits", "to have "+want, func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "memory") == want })
}

// ChangeBack changes the ConfigMap of the cache as somebody else.
func (s *Stage) ChangeBack(value string) {
	s.t.Helper()
	_, err := s.Resource(fixture.ConfigMaps).Patch(s.t.Context(), "sessions-limits", types.MergePatchType, []byte(`{"data":{"memory":"`+value+`"}}`),
		metav1.PatchOptions{FieldManager: "capacity-planner"})
	if err != nil {
		s.t.Fatal(err)
	}
}

// shards are the children of the database.
var shards = []string{"orders-a", "orders-b", "orders-c", "orders-d"}

// database is half-way through a rollout: the first shard of the new revision does not become ready.
func (s *Stage) database() {
	s.t.Helper()
	strategy := &v1alpha1.CompositeControllerChildUpdateStrategy{
		Method:       v1alpha1.ChildUpdateRollingInPlace,
		StatusChecks: v1alpha1.ChildUpdateStatusChecks{Conditions: []v1alpha1.StatusConditionCheck{{Type: "Ready", Status: new("True")}}},
	}
	c := s.run("database", Databases, fixture.Definition{
		Children:      []fixture.Child{{Resource: Shards}},
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) { spec.ChildResources[0].UpdateStrategy = strategy },
	}, func(c *fixture.Call) (*fixture.Reply, error) {
		reply := &fixture.Reply{Status: map[string]any{}}
		for _, name := range shards {
			reply.Children = append(reply.Children, child("example.com/v1", "Shard", name, withSpec(map[string]any{"version": fixture.Value(c.Parent, "spec", "version")})))
		}
		return reply, nil
	})
	s.parent("database", Databases, "orders", map[string]any{"version": "17"})
	for i, name := range shards {
		s.Await(Shards, name, "to be there", cluster.Exists)
		status := `{"type":"Ready","status":"True"}`
		if i == 1 {
			status = `{"type":"Ready","status":"False","reason":"Recovering","message":"replays its log"}`
		}
		s.Patch(Shards, name, `{"status":{"conditions":[`+status+`]}}`, "status")
	}
	s.Idle(c)
	s.Patch(Databases, "orders", `{"spec":{"version":"18"}}`)
	s.Await(Shards, "orders-b", "to be on the new revision", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "spec", "version") == "18" })
}

// backup is finalizing: its hook waits for something.
func (s *Stage) backup() {
	s.t.Helper()
	var mu sync.Mutex
	done := false
	s.run("backup", Backups, fixture.Definition{Finalize: &v1alpha1.Hook{}, Children: []fixture.Child{{Resource: fixture.ConfigMaps}}}, func(*fixture.Call) (*fixture.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		reply := &fixture.Reply{Finalized: done, ResyncAfterSeconds: 1}
		if !done {
			reply.Children = []*hook.Object{fixture.ConfigMap("nightly-index", map[string]any{"copies": "7"})}
		}
		return reply, nil
	})
	s.parent("backup", Backups, "nightly", map[string]any{})
	s.Await(fixture.ConfigMaps, "nightly-index", "to be there", cluster.Exists)
	s.t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		done = true
	})
	s.Delete(Backups, "nightly")
}

// queue is held by its deletion guard.
func (s *Stage) queue() {
	s.t.Helper()
	guard := &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(0))}
	s.run("queue", Queues, fixture.Definition{
		Children:      []fixture.Child{{Resource: fixture.ConfigMaps}},
		EditComposite: func(spec *v1alpha1.CompositeControllerSpec) { spec.DeletionGuard = guard },
	}, func(c *fixture.Call) (*fixture.Reply, error) {
		reply := &fixture.Reply{}
		if fixture.Value(c.Parent, "spec", "workers") == "1" {
			reply.Children = []*hook.Object{fixture.ConfigMap("mail-worker", map[string]any{})}
		}
		return reply, nil
	})
	s.parent("queue", Queues, "mail", map[string]any{"workers": "1"})
	s.Await(fixture.ConfigMaps, "mail-worker", "to be there", cluster.Exists)
	s.Patch(Queues, "mail", `{"spec":{"workers":"0"}}`)
	s.controllers["queue"].AwaitCondition(v1alpha1.ConditionDeletionsHeld, "to be true", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
}

// mailer is paused.
func (s *Stage) mailer() {
	s.t.Helper()
	c := s.run("mailer", Mails, fixture.Definition{}, func(*fixture.Call) (*fixture.Reply, error) { return &fixture.Reply{}, nil })
	s.parent("mailer", Mails, "newsletter", map[string]any{})
	c.Patch(`{"spec":{"paused":true}}`)
	c.AwaitCondition(v1alpha1.ConditionPaused, "to be true", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
}

// badge is a decorator of mails, and of things that are in no namespace.
func (s *Stage) badge() {
	s.t.Helper()
	script := s.NewScript(fixture.Decorator)
	script.Want()
	s.Handle("/badge", script)
	s.Run(fixture.Definition{
		Kind: fixture.Decorator, Name: "badge", Parents: []schema.GroupVersionResource{Mails, fixture.ClusterThings}, Selector: map[string]string{"app": "mailer"}, Sync: s.At("/badge"),
	})
	s.CreateIn("", fixture.ClusterThings, "estate", map[string]any{}, map[string]string{"app": "mailer"})
}

// Crowd creates so many items with a controller that has an inline hook, and waits until all are synced.
func (s *Stage) Crowd(n int) {
	s.t.Helper()
	c := s.Run(fixture.Definition{
		Kind: fixture.Composite, Name: "stock", Parents: []schema.GroupVersionResource{Items}, Selector: map[string]string{"app": "stock"},
		Sync: fixture.Inline(s.t, fixture.Composite, "children: []"),
	})
	names := make(chan string)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for name := range names {
				o := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "example.com/v1", "kind": "Item", "metadata": map[string]any{"name": name, "labels": map[string]any{"app": "stock"}},
				}}
				if _, err := s.Resource(Items).Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
					s.t.Errorf("creating %s: %v", name, err)
				}
			}
		})
	}
	for i := range n {
		names <- fmt.Sprintf("item-%05d", i)
	}
	close(names)
	group.Wait()
	c.AwaitCounters("all items synced", func(c *v1alpha1.ControllerCounters) bool { return c.Synced == int64(n) })
}

// address is in what the command prints.
var address = regexp.MustCompile(`The dashboard is at (http://127\.0\.0\.1:\d+\S*)`)

// Serve runs the dashboard with flags, and returns the address that it prints.
func (s *Stage) Serve(t *testing.T, flags ...string) string {
	t.Helper()
	shell := terminal.New(t, s.Cluster)
	command := shell.Command(context.WithoutCancel(t.Context()), "exec kubectl metacontroller dashboard --no-browser "+strings.Join(flags, " "))
	running, err := process.Start(command, process.Options{
		Name: "kubectl metacontroller dashboard", Log: filepath.Join(t.TempDir(), "dashboard.log"),
		Wanted: address.MatchString,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.first == nil {
		s.first = running
	}
	t.Cleanup(func() {
		var exit *exec.ExitError
		if err := running.Stop(s.Limit); err != nil && !errors.As(err, &exit) {
			t.Errorf("ending the dashboard: %v", err)
		}
	})
	line, err := running.Line(t.Context())
	if err != nil {
		t.Fatalf("the dashboard printed no address: %v\n%s", err, running.Tail(5))
	}
	return address.FindStringSubmatch(line)[1]
}

// Peak returns how much memory the first dashboard had at most so far, in MiB. kubectl replaces itself by the plugin, whose process is the same.
func (s *Stage) Peak(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.first.ID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib := 0
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		t.Fatalf("reading the peak of memory: %v\n%s", err, status)
	}
	return kib / 1024
}
