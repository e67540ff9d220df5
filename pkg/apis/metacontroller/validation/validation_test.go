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

package validation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
)

const (
	composite = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: x}\n"
	decorator = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: DecoratorController\nmetadata: {name: x}\n"
	parent    = "parentResource: {apiVersion: v1, resource: foos}"
)

// spec writes a CompositeController with one more line in its spec.
func spec(line string) string {
	return composite + "spec:\n  " + parent + "\n  " + line + "\n"
}

// webhook writes a CompositeController whose sync hook has one more field.
func webhook(fields string) string {
	return spec("hooks: {sync: {webhook: {url: 'http://x.y/y', " + fields + "}}}")
}

// TestBadObjectsAreRefusedByField has what is not among the mistakes in testdata.
func TestBadObjectsAreRefusedByField(t *testing.T) {
	for name, test := range map[string]struct {
		manifest string
		want     []string
	}{
		"a bad name": {
			manifest: strings.Replace(spec(""), "name: x", "name: X_y", 1),
			want:     []string{"metadata.name: Invalid value: \"X_y\": "},
		},
		"a child without resource": {
			manifest: spec("childResources: [{apiVersion: v1/}]"),
			want: []string{"spec.childResources[0].apiVersion: Invalid value: \"v1/\": must be a group and version such as apps/v1, " +
				"or v1 for the core group", "spec.childResources[0].resource: Required value"},
		},
		"a relative URL": {
			manifest: spec("hooks: {sync: {webhook: {url: my-hook/sync}}}"),
			want: []string{"spec.hooks.sync.webhook.url: Invalid value: \"my-hook/sync\": must be an absolute URL that starts with " +
				"http:// or https://"},
		},
		"an empty URL": {
			manifest: spec("hooks: {customize: {webhook: {url: ''}}}"),
			want: []string{"spec.hooks.customize.webhook.url: Invalid value: \"\": must be an absolute URL that starts with " +
				"http:// or https://"},
		},
		"a URL of another protocol": {
			manifest: spec("hooks: {finalize: {webhook: {url: 'ftp://x/y'}}}"),
			want: []string{"spec.hooks.finalize.webhook.url: Invalid value: \"ftp://x/y\": must be an absolute URL that starts with " +
				"http:// or https://"},
		},
		"a URL with a bad port": {
			manifest: spec("hooks: {sync: {webhook: {url: 'http://x:port/'}}}"),
			want: []string{"spec.hooks.sync.webhook.url: Invalid value: \"http://x:port/\": must be an absolute URL that starts with " +
				"http:// or https://: parse \"http://x:port/\": invalid port \":port\" after host"},
		},
		"annotations that cannot be labels": {
			manifest: decorator + "spec: {resources: [{apiVersion: v1, resource: pods, annotationSelector: {matchAnnotations: " +
				"{a b: x, c: 'y z'}, matchExpressions: [{key: d, operator: Exists, values: [e]}]}}]}\n",
			want: []string{
				"spec.resources[0].annotationSelector.matchAnnotations[a b]: Invalid value: \"a b\": ",
				"spec.resources[0].annotationSelector.matchAnnotations[c]: Invalid value: \"y z\": ",
				"spec.resources[0].annotationSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is " +
					"'Exists' or 'DoesNotExist'",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs, _, err := review(t.Context(), []byte(test.manifest))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, e := range errs {
				message := e.Error()
				// Sentences of the library are cut off where the test does not care.
				if i < len(test.want) && strings.HasSuffix(test.want[i], ": ") {
					message = message[:min(len(message), len(test.want[i]))]
				}
				got = append(got, message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Rules may become stricter. What is stored must still be labeled and deleted then.
func TestUnchangedSpecsAreNotCheckedAgain(t *testing.T) {
	bad := v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{Finalize: &v1alpha1.Hook{}}}
	old := &metacontroller.CompositeController{Spec: bad}
	labeled := old.DeepCopy()
	labeled.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}
	if errs := validation.ValidateCompositeControllerUpdate(labeled, old); len(errs) > 0 {
		t.Errorf("a new label is refused: %v", errs)
	}
	changed := old.DeepCopy()
	changed.Spec.ParentResource.Resource = "foos"
	if errs := validation.ValidateCompositeControllerUpdate(changed, old); len(errs) != 1 {
		t.Errorf("a changed spec with one mistake: %v", errs)
	}

	twice := []v1alpha1.DecoratorControllerResourceRule{
		{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
		{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
	}
	was := &metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{Resources: twice}}
	if errs := validation.ValidateDecoratorControllerUpdate(was.DeepCopy(), was); len(errs) > 0 {
		t.Errorf("an unchanged decorator is refused: %v", errs)
	}
	more := was.DeepCopy()
	more.Spec.Attachments = make([]v1alpha1.DecoratorControllerAttachmentRule, 1)
	if errs := validation.ValidateDecoratorControllerUpdate(more, was); len(errs) != 1 {
		t.Errorf("a changed decorator with one mistake: %v", errs)
	}
}

func TestWarningsAreShort(t *testing.T) {
	for _, fields := range []string{"timeout: -1s", "path: /x", "service: {name: a, namespace: b}"} {
		_, warnings, err := review(t.Context(), fmt.Append(nil, webhook(fields)))
		if err != nil || len(warnings) != 1 {
			t.Fatalf("%s: %v %v", fields, warnings, err)
		}
		if len(warnings[0]) > 120 {
			t.Errorf("longer than clients want to print: %s", warnings[0])
		}
	}
}

func TestForceIsWarnedOfWhereItHasNoEffect(t *testing.T) {
	for strategy, want := range map[string]bool{
		"{apply: Merge, force: false}":      true,
		"{apply: ServerSide, force: false}": false,
		"{force: false}":                    false,
		"{apply: Merge}":                    false,
	} {
		for _, manifest := range []string{
			spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: " + strategy + "}]"),
			decorator + "spec: {resources: [], attachments: [{apiVersion: v1, resource: pods, updateStrategy: " + strategy + "}]}\n",
		} {
			_, warnings, err := review(t.Context(), []byte(manifest))
			if err != nil {
				t.Fatal(err)
			}
			warned := slices.ContainsFunc(warnings, func(w string) bool {
				return strings.Contains(w, "updateStrategy.force: has no effect with apply: Merge")
			})
			if warned != want {
				t.Errorf("%s: warnings %v", manifest, warnings)
			}
		}
	}
}

// review decodes a manifest as the server does, and returns the errors and warnings of a POST of it.
func review(ctx context.Context, manifest []byte) (field.ErrorList, []string, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	hub, err := runtime.Decode(codecs.UniversalDecoder(metacontroller.SchemeGroupVersion), manifest)
	if err != nil {
		return nil, nil, err
	}
	version, err := scheme.ConvertToVersion(hub, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, nil, err
	}
	shape := scheme.Validate(ctx, nil, version)
	switch o := hub.(type) {
	case *metacontroller.CompositeController:
		o.Namespace = "" // Taken off by the registry.
		return append(validation.ValidateCompositeController(o), shape...), validation.WarningsForCompositeController(o), nil
	case *metacontroller.DecoratorController:
		o.Namespace = ""
		return append(validation.ValidateDecoratorController(o), shape...), validation.WarningsForDecoratorController(o), nil
	case *metacontroller.ControllerRevision:
		return append(validation.ValidateControllerRevision(o), shape...), validation.WarningsForControllerRevision(o), nil
	}
	return nil, nil, nil
}

// entry is one object of the corpora under testdata: a YAML document whose comments are its title and what the server says to it.
type entry struct {
	file, title      string
	manifest         []byte
	errors, warnings []string
}

// corpus reads a folder of testdata.
func corpus(t *testing.T, folder string) []entry {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	var entries []entry
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			e := entry{file: filepath.Base(file), manifest: []byte(document)}
			for line := range strings.Lines(document) {
				line = strings.TrimSpace(line)
				if message, ok := strings.CutPrefix(line, "# error: "); ok {
					e.errors = append(e.errors, message)
				} else if message, ok := strings.CutPrefix(line, "# warning: "); ok {
					e.warnings = append(e.warnings, message)
				} else if title, ok := strings.CutPrefix(line, "# "); ok && e.title == "" {
					e.title = title
				}
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// check compares what the server says to an object with what the corpus says.
func (e entry) check(t *testing.T) {
	t.Helper()
	errs, warnings, err := review(t.Context(), e.manifest)
	var got []string
	if err != nil {
		got = append(got, err.Error())
	}
	for _, err := range errs {
		got = append(got, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if diff := cmp.Diff(e.errors, got); diff != "" {
		t.Errorf("errors differ (-want +got):\n%s", diff)
	}
	if len(e.errors) > 0 {
		return // No warnings are given of what is refused.
	}
	if diff := cmp.Diff(e.warnings, warnings); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

// What Metacontroller runs is accepted, and so is every controller in its documentation, its examples and its tests. The
// comments in a manifest are the warnings that it gets.
func TestManifestsThatMustBeAccepted(t *testing.T) {
	entries := corpus(t, "accepted")
	if len(entries) < 100 {
		t.Errorf("the corpus has %d objects, want 100 and more", len(entries))
	}
	for _, e := range entries {
		t.Run(e.file+"/"+e.title, func(t *testing.T) {
			if len(e.errors) > 0 {
				t.Error("the corpus of what is accepted has an error")
			}
			e.check(t)
		})
	}
}

// Each of these objects has one mistake, and gets an error with the path of its field and what is allowed there.
func TestMistakesThatAreRefused(t *testing.T) {
	for _, e := range corpus(t, "refused") {
		t.Run(e.file+"/"+e.title, func(t *testing.T) {
			if len(e.errors) == 0 {
				t.Error("the corpus of mistakes has an object without an error")
			}
			e.check(t)
		})
	}
}

// Each of these objects has one mistake with which Metacontroller runs it nevertheless, or starts nothing without harm.
func TestMistakesThatAreWarnedOf(t *testing.T) {
	for _, e := range corpus(t, "warned") {
		t.Run(e.file+"/"+e.title, func(t *testing.T) {
			if len(e.warnings) == 0 || len(e.errors) > 0 {
				t.Error("the corpus of what is warned of has an object without a warning, or with an error")
			}
			e.check(t)
		})
	}
}

func TestThereAreTwoHundredMistakes(t *testing.T) {
	seen := map[string]string{}
	for _, folder := range []string{"refused", "warned"} {
		for _, e := range corpus(t, folder) {
			if other := seen[string(e.manifest)]; other != "" {
				t.Errorf("%q and %q are the same object", e.title, other)
			}
			seen[string(e.manifest)] = e.title
		}
	}
	if len(seen) < 200 {
		t.Errorf("the corpora have %d mistakes, want 200 and more", len(seen))
	}
}

// Errors are printed, logged, and kept by audit.
func TestPasswordsAreNotRepeated(t *testing.T) {
	found := 0
	for _, folder := range []string{"refused", "warned"} {
		for _, e := range corpus(t, folder) {
			if !strings.Contains(string(e.manifest), "hunter2") {
				continue
			}
			found++
			errs, warnings, err := review(t.Context(), e.manifest)
			said := strings.Join(warnings, "\n")
			if err != nil {
				said += err.Error()
			}
			for _, err := range errs {
				said += err.Error()
			}
			if strings.Contains(said, "hunter2") {
				t.Errorf("%s: %s", e.title, said)
			}
		}
	}
	if found == 0 {
		t.Error("no object holds a password")
	}
}

// The examples of the repository are what users start from.
func TestExamplesAreAcceptedWithoutWarnings(t *testing.T) {
	found := 0
	for _, pattern := range []string{"*/controller.yaml", "*/*-controller.yaml"} {
		files, err := filepath.Glob("../../../../artifacts/examples/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			manifest, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found++
			if errs, warnings, err := review(t.Context(), manifest); err != nil || len(errs)+len(warnings) > 0 {
				t.Errorf("%s: %v %v %v", file, err, errs, warnings)
			}
		}
	}
	if found == 0 {
		t.Error("there are no examples")
	}
}

// The schema counts characters, so that a value is not too long for it that has more bytes than that.
func TestValuesWithManyBytesAndFewCharactersAreChecked(t *testing.T) {
	wide := func(n int) string { return strings.Repeat("ü", n) }
	for name, test := range map[string]struct {
		webhook, want string
	}{
		"a URL":       {`{"url": "ftp://x/` + wide(2100) + `"}`, "must be an absolute URL"},
		"a path":      {`{"service": {"name": "hook", "namespace": "ns"}, "path": "@evil.example/` + wide(2100) + `"}`, "must begin with a slash"},
		"a CA bundle": {`{"url": "https://x", "caBundle": {"inline": "` + wide(600_000) + `"}}`, "must hold a certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			errs, _, err := review(t.Context(), []byte(`{"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "metadata": {"name": "a"},`+
				`"spec": {"parentResource": {"apiVersion": "v1", "resource": "pods"}, "hooks": {"sync": {"webhook": `+test.webhook+`}}}}`))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(fmt.Sprint(errs), test.want) {
				t.Errorf("got %d errors, none of which says that it %s", len(errs), test.want)
			}
		})
	}
}
