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

package install_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
}

func TestNoFieldIsLostInARoundTrip(t *testing.T) {
	roundtrip.RoundTripTestForScheme(t, newScheme(), fuzzers)
}

// Conversion between hub and version is a cast of pointers as long as this holds.
func TestHubAndVersionShareTheirLayout(t *testing.T) {
	for _, pair := range []struct{ hub, version any }{
		{metacontroller.CompositeController{}, v1alpha1.CompositeController{}},
		{metacontroller.DecoratorController{}, v1alpha1.DecoratorController{}},
		{metacontroller.ControllerRevision{}, v1alpha1.ControllerRevision{}},
		{metacontroller.CompositeControllerList{}, v1alpha1.CompositeControllerList{}},
		{metacontroller.DecoratorControllerList{}, v1alpha1.DecoratorControllerList{}},
		{metacontroller.ControllerRevisionList{}, v1alpha1.ControllerRevisionList{}},
	} {
		hub, version := reflect.TypeOf(pair.hub), reflect.TypeOf(pair.version)
		t.Run(hub.Name(), func(t *testing.T) { compareLayout(t, hub, version, hub.Name(), map[reflect.Type]bool{}) })
	}
}

func compareLayout(t *testing.T, hub, version reflect.Type, path string, seen map[reflect.Type]bool) {
	t.Helper()
	if hub == version || seen[hub] {
		return
	}
	seen[hub] = true
	if hub.Kind() != version.Kind() || hub.Size() != version.Size() {
		t.Errorf("%s: the hub has %s of %d bytes, the version has %s of %d", path, hub.Kind(), hub.Size(), version.Kind(), version.Size())
		return
	}
	switch hub.Kind() {
	case reflect.Struct:
		if hub.NumField() != version.NumField() {
			t.Errorf("%s: the hub has %d fields, the version has %d", path, hub.NumField(), version.NumField())
			return
		}
		for i := range hub.NumField() {
			h, v := hub.Field(i), version.Field(i)
			if h.Name != v.Name || h.Offset != v.Offset {
				t.Errorf("%s: field %d is %s at %d in the hub, and %s at %d in the version", path, i, h.Name, h.Offset, v.Name, v.Offset)
			}
			compareLayout(t, h.Type, v.Type, path+"."+h.Name, seen)
		}
	case reflect.Pointer, reflect.Slice:
		compareLayout(t, hub.Elem(), version.Elem(), path, seen)
	case reflect.Map:
		compareLayout(t, hub.Key(), version.Key(), path, seen)
		compareLayout(t, hub.Elem(), version.Elem(), path, seen)
	default:
	}
}

// The defaults are those of Metacontroller's CRDs (docs/reference/contract.md#s1.4, docs/reference/contract.md#s1.5), and no others.
func TestDefaults(t *testing.T) {
	scheme := newScheme()
	given := func() *v1alpha1.CompositeController {
		return &v1alpha1.CompositeController{Spec: v1alpha1.CompositeControllerSpec{
			ChildResources: []v1alpha1.CompositeControllerChildResourceRule{{UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{}}},
			Hooks: &v1alpha1.CompositeControllerHooks{
				Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{
					Service: &v1alpha1.ServiceReference{},
					Etag:    &v1alpha1.WebhookEtagConfig{},
					WebhookSecurity: v1alpha1.WebhookSecurity{
						CABundle:      &v1alpha1.CABundle{SecretRef: &v1alpha1.CABundleReference{}, ConfigMapRef: &v1alpha1.CABundleReference{}},
						ClientTLS:     &v1alpha1.ClientTLS{},
						Authorization: &v1alpha1.WebhookAuthorization{},
						BasicAuth:     &v1alpha1.WebhookBasicAuth{},
					},
				}},
				Finalize: &v1alpha1.Hook{Version: ptr.To(v1alpha1.HookVersionV2)},
			},
			EndpointConfigs: []v1alpha1.EndpointConfig{{WebhookSecurity: v1alpha1.WebhookSecurity{ClientTLS: &v1alpha1.ClientTLS{}}}},
		}}
	}
	want := given()
	want.Spec.Hooks.Sync.Version = ptr.To(v1alpha1.HookVersionV1)
	security := &want.Spec.Hooks.Sync.Webhook.WebhookSecurity
	security.CABundle.SecretRef.Key, security.CABundle.ConfigMapRef.Key = new("ca.crt"), new("ca.crt")
	security.ClientTLS.CertKey, security.ClientTLS.PrivateKeyKey = new("tls.crt"), new("tls.key")
	security.Authorization.Type = new("Bearer")
	security.BasicAuth.UsernameKey, security.BasicAuth.PasswordKey = new("username"), new("password")
	*want.Spec.EndpointConfigs[0].ClientTLS = *security.ClientTLS

	got := given()
	scheme.Default(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults differ (-want +got):\n%s", diff)
	}
	empty := &v1alpha1.CompositeController{}
	scheme.Default(empty)
	if diff := cmp.Diff(&v1alpha1.CompositeController{}, empty); diff != "" {
		t.Errorf("an empty object gets defaults (-want +got):\n%s", diff)
	}
}

// kinds are the kinds that are stored.
var kinds = []string{"CompositeController", "DecoratorController", "ControllerRevision"}

// updateStored is the environment variable that makes the test write testdata/HEAD instead of comparing it; its name is that of
// Kubernetes.
const updateStored = "UPDATE_COMPATIBILITY_FIXTURE_DATA"

// testdata/HEAD has each kind as it is stored now, with every field set: a change of it is a change of what is stored. The folders
// beside it have what releases stored. A release copies HEAD to a folder of its own name, which is not changed any more.
func TestEveryFieldIsStoredAsTheFixturesSay(t *testing.T) {
	scheme := newScheme()
	options := roundtrip.NewCompatibilityTestOptions(scheme)
	for _, kind := range kinds {
		options.Kinds = append(options.Kinds, v1alpha1.SchemeGroupVersion.WithKind(kind))
	}
	options.Complete(t)
	for _, kind := range kinds {
		stored := encode(t, scheme, options.FilledObjects[v1alpha1.SchemeGroupVersion.WithKind(kind)])
		file := filepath.Join("testdata", "HEAD", kind+".json")
		if os.Getenv(updateStored) == "true" {
			if err := os.WriteFile(file, stored, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(stored)); diff != "" {
			t.Errorf("what is stored of a %s changed; with %s=true this test writes it (-was +is):\n%s", kind, updateStored, diff)
		}
	}
}

func TestWhatReleasesStoredIsReadAndKept(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) < 2*len(kinds) {
		t.Fatalf("%d stored objects: %v", len(files), err)
	}
	scheme := newScheme()
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(metacontroller.SchemeGroupVersion)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			stored, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			object, err := runtime.Decode(decoder, stored)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(stored), string(encode(t, scheme, object))); diff != "" {
				t.Errorf("reading and writing it changes it (-was +is):\n%s", diff)
			}
		})
	}
}

// encode writes an object as the server stores it, in lines.
func encode(t *testing.T, scheme *runtime.Scheme, object runtime.Object) []byte {
	t.Helper()
	pretty := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Pretty: true})
	var stored bytes.Buffer
	err := serializer.NewCodecFactory(scheme).EncoderForVersion(pretty, v1alpha1.SchemeGroupVersion).Encode(object, &stored)
	if err != nil {
		t.Fatal(err)
	}
	return stored.Bytes()
}

// fuzzers returns the functions that fill types of this group with random content that survives a round trip: with every default set, and
// with JSON where JSON is kept.
func fuzzers(serializer.CodecFactory) []any {
	return []any{
		func(h *v1alpha1.Hook, c randfill.Continue) {
			c.FillNoCustom(h)
			setDefault(&h.Version, v1alpha1.HookVersionV1)
		},
		func(r *v1alpha1.CABundleReference, c randfill.Continue) {
			c.FillNoCustom(r)
			setDefault(&r.Key, "ca.crt")
		},
		func(t *v1alpha1.ClientTLS, c randfill.Continue) {
			c.FillNoCustom(t)
			setDefault(&t.CertKey, "tls.crt")
			setDefault(&t.PrivateKeyKey, "tls.key")
		},
		func(a *v1alpha1.WebhookAuthorization, c randfill.Continue) {
			c.FillNoCustom(a)
			setDefault(&a.Type, "Bearer")
		},
		func(a *v1alpha1.WebhookBasicAuth, c randfill.Continue) {
			c.FillNoCustom(a)
			setDefault(&a.UsernameKey, "username")
			setDefault(&a.PasswordKey, "password")
		},
		func(d *metav1.Duration, c randfill.Continue) {
			d.Duration = time.Duration(c.Int63())
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			*v = intstr.FromInt32(c.Int31())
			if c.Bool() {
				*v = intstr.FromString(fmt.Sprintf("%d%%", c.Intn(100)+1))
			}
		},
		func(r *runtime.RawExtension, c randfill.Continue) {
			r.Raw = fmt.Appendf(nil, `{"spec":{"paused":%t,"replicas":%d}}`, c.Bool(), c.Int31())
			r.Object = nil
		},
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = new(value)
	}
}
