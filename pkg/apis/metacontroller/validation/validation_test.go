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
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
)

const (
	composite = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: x}\n"
	decorator = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: DecoratorController\nmetadata: {name: x}\n"
	revision  = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: ControllerRevision\nmetadata: {name: x, namespace: ns}\n"
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

func TestBadObjectsAreRefusedByField(t *testing.T) {
	for name, test := range map[string]struct {
		manifest string
		want     []string
	}{
		"no parent": {
			manifest: composite + "spec: {}\n",
			want:     []string{"spec.parentResource.apiVersion: Required value", "spec.parentResource.resource: Required value"},
		},
		"an API version with two slashes": {
			manifest: composite + "spec: {parentResource: {apiVersion: a/b/c, resource: foos}}\n",
			want: []string{"spec.parentResource.apiVersion: Invalid value: \"a/b/c\": must be a group and version such as apps/v1, " +
				"or v1 for the core group"},
		},
		"an API version without version": {
			manifest: composite + "spec: {parentResource: {apiVersion: apps/, resource: foos}}\n",
			want: []string{"spec.parentResource.apiVersion: Invalid value: \"apps/\": must be a group and version such as apps/v1, " +
				"or v1 for the core group"},
		},
		"a bad name": {
			manifest: strings.Replace(spec(""), "name: x", "name: X_y", 1),
			want:     []string{"metadata.name: Invalid value: \"X_y\": "},
		},
		"a label selector with an unknown operator": {
			manifest: composite + "spec: {parentResource: {apiVersion: v1, resource: foos, labelSelector: {matchExpressions: [{key: a, operator: Like}]}}}\n",
			want:     []string{"spec.parentResource.labelSelector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator"},
		},
		"a label selector that lists no values": {
			manifest: composite + "spec: {parentResource: {apiVersion: v1, resource: foos, labelSelector: {matchExpressions: [{key: a, operator: In}]}}}\n",
			want: []string{"spec.parentResource.labelSelector.matchExpressions[0].values: Required value: must be specified when " +
				"`operator` is 'In' or 'NotIn'"},
		},
		"an unknown update method": {
			manifest: spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: {method: Replace}}]"),
			want: []string{"spec.childResources[0].updateStrategy.method: Unsupported value: \"Replace\": supported values: " +
				"\"InPlace\", \"OnDelete\", \"Recreate\", \"RollingInPlace\", \"RollingRecreate\""},
		},
		"an unknown apply strategy": {
			manifest: spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: {apply: Patch}}]"),
			want: []string{"spec.childResources[0].updateStrategy.apply: Unsupported value: \"Patch\": supported values: " +
				"\"Merge\", \"ServerSide\""},
		},
		"a child without resource": {
			manifest: spec("childResources: [{apiVersion: v1/}]"),
			want: []string{"spec.childResources[0].apiVersion: Invalid value: \"v1/\": must be a group and version such as apps/v1, " +
				"or v1 for the core group", "spec.childResources[0].resource: Required value"},
		},
		"no child may be unavailable": {
			manifest: spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: {maxUnavailable: 0}}]"),
			want:     []string{"spec.childResources[0].updateStrategy.maxUnavailable: Invalid value: 0: must be greater than or equal to 1"},
		},
		"no percent": {
			manifest: spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: {maxUnavailable: 0%}}]"),
			want: []string{"spec.childResources[0].updateStrategy.maxUnavailable: Invalid value: \"0%\": must be a number, or a " +
				"percentage from 1% to 100%"},
		},
		"more than all": {
			manifest: spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: {maxUnavailable: 101%}}]"),
			want: []string{"spec.childResources[0].updateStrategy.maxUnavailable: Invalid value: \"101%\": must be a number, or a " +
				"percentage from 1% to 100%"},
		},
		"a percentage with a sign": {
			manifest: spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: {maxUnavailable: +5%}}]"),
			want: []string{"spec.childResources[0].updateStrategy.maxUnavailable: Invalid value: \"+5%\": must be a number, or a " +
				"percentage from 1% to 100%"},
		},
		"a status check without type": {
			manifest: spec("childResources: [{apiVersion: v1, resource: pods, updateStrategy: {statusChecks: {conditions: [{}]}}}]"),
			want:     []string{"spec.childResources[0].updateStrategy.statusChecks.conditions[0].type: Required value"},
		},
		"too many workers": {
			manifest: spec("workers: 1001"),
			want:     []string{"spec.workers: Invalid value: 1001: must be less than or equal to 1000"},
		},
		"no workers": {
			manifest: spec("workers: 0"),
			want:     []string{"spec.workers: Invalid value: 0: must be greater than or equal to 1"},
		},
		"an unknown hook version": {
			manifest: spec("hooks: {sync: {version: v3, webhook: {url: 'http://x'}}}"),
			want:     []string{"spec.hooks.sync.version: Unsupported value: \"v3\": supported values: \"v1\", \"v2\""},
		},
		"a finalize hook that would hold parents forever": {
			manifest: spec("hooks: {finalize: {}}"),
			want:     []string{"spec.hooks.finalize.webhook: Required value: a finalize hook needs a webhook, which decides when objects may go"},
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
		"a service without name and namespace": {
			manifest: webhook("service: {port: 80}"),
			want: []string{
				"spec.hooks.sync.webhook.service.name: Required value",
				"spec.hooks.sync.webhook.service.namespace: Required value",
			},
		},
		"an unknown decoding mode": {
			manifest: webhook("responseUnMarshallMode: lazy"),
			want:     []string{"spec.hooks.sync.webhook.responseUnMarshallMode: Unsupported value: \"lazy\": supported values: \"loose\", \"strict\""},
		},
		"a CA bundle without source": {
			manifest: webhook("caBundle: {}"),
			want: []string{"spec.hooks.sync.webhook.caBundle: Required value: exactly one of inline, secretRef and configMapRef " +
				"must be set"},
		},
		"a CA bundle with two sources": {
			manifest: webhook("caBundle: {inline: x, secretRef: {name: a, namespace: b}}"),
			want: []string{"spec.hooks.sync.webhook.caBundle: Invalid value: exactly one of inline, secretRef and configMapRef " +
				"must be set"},
		},
		"a secret without namespace": {
			manifest: webhook("clientTLS: {secretRef: {name: a}}"),
			want:     []string{"spec.hooks.sync.webhook.clientTLS.secretRef.namespace: Required value"},
		},
		"two kinds of credentials": {
			manifest: webhook("authorization: {secretRef: {name: a, namespace: b, key: c}}, basicAuth: {secretRef: {name: a, namespace: b}}"),
			want:     []string{"spec.hooks.sync.webhook.basicAuth: Forbidden: must not be set together with authorization"},
		},
		"basic as the type of a token": {
			manifest: webhook("authorization: {type: ' BASIC ', secretRef: {name: a, namespace: b, key: c}}"),
			want: []string{"spec.hooks.sync.webhook.authorization.type: Invalid value: \" BASIC \": use basicAuth for a user name " +
				"and a password"},
		},
		"the same rules hold for endpoints": {
			manifest: spec("endpointConfigs: [{caBundle: {}}]"),
			want: []string{"spec.endpointConfigs[0].caBundle: Required value: exactly one of inline, secretRef and configMapRef " +
				"must be set", "spec.endpointConfigs[0].host: Required value"},
		},
		"a decorator without resources": {
			manifest: decorator + "spec: {}\n",
			want:     []string{"spec.resources: Required value"},
		},
		"a resource listed twice, in two versions": {
			manifest: decorator + "spec: {resources: [{apiVersion: apps/v1, resource: deployments}, {apiVersion: v1, resource: pods}, " +
				"{apiVersion: apps/v1beta1, resource: deployments}]}\n",
			want: []string{"spec.resources[2].resource: Duplicate value: \"deployments.apps\""},
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
		"an attachment of no version": {
			manifest: decorator + "spec: {resources: [], attachments: [{resource: pods}]}\n",
			want:     []string{"spec.attachments[0].apiVersion: Required value"},
		},
		"a decorator's finalize hook": {
			manifest: decorator + "spec: {resources: [], hooks: {finalize: {version: v1}}}\n",
			want:     []string{"spec.hooks.finalize.webhook: Required value: a finalize hook needs a webhook, which decides when objects may go"},
		},
		"a revision without patch": {
			manifest: revision + "children: []\n",
			want:     []string{"parentPatch: Required value"},
		},
		"a revision whose patch is null": {
			manifest: revision + "parentPatch: null\n",
			want:     []string{"parentPatch: Required value"},
		},
		"a revision whose patch is a list": {
			manifest: revision + "parentPatch: [1]\n",
			want:     []string{"parentPatch: Invalid value: \"[1]\": must be an object"},
		},
		"a revision's children of no kind": {
			manifest: revision + "parentPatch: {}\nchildren: [{apiGroup: '', names: []}]\n",
			want:     []string{"children[0].kind: Required value"},
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
