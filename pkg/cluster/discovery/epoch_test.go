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

package discovery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func documentOf(list string) []byte {
	return fmt.Appendf(nil, `{"components":{"schemas":{"Thing":{"properties":{"metadata":{},"list":{"x-kubernetes-list-type":%q}},
		"x-kubernetes-group-version-kind":[{"kind":"Thing"}]}}}}`, list)
}

func TestADocumentIsDecodedOnceWhileItIsUsed(t *testing.T) {
	d := documents{known: map[[sha256.Size]byte]weak.Pointer[document]{}}
	decode := func(list string) *Schema {
		kinds, err := d.schemas(documentOf(list))
		if err != nil {
			t.Fatal(err)
		}
		if kinds["Thing"] == nil || kinds["Thing"].node.Properties["list"].ListType != list {
			t.Fatalf("decoded %+v, want a list of type %s", kinds, list)
		}
		return kinds["Thing"]
	}
	first, other := decode("map"), decode("set")
	if again := decode("map"); again.document != first.document {
		t.Error("the same document is decoded twice")
	}
	if other.document == first.document {
		t.Error("different documents are taken for the same one")
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(other)
	runtime.GC()
	if kept := decode("atomic"); len(d.known) != 1 {
		t.Errorf("%d documents are remembered, of which one is used", len(d.known))
	} else {
		runtime.KeepAlive(kept)
	}
	if _, err := d.schemas([]byte("{")); err == nil {
		t.Error("half a document is decoded")
	}
}

func TestWhereKindsComeFrom(t *testing.T) {
	example := schema.GroupVersion{Group: "example.com", Version: "v1"}
	for name, tc := range map[string]struct {
		reason  string
		label   string
		version schema.GroupVersion
		want    Origin
	}{
		"Custom":     {"kube-apiserver makes the APIService with the definition.", "true", example, Custom},
		"BuiltIn":    {"Kubernetes' own groups may have a dot.", "onstart", example, BuiltIn},
		"Aggregated": {"Somebody else has made the APIService.", "", example, Aggregated},
		"Absent":     {"It may be in no list yet.", "true", schema.GroupVersion{Group: "other.example.com", Version: "v1"}, Unknown},
		"Core":       {"No definition can have such a group.", "", schema.GroupVersion{Version: "v1"}, BuiltIn},
		"Apps":       {"No definition can have such a group.", "", schema.GroupVersion{Group: "apps", Version: "v1"}, BuiltIn},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quiet{label: tc.label}
				if got := q.run(t).Origin(tc.version); got != tc.want {
					t.Errorf("%s got %d, want %d", tc.reason, got, tc.want)
				}
			})
		})
	}
	if got := (&Discovery{}).Origin(example); got != Unknown {
		t.Errorf("without a watch of APIServices the origin is %d, want unknown", got)
	}
}

var (
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	daemonSets  = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	trains      = schema.GroupResource{Group: "example.com", Resource: "trains"}
)

const policiesServed = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"admissionregistration.k8s.io/v1","resources":[
{"name":"mutatingadmissionpolicies","kind":"MutatingAdmissionPolicy","verbs":["watch"]},
{"name":"mutatingadmissionpolicybindings","kind":"MutatingAdmissionPolicyBinding","verbs":["watch"]}]}`

// configured is a cluster of which a test changes what configures it, in a bubble.
type configured struct {
	*Discovery

	t       *testing.T
	version int
	known   map[string]bool
}

// configure runs a Discovery of a cluster until the test ends. Somebody knows the epochs of some resources.
func configure(t *testing.T) *configured {
	t.Helper()
	config := &rest.Config{Host: "http://cluster", Transport: &quiet{
		served: map[string]string{"/apis/admissionregistration.k8s.io/v1": policiesServed}, requests: map[string]int{},
	}}
	watched, err := cache.New(cache.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(config, watched)
	if err != nil {
		t.Fatal(err)
	}
	c := &configured{Discovery: d, t: t, known: map[string]bool{}}
	for _, resource := range []string{"mutatingwebhookconfigurations", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		c.replace(cache.Query{Resource: admissionVersion("v1").WithResource(resource)})
	}
	c.replace(cache.Query{Resource: crdResource, MetadataOnly: true})
	c.replace(cache.Query{Resource: apiServiceResource})
	for _, resource := range []schema.GroupResource{deployments, daemonSets, trains} {
		if epoch := d.Epoch(resource); epoch != 0 {
			t.Errorf("epoch %d of %s at the start", epoch, resource)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	pass(time.Minute)
	return c
}

func (c *configured) replace(q cache.Query) {
	c.t.Helper()
	if err := c.cache.Acquire(q).Replace(nil, "1"); err != nil {
		c.t.Fatal(err)
	}
}

// apply has an object created or changed. $version in its text is another number each time.
func (c *configured) apply(text string) { c.deliver(text, (*cache.Informer).Update) }

// remove has an object deleted.
func (c *configured) remove(text string) { c.deliver(text, (*cache.Informer).Delete) }

func (c *configured) deliver(text string, do func(*cache.Informer, any) error) {
	c.t.Helper()
	c.version++
	o, err := object.Parse([]byte(strings.ReplaceAll(text, "$version", fmt.Sprint(c.version))), object.ParseOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	q := cache.Query{Resource: map[string]schema.GroupVersionResource{
		"MutatingWebhookConfiguration":   admissionVersion("v1").WithResource("mutatingwebhookconfigurations"),
		"MutatingAdmissionPolicy":        admissionVersion("v1").WithResource("mutatingadmissionpolicies"),
		"MutatingAdmissionPolicyBinding": admissionVersion("v1").WithResource("mutatingadmissionpolicybindings"),
		"CustomResourceDefinition":       crdResource, "APIService": apiServiceResource,
	}[o.Kind()]}
	q.MetadataOnly = q.Resource == crdResource
	if err := do(c.cache.Acquire(q), o); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// webhooks is a configuration of mutating webhooks, each with a place where it is called and its rules.
func webhooks(webhooks ...string) string {
	return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"w","uid":"w",` +
		`"resourceVersion":"$version","generation":$version},"webhooks":[` + strings.Join(webhooks, ",") + `]}`
}

func webhook(path, bundle, rules string) string {
	return fmt.Sprintf(`{"name":"w.example.com","clientConfig":{"service":{"name":"w","namespace":"w","path":%q},"caBundle":%q},"rules":[%s]}`,
		path, bundle, rules)
}

func ruleOf(group, resource, operation string) string {
	return fmt.Sprintf(`{"operations":[%q],"apiGroups":[%q],"apiVersions":["v1"],"resources":[%q]}`, operation, group, resource)
}

func policy(expression, rules string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"p","uid":"p",`+
		`"resourceVersion":"$version"},"spec":{"matchConstraints":{"resourceRules":[%s]},"mutations":[{"expression":%q}]}}`, rules, expression)
}

func binding(of, rules string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"b","uid":"b",`+
		`"resourceVersion":"$version"},"spec":{"policyName":%q,"matchResources":{"resourceRules":[%s]}}}`, of, rules)
}

func definition(generation int) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"trains.example.com",`+
		`"uid":"d","resourceVersion":"$version","generation":%d}}`, generation)
}

func apiService(service, bundle, available string) string {
	return fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.example.com","uid":"a",`+
		`"resourceVersion":"$version"},"spec":{"service":{"name":%q},"caBundle":%q},"status":{"conditions":[{"status":%q}]}}`, service, bundle, available)
}

func TestAnEpochEndsWhenSomethingChangesWhatIsStored(t *testing.T) {
	all, deployment, train := ruleOf("*", "*", "CREATE"), ruleOf("apps", "deployments", "UPDATE"), ruleOf("example.com", "trains", "*")
	for name, tc := range map[string]struct {
		before  []string
		change  string
		removes bool
		// want are the resources whose epochs end.
		want []schema.GroupResource
	}{
		"webhooks come":                        {change: webhooks(webhook("/", "", deployment)), want: []schema.GroupResource{deployments}},
		"webhooks of all":                      {change: webhooks(webhook("/", "", all)), want: []schema.GroupResource{deployments, daemonSets, trains}},
		"webhooks of the group":                {change: webhooks(webhook("/", "", ruleOf("apps", "*", "*"))), want: []schema.GroupResource{deployments, daemonSets}},
		"webhooks of the resource, everywhere": {change: webhooks(webhook("/", "", ruleOf("*", "trains", "*"))), want: []schema.GroupResource{trains}},
		"webhooks of another group":            {change: webhooks(webhook("/", "", ruleOf("other.com", "deployments", "*")))},
		"webhooks of a subresource":            {change: webhooks(webhook("/", "", ruleOf("apps", "deployments/scale", "*")))},
		"webhooks of all subresources":         {change: webhooks(webhook("/", "", ruleOf("apps", "*/scale", "*")))},
		"webhooks of resources and subresources": {
			change: webhooks(webhook("/", "", ruleOf("apps", "deployments/*", "*"))), want: []schema.GroupResource{deployments},
		},
		"webhooks of deletions": {change: webhooks(webhook("/", "", ruleOf("*", "*", "DELETE")))},
		"webhooks go": {
			before: []string{webhooks(webhook("/", "", deployment))}, change: webhooks(webhook("/", "", deployment)), removes: true,
			want: []schema.GroupResource{deployments},
		},
		"webhooks are written again": {before: []string{webhooks(webhook("/", "", all))}, change: webhooks(webhook("/", "", all))},
		"a CA bundle is injected":    {before: []string{webhooks(webhook("/", "", all))}, change: webhooks(webhook("/", "e30=", all))},
		"a webhook is elsewhere": {
			before: []string{webhooks(webhook("/", "", deployment))}, change: webhooks(webhook("/v2", "", deployment)),
			want: []schema.GroupResource{deployments},
		},
		"a webhook is about something else": {
			before: []string{webhooks(webhook("/", "", deployment))}, change: webhooks(webhook("/", "", train)),
			want: []schema.GroupResource{deployments, trains},
		},
		"one of the webhooks changes": {
			before: []string{webhooks(webhook("/", "", deployment), webhook("/", "", train))},
			change: webhooks(webhook("/", "", deployment), webhook("/v2", "", train)), want: []schema.GroupResource{trains},
		},
		"webhooks change places": {
			before: []string{webhooks(webhook("/", "", deployment), webhook("/", "", train))},
			change: webhooks(webhook("/", "", train), webhook("/", "", deployment)), want: []schema.GroupResource{deployments, trains},
		},
		"a policy comes":            {change: policy("a", deployment), want: []schema.GroupResource{deployments}},
		"a policy is written again": {before: []string{policy("a", deployment)}, change: policy("a", deployment)},
		"a policy does something else": {
			before: []string{policy("a", deployment)}, change: policy("b", deployment), want: []schema.GroupResource{deployments},
		},
		"a policy is bound": {before: []string{policy("a", all)}, change: binding("p", deployment), want: []schema.GroupResource{deployments}},
		"a policy is bound for all of its resources": {
			before: []string{policy("a", train)}, change: binding("p", ""), want: []schema.GroupResource{trains},
		},
		"a policy is bound for nothing of it": {before: []string{policy("a", train)}, change: binding("p", deployment)},
		"a policy that is not there is bound": {change: binding("p", "")},
		"a policy is bound no more": {
			before: []string{policy("a", train), binding("p", "")}, change: binding("other", ""), want: []schema.GroupResource{trains},
		},
		"a kind is defined":                {change: definition(1), want: []schema.GroupResource{trains}},
		"a kind is defined in another way": {before: []string{definition(1)}, change: definition(2), want: []schema.GroupResource{trains}},
		"the status of a definition":       {before: []string{definition(1)}, change: definition(1)},
		"a group is served":                {change: apiService("s", "", "False"), want: []schema.GroupResource{trains}},
		"a group is available":             {before: []string{apiService("s", "", "False")}, change: apiService("s", "", "True")},
		"a CA bundle of a group":           {before: []string{apiService("s", "", "True")}, change: apiService("s", "e30=", "True")},
		"a group is served by another service": {
			before: []string{apiService("s", "", "True")}, change: apiService("s2", "", "True"), want: []schema.GroupResource{trains},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := configure(t)
				for _, text := range tc.before {
					c.apply(text)
				}
				pass(time.Minute)
				before := map[schema.GroupResource]int64{}
				for _, r := range []schema.GroupResource{deployments, daemonSets, trains} {
					before[r] = c.Epoch(r)
				}
				if tc.removes {
					c.remove(tc.change)
				} else {
					c.apply(tc.change)
				}
				for r, epoch := range before {
					if got := c.Epoch(r); got > epoch != slices.Contains(tc.want, r) || c.Followed(r) != epoch {
						t.Errorf("epoch %d of %s after %d, %d is followed at once", got, r, epoch, c.Followed(r))
					}
				}
				pass(time.Minute)
				for r, epoch := range before {
					if got := c.Followed(r); got > epoch != slices.Contains(tc.want, r) || got != c.Epoch(r) {
						t.Errorf("epoch %d of %s is followed, of %d", got, r, c.Epoch(r))
					}
				}
			})
		})
	}
}

func TestEpochsAreFollowedOnceAfterManyChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		edits int
		// followed is how many epochs are followed.
		followed int
	}{
		"one change": {1, 1}, "edits for a while": {20, 1}, "edits for ten minutes, once a minute and after the last": {600, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := configure(t)
				var last int64
				followed := 0
				defer c.Subscribe(func() {
					if now := c.Followed(deployments); now > last {
						last, followed = now, followed+1
					}
				})()
				for i := range tc.edits {
					c.apply(webhooks(webhook(fmt.Sprint("/", i), "", ruleOf("apps", "deployments", "*"))))
					pass(time.Second)
				}
				ended := time.Now()
				for c.Followed(deployments) < c.Epoch(deployments) {
					pass(time.Millisecond)
				}
				if took := time.Since(ended); took > repeats[len(repeats)-1] {
					t.Errorf("followed %v after the last change", took)
				}
				synctest.Wait()
				if last != c.Epoch(deployments) || followed != tc.followed {
					t.Errorf("subscribers know that %d epochs are followed, up to %d of %d", followed, last, c.Epoch(deployments))
				}
			})
		})
	}
}

const (
	older = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"others","kind":"Other","namespaced":true,"verbs":["get"]}]}`
	newer = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"others","kind":"Other","namespaced":true,"verbs":["get"]},{"name":"things","kind":"Thing","namespaced":true,"verbs":["get"]}]}`
	withStatus = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"others","kind":"Other","namespaced":true,"verbs":["get"]},{"name":"others/status","kind":"Other","namespaced":true,"verbs":["patch"]}]}`
)

// unavailable is served as an error.
const unavailable = "unavailable"

// quiet is a cluster within the process whose definitions do not change. Time may be that of a test.
type quiet struct {
	// label is that of the APIService of example.com/v1.
	label string

	mu       sync.Mutex
	served   map[string]string // what paths return, besides the lists of definitions
	requests map[string]int
}

func (q *quiet) serve(path, body string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.served[path] = body
}

func (q *quiet) count(path string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.requests[path]
}

// RoundTrip implements http.RoundTripper.
func (q *quiet) RoundTrip(r *http.Request) (*http.Response, error) {
	respond := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	path := r.URL.Path
	defined := strings.HasSuffix(path, "/"+apiServiceResource.Resource)
	switch {
	case r.URL.Query().Get("watch") != "":
		reader, writer := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = writer.Close() })
		return respond(http.StatusOK, reader)
	case defined, strings.HasSuffix(path, "/"+crdResource.Resource), strings.HasSuffix(path, "webhookconfigurations"):
		item := ""
		if defined {
			item = fmt.Sprintf(`{"metadata":{"name":"v1.example.com","uid":"u","resourceVersion":"1","labels":{%q:%q}}}`, automanagedLabel, q.label)
		}
		return respond(http.StatusOK, io.NopCloser(strings.NewReader(
			`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[`+item+`]}`)))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests[path]++
	switch body := q.served[path]; body {
	case "":
	case unavailable:
		return respond(http.StatusServiceUnavailable, io.NopCloser(strings.NewReader(body)))
	default:
		return respond(http.StatusOK, io.NopCloser(strings.NewReader(body)))
	}
	return respond(http.StatusNotFound, io.NopCloser(strings.NewReader(
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)))
}

const (
	kindsPath   = "/apis/example.com/v1"
	schemasPath = "/openapi/v3/apis/example.com/v1"
)

// run runs a Discovery of the cluster within a bubble, until the minute in which the definitions were listed is over.
func (q *quiet) run(t *testing.T) *Discovery {
	t.Helper()
	q.served, q.requests = map[string]string{kindsPath: older, schemasPath: string(documentOf("map"))}, map[string]int{}
	config := &rest.Config{Host: "http://api", QPS: -1, Transport: q}
	c, err := cache.New(cache.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(config, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	running.Go(func() { d.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	pass(30 * time.Second)
	return d
}

// pass lets time pass within a bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // It is the time of a bubble.
	synctest.Wait()
}

// counted counts the notifications of a Discovery.
func counted(t *testing.T, d *Discovery) (told func() int) {
	t.Helper()
	var mu sync.Mutex
	var n int
	t.Cleanup(d.Subscribe(func() {
		mu.Lock()
		defer mu.Unlock()
		n++
	}))
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func TestKindsThatNoObjectTellsOfAreLookedForEveryMinute(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		label  string
		now    string
		// kind is looked for after the change. It has a status if status is set.
		kind   string
		status bool
		told   bool
	}{
		"aggregated":    {"The server behind an APIService was replaced.", "", newer, "Thing", false, true},
		"status":        {"A parent's status is written now.", "", withStatus, "Other", true, true},
		"built-in":      {"The kube-apiserver was replaced by a newer one.", "onstart", newer, "Thing", false, true},
		"custom":        {"The event of a CustomResourceDefinition would tell.", "true", newer, "Thing", false, false},
		"nothing":       {"Nobody is told of nothing.", "", older, "Other", false, false},
		"another label": {"It says nothing.", "yes", newer, "Thing", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quiet{label: tc.label}
				d := q.run(t)
				_, err := d.Kind(t.Context(), "example.com/v1", "Thing")
				if _, missing := errors.AsType[*NotFoundError](err); !missing {
					t.Fatalf("a kind is served that is not: %v", err)
				}
				told := counted(t, d)
				q.serve(kindsPath, tc.now)
				pass(recheckInterval)
				if got := told() > 0; got != tc.told {
					t.Errorf("subscribers are told: %t. %s", got, tc.reason)
				}
				if found, err := d.Kind(t.Context(), "example.com/v1", tc.kind); tc.told && (err != nil || found.HasStatus != tc.status) {
					t.Errorf("%s: %+v, %v. %s", tc.kind, found, err, tc.reason)
				}
			})
		})
	}
}

func TestNobodyIsToldAndLittleIsAskedWhileNothingChanges(t *testing.T) {
	for label, want := range map[string]struct{ kinds, schemas int }{"": {60, 6}, "onstart": {60, 6}, "true": {0, 0}} {
		t.Run(label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quiet{label: label}
				d := q.run(t)
				use := func() {
					if _, err := d.Kind(t.Context(), "example.com/v1", "Other"); err != nil {
						t.Error(err)
					}
					found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
					if found == nil || err != nil {
						t.Errorf("schema %v, %v", found, err)
					}
				}
				use()
				told, kinds, schemas := counted(t, d), q.count(kindsPath), q.count(schemasPath)
				for range 3600 {
					pass(time.Second)
					use()
				}
				if got := q.count(kindsPath) - kinds; got > want.kinds {
					t.Errorf("kinds are asked for %d times in an hour, want %d", got, want.kinds)
				}
				if got := q.count(schemasPath) - schemas; got > want.schemas || got < want.schemas-1 {
					t.Errorf("schemas are asked for %d times in an hour, want %d", got, want.schemas)
				}
				if told() > 0 {
					t.Errorf("subscribers are notified %d times", told())
				}
			})
		})
	}
}

func TestSchemasThatNoObjectTellsOfAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{}
		d := q.run(t)
		listType := func() string {
			found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
			if err != nil {
				t.Fatal(err)
			}
			return found.Field("list").node.ListType
		}
		if got := listType(); got != "map" {
			t.Fatalf("the list is a %q", got)
		}
		q.serve(schemasPath, string(documentOf("set")))
		pass(schemasRecheck + recheckInterval)
		if got := listType(); got != "set" {
			t.Errorf("the list is a %q after %v", got, schemasRecheck+recheckInterval)
		}
		if _, err := d.Kind(t.Context(), "example.com/v1", "Other"); err != nil {
			t.Fatal(err)
		}
		// Schemas that may have changed with the kinds are read at once.
		q.serve(schemasPath, string(documentOf("atomic")))
		q.serve(kindsPath, newer)
		pass(recheckInterval)
		if got := listType(); got != "atomic" {
			t.Errorf("the list is a %q after the kinds have changed", got)
		}
	})
}

// TestWhileAnAPIIsUnavailableTheLastResponseIsNotWaitedFor is about an aggregated API: its own event would say that it is not available, and
// of a single response that fails none does.
func TestWhileAnAPIIsUnavailableTheLastResponseIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{}
		d := q.run(t)
		use := func() {
			if _, err := d.Kind(t.Context(), "example.com/v1", "Other"); err != nil {
				t.Error(err)
			}
			found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
			if found == nil || err != nil {
				t.Errorf("schema %v, %v", found, err)
			}
		}
		use()
		told := counted(t, d)
		q.serve(kindsPath, unavailable)
		q.serve(schemasPath, unavailable)
		pass(schemasRecheck + recheckInterval)
		kinds, schemas := q.count(kindsPath), q.count(schemasPath)
		for range 100 {
			use()
		}
		if kinds, schemas = q.count(kindsPath)-kinds, q.count(schemasPath)-schemas; kinds+schemas > 0 {
			t.Errorf("users ask %d times for kinds and %d times for schemas", kinds, schemas)
		}
		if told() > 0 {
			t.Errorf("subscribers are notified %d times", told())
		}
		q.serve(kindsPath, newer)
		pass(recheckInterval)
		if told() == 0 {
			t.Error("subscribers are not told of a kind that came with the end of the failure")
		}
	})
}

func TestVersionsThatAreNotServedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{}
		d := q.run(t)
		ask := func(version string) {
			if _, err := d.Kind(t.Context(), "example.com/"+version, "Thing"); err == nil {
				t.Errorf("%s is served", version)
			}
			if found, err := d.Schema(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Thing"}); err != nil ||
				(found != nil) != (version == "v1") {
				t.Errorf("%s: schema %v, %v", version, found, err)
			}
		}
		ask("v1")
		for n := range 1000 {
			ask(fmt.Sprintf("v%d", 2+n))
		}
		before := q.count("/apis/example.com/v2")
		for range 100 {
			ask("v2")
		}
		if got := q.count("/apis/example.com/v2"); got != before {
			t.Errorf("asked %d times more for a version that was not served a moment ago", got-before)
		}
		pass(2 * recheckInterval)
		d.mu.Lock()
		defer d.mu.Unlock()
		for version := range d.versions.known {
			if version.Group == "example.com" && version.Version != "v1" {
				t.Errorf("%s is remembered", version)
				break
			}
		}
		if len(d.schemas.known) != 1 {
			t.Errorf("%d documents are remembered of one", len(d.schemas.known))
		}
	})
}
