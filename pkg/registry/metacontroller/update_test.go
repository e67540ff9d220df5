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
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

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
