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

package subresource

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var website = controllerobject.Object{Composite: &v1alpha1.CompositeController{
	ObjectMeta: metav1.ObjectMeta{Name: "website"},
	Spec: v1alpha1.CompositeControllerSpec{ParentResource: v1alpha1.CompositeControllerParentResourceRule{
		ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "websites"},
	}},
}}

// Every error ends with what to do next.
func TestErrorsSayWhatToDoNext(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "websites"}
	proxy := func(status int, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: int32(status), Reason: reason, Message: "from a proxy",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}},
		}}
	}
	c := &Client{object: website}
	for want, err := range map[string]error{
		"or its server is older than this plugin; compare them with 'kubectl metacontroller version'":   proxy(http.StatusNotFound, metav1.StatusReasonNotFound),
		"list those that cc/website has with 'kubectl metacontroller parents cc/website --all'":         apierrors.NewNotFound(resource, "a"),
		"it may be starting: see 'kubectl metacontroller status cc/website'":                            apierrors.NewServiceUnavailable("it may be starting"),
		"see 'kubectl describe apiservice v1alpha1.metacontroller.k8s.io'":                              proxy(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
		"kubectl auth can-i create compositecontrollers.metacontroller.k8s.io --subresource=plan' and ": apierrors.NewForbidden(resource, "a", errors.New("no")),
		"run the command again": apierrors.NewTooManyRequests("many", 1),
		"see how long its hook takes with 'kubectl metacontroller status cc/website'": apierrors.NewTimeoutError("slow", 1),
		"see 'kubectl metacontroller parents cc/website --all'":                       apierrors.NewConflict(resource, "a", errors.New("no")),
	} {
		if got := c.explain(t.Context(), err, "create", "plan"); got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("got %v, want %q", got, want)
		}
	}
	if got := c.explain(t.Context(), apierrors.NewTimeoutError("look at the parent", 0), "create", "rollback"); strings.Contains(got.Error(), "its hook") {
		t.Errorf("a rollback calls no hook: %v", got)
	}
	nothing := apierrors.NewNotFound(schema.GroupResource{Resource: "controllerrevisions"}, "no kind of children is updated by a rolling method")
	if got := c.explain(t.Context(), nothing, "create", "rollback"); !strings.Contains(got.Error(), "set a rolling updateStrategy.method, or write the old fields back") {
		t.Errorf("nothing rolls: %v", got)
	}
	if err := c.explain(t.Context(), nil, "create", "plan"); err != nil {
		t.Errorf("no error: %v", err)
	}
}

// Of a custom resource, kube-apiserver answers for an unknown subresource as for an object that does not exist.
func TestSubresourcesThatDefinitionsDoNotHave(t *testing.T) {
	const controller = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/website"
	missing := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,` +
		`"message":"compositecontrollers.metacontroller.k8s.io \"website\" not found",` +
		`"details":{"name":"website","group":"metacontroller.k8s.io","kind":"compositecontrollers"}}`
	ask := map[string]func(context.Context, *Client) error{
		"parents": func(ctx context.Context, c *Client) error {
			_, err := c.Parents(ctx, v1alpha1.ControllerParentOptions{})
			return err
		},
		"syncs": func(ctx context.Context, c *Client) error {
			_, err := c.Syncs(ctx, v1alpha1.ControllerSyncOptions{})
			return err
		},
		"request": func(ctx context.Context, c *Client) error {
			_, err := c.Requests(ctx, v1alpha1.ParentReference{}, RequestOptions{})
			return err
		},
		"plan": func(ctx context.Context, c *Client) error {
			return c.EachPlan(ctx, v1alpha1.ControllerPlanSpec{}, func(*v1alpha1.ControllerPlanStatus) error { return nil })
		},
		"resync": func(ctx context.Context, c *Client) error {
			_, err := c.Resync(ctx, nil)
			return err
		},
		"rollback": func(ctx context.Context, c *Client) error {
			_, err := c.Rollback(ctx, v1alpha1.ControllerRollbackSpec{}, true)
			return err
		},
	}
	for what, tc := range map[string]struct {
		documents   connectiontest.Documents
		definitions bool
	}{
		"the controller exists":  {connectiontest.Documents{controller: `{"kind":"CompositeController","metadata":{"name":"website"}}`}, true},
		"the controller is gone": {connectiontest.Documents{}, false},
	} {
		served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if tc.documents[r.URL.Path] != "" {
				tc.documents.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(missing))
		})
		c, err := New(connectiontest.New(t, served, genericiooptions.IOStreams{}), website)
		if err != nil {
			t.Fatal(err)
		}
		for subresource, ask := range ask {
			t.Run(what+", "+subresource, func(t *testing.T) {
				err := ask(t.Context(), c)
				if errors.Is(err, ErrDefinitions) != tc.definitions || apierrors.IsNotFound(err) == tc.definitions {
					t.Fatalf("got %v", err)
				}
				want := "the cluster serves controllers by CustomResourceDefinitions, and '" + subresource +
					"' needs the API server: see docs/operations/definitions.md"
				if tc.definitions && err.Error() != want {
					t.Errorf("got %q, want %q", err, want)
				}
			})
		}
	}
}

// That a parent is hidden is told from that a subresource may not be used: the latter is about the controller.
func TestParentsThatAreHidden(t *testing.T) {
	p := v1alpha1.ParentReference{Group: "example.com", Resource: "websites", Namespace: "shop", Name: "a"}
	websites := schema.GroupResource{Group: "example.com", Resource: "websites"}
	controllers := schema.GroupResource{Group: "metacontroller.k8s.io", Resource: "compositecontrollers"}
	c := &Client{object: website}
	for what, tc := range map[string]struct {
		err  error
		want bool
	}{
		"the parent":         {apierrors.NewForbidden(websites, "a", errors.New("you may not get secrets")), true},
		"another parent":     {apierrors.NewForbidden(websites, "b", errors.New("you may not get secrets")), false},
		"the subresource":    {apierrors.NewForbidden(controllers, "a", errors.New("you may not get compositecontrollers/request")), false},
		"something else":     {apierrors.NewConflict(websites, "a", errors.New("the customize hook failed")), false},
		"no error of an API": {errors.New("no"), false},
	} {
		if got := IsHidden(c.explain(t.Context(), tc.err, "get", "request"), p); got != tc.want {
			t.Errorf("%s: %t, want %t", what, got, tc.want)
		}
	}
}

// Whatever kubectl takes, the API selects the same.
func TestSelectorsByLabels(t *testing.T) {
	for _, text := range []string{"a=b", "a==b,c!=d", "a in (b,c),d notin (e)", "a,!b"} {
		parsed, err := parseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := metav1.LabelSelectorAsSelector(parsed)
		if err != nil {
			t.Fatal(err)
		}
		want, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range []labels.Set{nil, {"a": "b"}, {"a": "b", "c": "d"}, {"a": "c", "d": "e"}, {"a": "c", "b": ""}} {
			if got.Matches(set) != want.Matches(set) {
				t.Errorf("%s: it matches %v: %t, want %t", text, set, got.Matches(set), want.Matches(set))
			}
		}
	}
	if _, err := parseSelector("a>1"); err == nil || !strings.Contains(err.Error(), "compares numbers") {
		t.Errorf("a number: %v", err)
	}
}

// cluster serves websites, which are in namespaces, and sites and pages, which are not.
var cluster = connectiontest.Documents{
	"/api":  `{"kind":"APIVersions","versions":[]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}]}]}`,
	"/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[` +
		`{"name":"websites","kind":"Website","namespaced":true,"verbs":["get"]},{"name":"sites","kind":"Site","namespaced":false,"verbs":["get"]},` +
		`{"name":"pages","kind":"Page","namespaced":false,"verbs":["get"]}]}`,
	"/apis/example.com/v1/namespaces/shop/websites/inside":     `{"kind":"Website","apiVersion":"example.com/v1","metadata":{"name":"inside","namespace":"shop"}}`,
	"/apis/example.com/v1/sites/outside":                       `{"kind":"Site","apiVersion":"example.com/v1","metadata":{"name":"outside"}}`,
	"/apis/example.com/v1/namespaces/shop/websites/everywhere": `{"kind":"Website","apiVersion":"example.com/v1","metadata":{"name":"everywhere","namespace":"shop"}}`,
	"/apis/example.com/v1/sites/everywhere":                    `{"kind":"Site","apiVersion":"example.com/v1","metadata":{"name":"everywhere"}}`,
	"/apis/example.com/v1/sites/twice":                         `{"kind":"Site","apiVersion":"example.com/v1","metadata":{"name":"twice"}}`,
	"/apis/example.com/v1/pages/twice":                         `{"kind":"Page","apiVersion":"example.com/v1","metadata":{"name":"twice"}}`,
}

// decorator is a controller of some resources.
func decorator(resources ...string) controllerobject.Object {
	d := &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "labels"}}
	for _, resource := range resources {
		rule := v1alpha1.DecoratorControllerResourceRule{ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: resource}}
		d.Spec.Resources = append(d.Spec.Resources, rule)
	}
	return controllerobject.Object{Decorator: d}
}

func TestWhichParentsAreMeant(t *testing.T) {
	sites, mixed := decorator("sites"), decorator("unserved", "websites", "sites", "pages")
	c := connectiontest.New(t, cluster, genericiooptions.IOStreams{})
	for what, tc := range map[string]struct {
		object      controllerobject.Object
		argument    string
		flags       Flags
		want        v1alpha1.ControllerParentOptions
		err, nobody string
		again       string
	}{
		"the namespace":  {object: website, want: v1alpha1.ControllerParentOptions{Namespace: "shop"}, nobody: "has no parent in namespace shop: list all", again: "-n shop"},
		"all":            {object: website, flags: Flags{all: true}, nobody: "cc/website has no parent\n", again: "--all"},
		"one":            {object: website, argument: "a", want: v1alpha1.ControllerParentOptions{Namespace: "shop", Name: "a"}, err: "no parent a in namespace shop", again: "shop/a"},
		"one elsewhere":  {object: website, argument: "ns/a", want: v1alpha1.ControllerParentOptions{Namespace: "ns", Name: "a"}, err: "no parent a in namespace ns", again: "ns/a"},
		"cluster-scoped": {object: sites, want: v1alpha1.ControllerParentOptions{}, nobody: "has no parent\n", again: "--all"},
		"in a namespace, of both": {
			object: mixed, argument: "inside", want: v1alpha1.ControllerParentOptions{Namespace: "shop", Name: "inside"}, err: "no parent inside in namespace shop",
			again: "shop/inside",
		},
		"cluster-scoped, of both": {
			object: mixed, argument: "outside", want: v1alpha1.ControllerParentOptions{Resource: "sites.example.com", Name: "outside"}, err: "no parent outside: list all",
			again: "outside --resource sites.example.com",
		},
		"both, of both": {
			object: mixed, argument: "everywhere", want: v1alpha1.ControllerParentOptions{Namespace: "shop", Name: "everywhere"},
			err:   "no parent everywhere in namespace shop",
			again: "shop/everywhere",
		},
		"none, of both": {
			object: mixed, argument: "nowhere", want: v1alpha1.ControllerParentOptions{Namespace: "shop", Name: "nowhere"}, err: "no parent nowhere in namespace shop",
			again: "shop/nowhere",
		},
		"of a resource with namespaces": {
			object: mixed, argument: "outside", flags: Flags{resource: "websites.example.com"},
			want: v1alpha1.ControllerParentOptions{Resource: "websites.example.com", Namespace: "shop", Name: "outside"}, err: "no parent outside in namespace shop",
			again: "shop/outside --resource websites.example.com",
		},
		"of a resource without": {
			object: mixed, argument: "everywhere", flags: Flags{resource: "sites.example.com"},
			want: v1alpha1.ControllerParentOptions{Resource: "sites.example.com", Name: "everywhere"}, err: "no parent everywhere: list all",
			again: "everywhere --resource sites.example.com",
		},
		"those of the namespace, of both": {object: mixed, want: v1alpha1.ControllerParentOptions{Namespace: "shop"}, nobody: "has no parent in namespace shop", again: "-n shop"},
		"by labels": {
			object: website, flags: Flags{selector: "app=web", resource: "websites.example.com"},
			want:   v1alpha1.ControllerParentOptions{Namespace: "shop", LabelSelector: "app=web", Resource: "websites.example.com"},
			nobody: "with the labels app=web in namespace shop",
			again:  "-n shop -l 'app=web' --resource websites.example.com",
		},
	} {
		t.Run(what, func(t *testing.T) {
			selected, err := tc.flags.Of(t.Context(), c, tc.object, tc.argument)
			if err != nil {
				t.Fatal(err)
			}
			if got := selected.ParentOptions(); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if labels := selected.LabelSelector; (labels != nil) != (tc.flags.selector != "") {
				t.Errorf("the labels are %v", labels)
			}
			if got := selected.Arguments(); got != " "+tc.again {
				t.Errorf("the arguments are %q, want %q", got, tc.again)
			}
			var out bytes.Buffer
			err = selected.Nothing(&out, tc.object)
			if tc.err == "" && (err != nil || !strings.Contains(out.String(), tc.nobody)) || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("it said %q, error %v", out.String(), err)
			}
		})
	}
	for want, wrong := range map[string]struct {
		argument string
		flags    Flags
	}{
		"not both":                {"a", Flags{all: true}},
		"not both ":               {"a", Flags{selector: "a=b"}},
		`"a/b/c" names no parent`: {"a/b/c", Flags{}},
		`"a/" names no parent`:    {"a/", Flags{}},
		`"/a" names no parent`:    {"/a", Flags{}}, // As $NAMESPACE/a is where the variable is not set.
		"--selector: ":            {"", Flags{selector: "!!"}},
	} {
		if _, err := wrong.flags.Of(t.Context(), c, website, wrong.argument); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%+v: got %v, want %q", wrong, err, want)
		}
	}
	flags := Flags{}
	_, err := flags.Of(t.Context(), c, mixed, "twice")
	if want := `"twice" is the name of several parents, sites.example.com/twice, pages.example.com/twice: choose its resource with --resource`; err == nil || err.Error() != want {
		t.Errorf("two that are cluster-scoped: %v", err)
	}
}
