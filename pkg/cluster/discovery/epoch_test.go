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
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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
