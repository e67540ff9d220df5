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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision"
)

// corpora are the objects on which validation is tested, right ones and wrong ones.
const corpora = "../../apis/metacontroller/validation/testdata"

// manifests returns the YAML documents of the folders of corpora.
func manifests(t *testing.T, folders ...string) [][]byte {
	t.Helper()
	var documents [][]byte
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(corpora, folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no manifests in %s: %v", folder, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				documents = append(documents, []byte(document))
			}
		}
	}
	return documents
}

// strategy is what the store of a kind is built with.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// server does with an object what the API server does with the body of a request, up to the store.
type server struct {
	decoder runtime.Decoder
	scheme  *runtime.Scheme
}

func newServer() server {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	return server{codecs.UniversalDecoder(metacontroller.SchemeGroupVersion), scheme}
}

func (s server) strategyOf(object runtime.Object) (kind strategy, resource string) {
	switch object.(type) {
	case *metacontroller.CompositeController:
		return controller.Composites().Strategy(s.scheme), "compositecontrollers"
	case *metacontroller.DecoratorController:
		return controller.Decorators().Strategy(s.scheme), "decoratorcontrollers"
	case *metacontroller.ControllerRevision:
		return controllerrevision.NewStrategy(s.scheme), "controllerrevisions"
	}
	return nil, ""
}

// request is the context of a request about an object.
func (s server) request(ctx context.Context, object runtime.Object, resource string) (context.Context, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version, Resource: resource,
	})
	return genericapirequest.WithNamespace(ctx, accessor.GetNamespace()), nil
}

// create returns the error of a POST.
func (s server) create(ctx context.Context, object runtime.Object) error {
	kind, resource := s.strategyOf(object)
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if !kind.NamespaceScoped() {
		accessor.SetNamespace("")
	}
	if ctx, err = s.request(ctx, object, resource); err != nil {
		return err
	}
	accessor.SetUID(types.UID("0b5f7a6e"))
	accessor.SetCreationTimestamp(metav1.Now())
	accessor.SetResourceVersion("")
	if accessor.GetName() == "" && accessor.GetGenerateName() != "" {
		accessor.SetName(kind.GenerateName(accessor.GetGenerateName()))
	}
	return rest.BeforeCreate(kind, ctx, object)
}

// update returns the error of a PUT of an object that is stored as old.
func (s server) update(ctx context.Context, object, old runtime.Object) error {
	kind, resource := s.strategyOf(object)
	ctx, err := s.request(ctx, object, resource)
	if err != nil {
		return err
	}
	return rest.BeforeUpdate(kind, ctx, object, old)
}

// grow changes what no mistake is about, so that a definition is validated again. A list that is too long stays as it is.
func grow(object runtime.Object) {
	const longest = 256
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		o.Spec.ResyncPeriodSeconds = new(int32(77))
		if len(o.Spec.EndpointConfigs) < longest {
			o.Spec.EndpointConfigs = append(o.Spec.EndpointConfigs, v1alpha1.EndpointConfig{Host: "new"})
		}
	case *metacontroller.DecoratorController:
		o.Spec.ResyncPeriodSeconds = new(int32(77))
		if len(o.Spec.Attachments) < longest {
			o.Spec.Attachments = append(o.Spec.Attachments, v1alpha1.DecoratorControllerAttachmentRule{
				ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v7", Resource: "news"},
			})
		}
	case *metacontroller.ControllerRevision:
		o.Labels = map[string]string{"changed": "yes"}
		if len(o.Children) < longest {
			o.Children = append(o.Children, v1alpha1.ControllerRevisionChildren{Kind: "New", Names: []string{"a"}})
		}
	}
}
