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

package metacontroller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// mutants is how many objects are made of the corpora.
	mutants = 10000
	// largest is about how many values the largest of them has.
	largest = 20000
)

// oddities are the values that mutations put anywhere.
var oddities = []any{
	nil, true, false, 0, 1, -1, 257, 1 << 31, -1 << 31, 1.5, 1e300, "", " ", "a", "A", "..", "/", "v1", "a/b", "a/b/c", "*", "\x00", "\r\n", "é", "\U0001f98a",
	"http://hook/", "http://[::1]:0/", "http://a:b@c/", "metacontroller.k8s.io/v1alpha1", "controllerrevisions", "1h", "-1s", "1d", "100%", "RollingInPlace",
	"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", strings.Repeat("x", 5000),
	[]any{},
	[]any{nil},
	[]any{""},
	map[string]any{},
	map[string]any{"": nil},
}

// mutator changes trees of JSON.
type mutator struct {
	random *rand.Rand
	trees  []map[string]any
}

// place is a value in a tree, with what puts another one there.
type place struct {
	value any
	set   func(any)
}

// places lists every value in a tree.
func places(node any) []place {
	var all []place
	switch node := node.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			all = append(all, place{node[key], func(v any) { node[key] = v }})
			all = append(all, places(node[key])...)
		}
	case []any:
		for i := range node {
			all = append(all, place{node[i], func(v any) { node[i] = v }})
			all = append(all, places(node[i])...)
		}
	}
	return all
}

func copyTree(node any) any {
	switch node := node.(type) {
	case map[string]any:
		c := make(map[string]any, len(node))
		for key, value := range node {
			c[key] = copyTree(value)
		}
		return c
	case []any:
		c := make([]any, len(node))
		for i, value := range node {
			c[i] = copyTree(value)
		}
		return c
	}
	return node
}

// mutate changes a few values of a tree: to an odd one, to one of another object, to a part of it, or to many of the same.
func (m *mutator) mutate(tree map[string]any) {
	for range 1 + m.random.IntN(3) {
		all := places(tree)
		spot := all[m.random.IntN(len(all))]
		switch m.random.IntN(5) {
		case 0:
			spot.set(copyTree(oddities[m.random.IntN(len(oddities))]))
		case 1:
			for range 50 {
				if odd := oddities[m.random.IntN(len(oddities))]; fmt.Sprintf("%T", odd) == fmt.Sprintf("%T", spot.value) {
					spot.set(copyTree(odd))
					break
				}
			}
		case 2:
			other := places(m.trees[m.random.IntN(len(m.trees))])
			if value := other[m.random.IntN(len(other))].value; fmt.Sprintf("%T", value) == fmt.Sprintf("%T", spot.value) {
				spot.set(copyTree(value))
			}
		case 3:
			switch value := spot.value.(type) {
			case map[string]any:
				for key := range value {
					delete(value, key)
					break
				}
			case []any:
				spot.set(value[:len(value)/2])
			case string:
				at := m.random.IntN(len(value) + 1)
				spot.set(value[:at] + string(rune(m.random.IntN(256))) + value[at:])
			}
		case 4:
			// A request has a limit of bytes.
			many := make([]any, m.random.IntN(min(600, 1+largest/(1+len(all)))))
			list, ok := spot.value.([]any)
			if !ok || len(list) == 0 {
				continue
			}
			for i := range many {
				many[i] = list[i%len(list)]
			}
			spot.set(copyTree(many))
		}
	}
}

// Whatever a client sends, it is told what is wrong with it, shortly, and no code of the server fails. The seed is fixed, so that a
// failure can be repeated. The limit of time is for a validation that hangs.
func TestTenThousandMutantsAreAnswered(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := newServer()
	m := &mutator{random: rand.New(rand.NewPCG(1, 2))}
	for _, manifest := range manifests(t, "accepted", "refused", "warned") {
		var tree map[string]any
		if err := yaml.Unmarshal(manifest, &tree); err != nil {
			t.Fatal(err)
		}
		m.trees = append(m.trees, tree)
	}
	outcomes := map[string]int{}
	for i := range mutants {
		if ctx.Err() != nil {
			t.Fatalf("after %d objects: %v", i, ctx.Err())
		}
		tree := copyTree(m.trees[i%len(m.trees)]).(map[string]any)
		m.mutate(tree)
		body, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		outcomes[s.try(ctx, t, body)]++
	}
	for _, outcome := range []string{"not decoded", "refused", "accepted"} {
		if outcomes[outcome] < mutants/100 {
			t.Errorf("%s: %d of %d objects; the mutations do not reach everything", outcome, outcomes[outcome], mutants)
		}
	}
	t.Log(outcomes)
}

// try sends an object as a new one, and with a new label as an update of what is stored.
func (s server) try(ctx context.Context, t *testing.T, body []byte) string {
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("panic: %v\n%.2000s", r, body)
		}
	}()
	object, err := runtime.Decode(s.decoder, body)
	if err != nil {
		return "not decoded"
	}
	if kind, _ := s.strategyOf(object); kind == nil {
		return "of another kind"
	}
	stored := object.DeepCopyObject()
	err = s.create(ctx, object)
	checkAnswer(t, err, body)
	if err != nil && !strings.Contains(err.Error(), "metadata.") {
		// It may be stored nevertheless, by a release with other rules.
		checkLabel(t, s, stored)
	}
	if err != nil {
		return "refused"
	}
	return "accepted"
}

// bothInStore gives objects the namespace that they have once they are stored.
func (s server) bothInStore(objects ...runtime.Object) {
	for _, o := range objects {
		if kind, _ := s.strategyOf(o); !kind.NamespaceScoped() {
			if accessor, err := meta.Accessor(o); err == nil {
				accessor.SetNamespace("")
			}
		}
	}
}

// checkAnswer demands an error of the client's, of a size that can be read.
func checkAnswer(t *testing.T, err error, body []byte) {
	t.Helper()
	if err == nil {
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code >= 500 {
		t.Errorf("not an error of the client's: %v\n%.2000s", err, body)
		return
	}
	const most = 100
	if details := status.Status().Details; details != nil {
		if len(details.Causes) > most {
			t.Errorf("%d causes, want %d at most", len(details.Causes), most)
		}
		for _, cause := range details.Causes {
			if strings.Contains(cause.Message, "Internal error") || len(cause.Message) > 4000 {
				t.Errorf("the answer is %.4000s\n%.2000s", cause.Message, body)
			}
		}
	}
}

// The largest requests that are admitted have tens of thousands of items, or texts of a megabyte.
func TestHugeObjectsGetShortAnswers(t *testing.T) {
	s := newServer()
	long := strings.Repeat("X", 1<<20)
	many := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	labels := make([]string, 40000)
	for i := range labels {
		labels[i] = fmt.Sprintf("%q:%q", fmt.Sprintf("-%d", i), "x y")
	}
	const parent = `"apiVersion":"example.com/v1","resource":"things"`
	for name, spec := range map[string]string{
		"children":       `"parentResource":{` + parent + `},"childResources":` + many(30000, `{"apiVersion":"../v1","resource":"Pods"}`),
		"endpoints":      `"parentResource":{` + parent + `},"endpointConfigs":` + many(50000, `{"host":"","caBundle":{}}`),
		"field paths":    `"parentResource":{` + parent + `,"revisionHistory":{"fieldPaths":` + many(300000, `""`) + `}}`,
		"values":         `"parentResource":{` + parent + `,"labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":` + many(200000, `"x y"`) + `}]}}`,
		"labels":         `"parentResource":{` + parent + `,"labelSelector":{"matchLabels":{` + strings.Join(labels, ",") + `}}}`,
		"a resource":     `"parentResource":{"apiVersion":"v1","resource":"` + long + `"}`,
		"an API version": `"parentResource":{"apiVersion":"` + long + `","resource":"things"}`,
		"a method":       `"parentResource":{` + parent + `},"childResources":[{"apiVersion":"v1","resource":"pods","updateStrategy":{"method":"` + long + `"}}]`,
		"a URL":          `"parentResource":{` + parent + `},"hooks":{"sync":{"webhook":{"url":"` + long + `"}}}`,
		"a service":      `"parentResource":{` + parent + `},"hooks":{"sync":{"webhook":{"path":"/","service":{"name":"` + long + `","namespace":"a"}}}}`,
		"a protocol":     `"parentResource":{` + parent + `},"hooks":{"sync":{"webhook":{"path":"/","service":{"name":"a","namespace":"a","protocol":"` + long + `"}}}}`,
		"a bundle":       `"parentResource":{` + parent + `},"hooks":{"sync":{"webhook":{"url":"https://a/","caBundle":{"inline":"` + long + `X"}}}}`,
		"a key":          `"parentResource":{` + parent + `},"hooks":{"sync":{"webhook":{"url":"https://a/","authorization":{"secretRef":{"name":"a","namespace":"a","key":"/` + long + `"}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"x"},"spec":{` + spec + `}}`)
			object, err := runtime.Decode(s.decoder, body)
			if err != nil {
				t.Fatal(err)
			}
			stored := object.DeepCopyObject()
			if err = s.create(t.Context(), object); err == nil {
				t.Fatal("accepted")
			}
			checkAnswer(t, err, body)
			if n := len(err.Error()); n > 64<<10 {
				t.Errorf("the message has %d bytes", n)
			}
			checkLabel(t, s, stored)
		})
	}
}

// checkLabel demands that an object that is stored, right or wrong, can be labeled.
func checkLabel(t *testing.T, s server, stored runtime.Object) {
	t.Helper()
	labeled := stored.DeepCopyObject()
	for _, o := range []runtime.Object{stored, labeled} {
		accessor, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		accessor.SetResourceVersion("1")
		if o == labeled {
			accessor.SetLabels(map[string]string{"changed": "yes"})
		}
	}
	s.bothInStore(stored, labeled)
	if err := s.update(t.Context(), labeled, stored); err != nil {
		t.Errorf("a label cannot be set: %.2000v", err)
	}
}

// causes are the fields that an error is about.
func causes(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	return fields
}

// An object with mistakes is stored, by a release with other rules. An update is to blame for what it changes, and for nothing else.
func TestAnUpdateIsToBlameForWhatItChanges(t *testing.T) {
	const (
		composite = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: x, resourceVersion: '1'}\n"
		decorator = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: DecoratorController\nmetadata: {name: x, resourceVersion: '1'}\n"
		revision  = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: ControllerRevision\nmetadata: {name: x, namespace: ns, resourceVersion: '1'}\n"
		parent    = "parentResource: {apiVersion: v1, resource: foos}"
	)
	children := func(list ...string) string {
		return composite + "spec: {" + parent + ", childResources: [" + strings.Join(list, ", ") + "]}"
	}
	webhook := func(fields string) string {
		return composite + "spec: {" + parent + ", hooks: {sync: {webhook: {" + fields + "}}}}"
	}
	account := func(ref string) string { return composite + "spec: {" + parent + ", serviceAccountRef: " + ref + "}" }
	const pods, bad, worse = "{apiVersion: v1, resource: pods}", "{apiVersion: v1, resource: Pods}", "{apiVersion: v1, resource: PODS}"
	const oddMethod, otherMethod = "{apiVersion: v1, resource: a, updateStrategy: {method: Replace}}", "{apiVersion: v1, resource: a, updateStrategy: {method: Swap}}"
	many := strings.Split(strings.Repeat(pods+"|", 300)+pods, "|")
	longName := func(hooks string) string {
		return strings.Replace(composite, "name: x", "name: "+strings.Repeat("x", 50), 1) + "spec: {" + parent + ", hooks: {sync: {webhook: {url: 'http://x'}}" + hooks + "}}"
	}

	for name, test := range map[string]struct {
		stored, update string
		want           []string
	}{
		"a label":                  {children(bad), strings.Replace(children(bad), "name: x", "name: x, labels: {a: b}", 1), nil},
		"another field":            {children(bad), strings.Replace(children(bad), "spec: {", "spec: {workers: 5, ", 1), nil},
		"a mistake in that field":  {children(bad), strings.Replace(children(bad), "spec: {", "spec: {workers: -5, ", 1), []string{"spec.workers"}},
		"another item":             {children(bad), children(bad, pods), nil},
		"an item in front":         {children(bad), children(pods, bad), nil},
		"an item less":             {children(pods, bad), children(bad), nil},
		"the bad item, made worse": {children(bad), children(worse), []string{"spec.childResources[0].resource"}},
		"the bad item, made right": {children(bad), children(pods), nil},
		"one more bad item":        {children(bad), children(bad, bad), []string{"spec.childResources[1].resource"}},
		"another field of the bad item": {
			children(bad), children("{apiVersion: v1, resource: Pods, updateStrategy: {method: InPlace}}"), nil,
		},
		"an item beside one with a generated rule": {children(oddMethod), children(oddMethod, pods), nil},
		"an item with a generated rule": {
			children(oddMethod), children(otherMethod), []string{"spec.childResources[0].updateStrategy.method"},
		},
		"another field beside a list that is too long": {
			children(many...), strings.Replace(children(many...), "spec: {", "spec: {workers: 5, ", 1), nil,
		},
		"an item of a list that is too long": {
			children(many...), children(append(many[1:], bad)...), []string{"spec.childResources"},
		},
		"another parent beside a child of its own kind": {
			children("{apiVersion: v1, resource: foos}"), strings.Replace(children("{apiVersion: v1, resource: foos}"), "spec: {", "spec: {workers: 5, ", 1), nil,
		},
		"the selector that made recursion end": {
			composite + "spec: {parentResource: {apiVersion: v1, resource: foos, labelSelector: {matchLabels: {a: b}}}, childResources: [{apiVersion: v1, resource: foos}]}",
			children("{apiVersion: v1, resource: foos}"),
			[]string{"spec.childResources[0].resource"},
		},
		"a timeout beside a missing address":   {webhook(""), webhook("timeout: 1s"), nil},
		"a path to a missing address":          {webhook(""), webhook("path: /sync"), []string{"spec.hooks.sync.webhook.service"}},
		"a timeout beside a bad bundle":        {webhook("url: 'http://x', caBundle: {inline: a}"), webhook("url: 'http://x', timeout: 1s, caBundle: {inline: a}"), nil},
		"a bad bundle by another":              {webhook("url: 'http://x', caBundle: {inline: a}"), webhook("url: 'http://x', caBundle: {inline: b}"), []string{"spec.hooks.sync.webhook.caBundle.inline"}},
		"a bad URL with a password by another": {webhook("url: 'ftp://a:b@x'"), webhook("url: 'ftp://a:c@x'"), []string{"spec.hooks.sync.webhook.url"}},
		"a long timeout, unchanged":            {webhook("url: 'http://x', timeout: 2h"), webhook("url: 'http://y', timeout: 2h"), nil},
		"a long timeout, longer":               {webhook("url: 'http://x', timeout: 2h"), webhook("url: 'http://x', timeout: 3h"), []string{"spec.hooks.sync.webhook.timeout"}},
		"a finalize hook under a long name":    {longName(""), longName(", finalize: {webhook: {url: 'http://x'}}"), []string{"metadata.name"}},
		"a field beside a long name with a finalize hook": {
			longName(", finalize: {webhook: {url: 'http://x'}}"), longName(", finalize: {webhook: {url: 'http://y'}}"), nil,
		},
		"a field beside a bad service account": {
			account("{namespace: team, name: A}"), strings.Replace(account("{namespace: team, name: A}"), "spec: {", "spec: {workers: 5, ", 1), nil,
		},
		"the namespace of a bad service account": {account("{namespace: team, name: A}"), account("{namespace: other, name: A}"), nil},
		"a bad service account by another": {
			account("{namespace: team, name: A}"), account("{namespace: team, name: B}"), []string{"spec.serviceAccountRef.name"},
		},
		"a bad namespace beside a bad service account": {
			account("{namespace: team, name: A}"), account("{namespace: Team, name: A}"), []string{"spec.serviceAccountRef.namespace"},
		},
		"attachments beside targets that are there twice": {
			decorator + "spec: {resources: [" + pods + ", " + pods + "]}", decorator + "spec: {resources: [" + pods + ", " + pods + "], attachments: [{apiVersion: v1, resource: services}]}", nil,
		},
		"a target for the third time": {
			decorator + "spec: {resources: [" + pods + ", " + pods + "]}", decorator + "spec: {resources: [" + pods + ", " + pods + ", " + pods + "]}", []string{"spec.resources[2].resource"},
		},
		"a name of a revision with a bad one": {
			revision + "parentPatch: {}\nchildren: [{apiGroup: '', kind: Pod, names: ['..']}]", revision + "parentPatch: {}\nchildren: [{apiGroup: '', kind: Pod, names: [a, '..']}]", nil,
		},
		"names that are missing": {
			revision + "parentPatch: {}\nchildren: [{apiGroup: '', kind: Pod}]",
			revision + "parentPatch: {}\nchildren: [{apiGroup: '', kind: Pod}, {apiGroup: '', kind: Secret, names: []}]", nil,
		},
		"names that are missing of another kind": {
			revision + "parentPatch: {}\nchildren: [{apiGroup: '', kind: Pod}]",
			revision + "parentPatch: {}\nchildren: [{apiGroup: '', kind: Pod}, {apiGroup: '', kind: Secret}]",
			[]string{"children[1].names"},
		},
		"the patch of a revision, to a list": {revision + "parentPatch: {}", revision + "parentPatch: [1]", []string{"parentPatch", "parentPatch"}},
		"a label of a revision with a bad patch": {
			revision + "parentPatch: [1]", strings.Replace(revision, "name: x", "name: x, labels: {a: b}", 1) + "parentPatch: [1]", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			stored, err := runtime.Decode(s.decoder, []byte(test.stored))
			if err != nil {
				t.Fatal(err)
			}
			object, err := runtime.Decode(s.decoder, []byte(test.update))
			if err != nil {
				t.Fatal(err)
			}
			err = s.update(t.Context(), object, stored)
			if (err != nil) != (len(test.want) > 0) {
				t.Errorf("the update: %v", err)
			}
			if diff := cmp.Diff(test.want, causes(err)); diff != "" {
				t.Errorf("fields with errors differ (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

// Every mistake of the corpus may be stored already, and then it blocks no change of another field.
func TestNoStoredMistakeBlocksAnotherChange(t *testing.T) {
	s, tried := newServer(), 0
	for _, manifest := range manifests(t, "refused") {
		stored, err := runtime.Decode(s.decoder, manifest)
		if err != nil {
			continue // It cannot be stored.
		}
		accessor, err := meta.Accessor(stored)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.create(t.Context(), stored.DeepCopyObject()); err == nil || strings.Contains(err.Error(), "metadata.") {
			continue // Names are checked by Kubernetes itself.
		}
		accessor.SetResourceVersion("1")
		s.bothInStore(stored)
		changed := stored.DeepCopyObject()
		grow(changed)
		tried++
		if err := s.update(t.Context(), changed, stored); err != nil {
			t.Errorf("%.80s: %v", manifest, err)
		}
	}
	if tried < 200 {
		t.Errorf("only %d mistakes were tried", tried)
	}
}
