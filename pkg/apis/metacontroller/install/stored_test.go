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
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

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
