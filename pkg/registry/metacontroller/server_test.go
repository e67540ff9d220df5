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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	registry "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/table"
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

// undecryptable are transformers for which decrypting any object is this error.
type undecryptable struct {
	value.Transformer

	err error
}

func (u undecryptable) TransformerForResource(schema.GroupResource) value.Transformer { return u }

func (u undecryptable) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, u.err
}

// store returns an etcd, as the server is configured for it, and a client of it.
func store(t *testing.T) (*storagebackend.Config, *clientv3.Client) {
	t.Helper()
	etcd, err := embeddedetcd.Start(t.Context(), embeddedetcd.Options{Dir: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	config := storagebackend.NewDefaultConfig("/root", nil)
	config.Transport.ServerList = []string{etcd.Endpoint()}
	client, err := clientv3.New(clientv3.Config{Context: t.Context(), Endpoints: config.Transport.ServerList, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return config, client
}

// web is where a CompositeController is stored.
const web = "/root/metacontroller.k8s.io/compositecontrollers/web"

// TestAPluginOfAKMSThatIsNotThereYetDoesNotEndTheStart has the transformer of the API server itself, and nothing at the plugin's socket.
func TestAPluginOfAKMSThatIsNotThereYetDoesNotEndTheStart(t *testing.T) {
	config, client := store(t)
	stored, err := proto.Marshal(&kmstypes.EncryptedObject{
		EncryptedData: []byte("x"), KeyID: "1", EncryptedDEKSource: []byte("y"),
		EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		provider string
		ends     bool
	}{{"vault", false}, {"another", true}} {
		t.Run(test.provider, func(t *testing.T) {
			if _, err := client.Put(t.Context(), web, "k8s:enc:kms:v2:vault:"+string(stored)); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "encryption.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [compositecontrollers.metacontroller.k8s.io]
  providers:
  - kms: {apiVersion: v2, name: %s, endpoint: "unix://%s/missing.sock", timeout: 1s}
`, test.provider, t.TempDir()), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, "test")
			if err != nil {
				t.Fatal(err)
			}
			err = registry.CheckReadable(ctx, config, encryptionconfig.StaticTransformers(loaded.Transformers))
			if (err != nil) != test.ends {
				t.Errorf("got %v, want an error: %t", err, test.ends)
			}
		})
	}
}

func TestThePluginOfAKMSDoesNotEndTheStart(t *testing.T) {
	config, client := store(t)
	// Those of version 2 are wrapped as its transformer does. Version 1 loses the code of what it asks first.
	ofVersion2 := func(code codes.Code) error {
		return fmt.Errorf("failed to decrypt DEK, error: %w", status.Error(code, "connection error: no such file"))
	}
	for name, test := range map[string]struct {
		stored string
		err    error
		ends   bool
	}{
		"NotThere":             {"k8s:enc:kms:v2:vault:x", ofVersion2(codes.Unavailable), false},
		"Slow":                 {"k8s:enc:kms:v2:vault:x", ofVersion2(codes.DeadlineExceeded), false},
		"RefusingForNow":       {"k8s:enc:kms:v2:vault:x", ofVersion2(codes.Unknown), false},
		"NotThereOfVersion1":   {"k8s:enc:kms:v1:vault:x", errors.New("failed get version from remote KMS provider: no such file"), false},
		"SlowOfVersion1":       {"k8s:enc:kms:v1:vault:x", status.Error(codes.DeadlineExceeded, "received context error"), false},
		"NotInTheFile":         {"k8s:enc:kms:v2:vault:x", errors.New("no matching prefix found"), true},
		"CutOff":               {"k8s:enc:kms:v2:vault:x", errors.New("failed to validate annotations"), true},
		"AnotherKeyOfTheFile":  {"k8s:enc:secretbox:v1:first:x", errors.New("output array was not large enough for encryption"), true},
		"AFormerKeyOfTheFile":  {"k8s:enc:aesgcm:v1:first:x", errors.New("no matching key was found for the provided AES transformer"), true},
		"NotEncryptedAndNoKey": {"{}", errors.New("no matching prefix found"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := client.Put(t.Context(), web, test.stored); err != nil {
				t.Fatal(err)
			}
			err := registry.CheckReadable(t.Context(), config, undecryptable{err: test.err})
			if unreadable, ends := errors.AsType[*registry.UnreadableError](err); ends != test.ends || (err != nil) != test.ends {
				t.Errorf("got %v, want an UnreadableError: %t", err, test.ends)
			} else if ends && (unreadable.Key != web || !errors.Is(err, test.err)) {
				t.Errorf("got an error about %s: %v, want one about %s: %v", unreadable.Key, err, web, test.err)
			}
		})
	}
}

// row prints an object as kubectl get -o wide does: its cells by the headings of their columns.
func row(t *testing.T, columns table.Convertor, object runtime.Object) map[string]string {
	t.Helper()
	columns.Clock = testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC))
	converted, err := columns.ConvertToTable(t.Context(), object, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(converted.Rows); n != 1 || len(converted.Rows[0].Cells) != len(converted.ColumnDefinitions) {
		t.Fatalf("%d rows, the first with %d cells for %d columns", n, len(converted.Rows[0].Cells), len(converted.ColumnDefinitions))
	}
	cells := map[string]string{}
	for i, column := range converted.ColumnDefinitions {
		heading := column.Name
		if column.Priority > 0 {
			heading += " (wide)"
		}
		cells[heading] = fmt.Sprint(converted.Rows[0].Cells[i])
	}
	return cells
}

func TestColumnsSayWhatAControllerIsAndHowItDoes(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	rule := func(apiVersion, resource string) v1alpha1.ResourceRule {
		return v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource}
	}
	at := func(url string) *v1alpha1.Hook {
		return &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: &url}}
	}
	status := v1alpha1.ControllerStatus{
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running", Message: "fine"},
			{Type: "ResourcesServed", Status: metav1.ConditionFalse, Reason: "ResourceNotFound", Message: "no kind\n" + strings.Repeat("x", 200)},
		},
		Counters: &v1alpha1.ControllerCounters{Parents: 3, Syncs: 20, FailedSyncs: 1, Synced: 2, Failing: 1},
	}
	for name, test := range map[string]struct {
		columns table.Convertor
		object  runtime.Object
		want    map[string]string
	}{
		"a composite with all there is to say": {
			controller.Composites().Table,
			&metacontroller.CompositeController{
				ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: created},
				Spec: v1alpha1.CompositeControllerSpec{
					ParentResource: v1alpha1.CompositeControllerParentResourceRule{ResourceRule: rule("example.com/v1", "things")},
					ChildResources: []v1alpha1.CompositeControllerChildResourceRule{
						{ResourceRule: rule("v1", "pods")},
						{
							ResourceRule:   rule("apps/v1", "deployments"),
							UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace},
						},
						{ResourceRule: rule("v1", "services"), UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{}},
						{ResourceRule: rule("v1", "secrets")},
						{ResourceRule: rule("v1", "configmaps")},
					},
					ServiceAccountRef: &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "things"},
					Hooks: &v1alpha1.CompositeControllerHooks{
						Sync: at("https://user:hunter2@hook.hooks/sync?token=hunter2"), Finalize: at("https://hook.hooks/finalize"),
						Customize: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{
							Service: &v1alpha1.ServiceReference{Name: "other", Namespace: "hooks"},
						}},
					},
				},
				Status: v1alpha1.CompositeControllerStatus{ControllerStatus: status},
			},
			map[string]string{
				"Name": "a", "Parent": "things.example.com", "Children": "pods,deployments.apps,services + 2 more", "Ready": "True",
				"Reason": "Running", "Synced": "2/3", "Failing": "1", "Age": "60m", "Hooks (wide)": "sync,finalize,customize",
				"Address (wide)": "https://hook.hooks,http://other.hooks:80", "Strategy (wide)": "OnDelete,InPlace", "Service Account (wide)": "team/things",
				"Parents (wide)": "3", "Syncs (wide)": "20", "Failed (wide)": "1",
				"Last Error (wide)": "no kind " + strings.Repeat("x", 92) + "…",
			},
		},
		"a composite with nothing to say": {
			controller.Composites().Table, &metacontroller.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
			map[string]string{
				"Name": "b", "Parent": "", "Children": "<none>", "Ready": "<unknown>", "Reason": "", "Synced": "<unknown>", "Failing": "<unknown>", "Age": "<unknown>",
				"Hooks (wide)": "<none>", "Address (wide)": "<none>", "Strategy (wide)": "<none>", "Service Account (wide)": "<none>", "Parents (wide)": "<unknown>",
				"Syncs (wide)": "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "<none>",
			},
		},
		"a decorator with a hook that cannot be called": {
			controller.Decorators().Table,
			&metacontroller.DecoratorController{
				ObjectMeta: metav1.ObjectMeta{Name: "c", CreationTimestamp: created},
				Spec: v1alpha1.DecoratorControllerSpec{
					Resources: []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: rule("v1", "pods")}},
					Attachments: []v1alpha1.DecoratorControllerAttachmentRule{{
						ResourceRule:   rule("v1", "services"),
						UpdateStrategy: &v1alpha1.DecoratorControllerAttachmentUpdateStrategy{Method: v1alpha1.ChildUpdateRecreate},
					}},
					ServiceAccountRef: &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "c"},
					Hooks:             &v1alpha1.DecoratorControllerHooks{Sync: at("not a URL"), Finalize: &v1alpha1.Hook{}},
				},
			},
			map[string]string{
				"Name": "c", "Resources": "pods", "Attachments": "services", "Ready": "<unknown>", "Reason": "", "Synced": "<unknown>", "Failing": "<unknown>", "Age": "60m",
				"Hooks (wide)": "sync", "Address (wide)": "<unknown>", "Strategy (wide)": "Recreate", "Service Account (wide)": "team/c", "Targets (wide)": "<unknown>",
				"Syncs (wide)": "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "<none>",
			},
		},
		"a controller that is paused": {
			controller.Composites().Table,
			&metacontroller.CompositeController{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Status: v1alpha1.CompositeControllerStatus{ControllerStatus: v1alpha1.ControllerStatus{
					Conditions: []metav1.Condition{
						{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Paused", Message: "spec.paused is true"},
						{Type: "HooksHealthy", Status: metav1.ConditionUnknown, Reason: "NotCalled", Message: "No hook was called yet."},
						{Type: "Progressing", Status: metav1.ConditionFalse, Reason: "Settled", Message: "Nothing is under way."},
						{Type: "Paused", Status: metav1.ConditionFalse, Reason: "Pausing", Message: "1 left"},
						{Type: "DeletionsHeld", Status: metav1.ConditionFalse, Reason: "NoneHeld", Message: "No deletion is held."},
					},
					LastErrors: []v1alpha1.ParentError{{Name: "t", Message: "the hook\nis dead"}, {Name: "u", Message: "an older one"}},
				}},
			},
			map[string]string{
				"Name": "p", "Parent": "", "Children": "<none>", "Ready": "False", "Reason": "Paused", "Synced": "<unknown>", "Failing": "<unknown>",
				"Age": "<unknown>", "Hooks (wide)": "<none>", "Address (wide)": "<none>", "Strategy (wide)": "<none>", "Service Account (wide)": "<none>",
				"Parents (wide)": "<unknown>",
				"Syncs (wide)":   "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "the hook is dead",
			},
		},
		"a decorator whose deletions are held": {
			controller.Decorators().Table,
			&metacontroller.DecoratorController{
				ObjectMeta: metav1.ObjectMeta{Name: "h"},
				Status: v1alpha1.DecoratorControllerStatus{ControllerStatus: v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
					{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running", Message: "fine"},
					{Type: "DeletionsHeld", Status: metav1.ConditionTrue, Reason: "LimitPassed", Message: "5 deletions"},
				}}},
			},
			map[string]string{
				"Name": "h", "Resources": "<none>", "Attachments": "<none>", "Ready": "True", "Reason": "Running", "Synced": "<unknown>",
				"Failing": "<unknown>", "Age": "<unknown>", "Hooks (wide)": "<none>", "Address (wide)": "<none>", "Strategy (wide)": "<none>",
				"Service Account (wide)": "<none>", "Targets (wide)": "<unknown>", "Syncs (wide)": "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "5 deletions",
			},
		},
		"a revision that is not the latest": {
			controllerrevision.Table(),
			&metacontroller.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{"metacontroller.k8s.io/superseded": "true"}},
			},
			map[string]string{"Name": "d", "Parent": "<none>", "Latest": "false", "Children": "0", "Age": "<unknown>"},
		},
		"a revision": {
			controllerrevision.Table(),
			&metacontroller.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{
					Name: "d", CreationTimestamp: created,
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "t", Controller: new(true)}},
				},
				Children: []v1alpha1.ControllerRevisionChildren{{Kind: "Pod", Names: []string{"a", "b"}}, {Kind: "Service", Names: []string{"a"}}},
			},
			map[string]string{"Name": "d", "Parent": "Thing.example.com/t", "Latest": "true", "Children": "3", "Age": "60m"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, row(t, test.columns, test.object)); diff != "" {
				t.Errorf("cells differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompositesAreSelectedByTheirParents(t *testing.T) {
	o := &metacontroller.CompositeController{}
	o.Name, o.Labels = "a", map[string]string{"team": "x"}
	o.Spec.ParentResource.APIVersion, o.Spec.ParentResource.Resource = "example.com/v1", "things"
	for selector, want := range map[string]bool{
		"spec.parentResource.resource=things":                                                    true,
		"spec.parentResource.resource==things,spec.parentResource.apiVersion=example.com/v1":     true,
		"spec.parentResource.resource!=things":                                                   false,
		"spec.parentResource.resource=pods":                                                      false,
		"spec.parentResource.resource=things,spec.parentResource.apiVersion=example.com/v1beta1": false,
		"metadata.name=a,spec.parentResource.resource=things":                                    true,
		"metadata.name=b,spec.parentResource.resource=things":                                    false,
	} {
		parsed, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		field, err := parsed.Transform(func(label, value string) (string, string, error) {
			return newServer().scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("CompositeController"), label, value)
		})
		if err != nil {
			t.Fatalf("%s: %v", selector, err)
		}
		predicate := controller.Composites().Predicate(labels.SelectorFromSet(labels.Set{"team": "x"}), field)
		if got, err := predicate.Matches(o); err != nil || got != want {
			t.Errorf("%s selects: %v, want %v (%v)", selector, got, want, err)
		}
	}
	if _, _, err := newServer().scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("CompositeController"), "spec.workers", "5"); err == nil {
		t.Error("a field is accepted that nothing is selected by")
	}
}
