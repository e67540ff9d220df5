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

package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

const (
	// Group is the API group of the door. Its resources have the names of those that are moved, and its objects are of their group and version.
	// No role of Kubernetes or of this server names it, so it is open to administrators alone.
	Group = "migration.metacontroller.k8s.io"
	// doorVersion is the version of the group.
	doorVersion = "v1alpha1"
	// DoorPath is where an API server serves the door.
	DoorPath = "/apis/" + Group + "/" + doorVersion
	// serversResource is what says whether the server that responds runs controllers.
	serversResource = "servers"
	// planSuffix is what follows the name of a controller that is planned.
	planSuffix = "/plan"
	// maxBody is more than any object that etcd takes.
	maxBody = 4 << 20
)

// Door serves the objects of stores as they are, and plans of the controllers among them. It writes nothing while controllers run in this process.
// Create it with NewDoor.
type Door struct {
	stores     map[string]*genericregistry.Store
	plans      map[string]rest.NamedCreater
	authorizer authorizer.Authorizer
	running    func() bool
	decoder    runtime.Decoder
	encoder    runtime.Encoder

	// Lease, NAMESPACE/NAME, is that without which no controllers run in this process. Empty: they need none, or there are none.
	Lease string
}

// NewDoor returns the door to stores, by the names of their resources, of objects of scheme. Plans are the endpoints that plan candidates. Running
// reports whether controllers run in this process. Who writes needs the verb escalate on the resource in the group as it is served, of which the authorizer is asked: no admission looks at what a
// controller gives its author.
func NewDoor(
	scheme *runtime.Scheme, stores map[string]*genericregistry.Store, plans map[string]rest.NamedCreater, a authorizer.Authorizer, running func() bool,
) *Door {
	// A field that the server does not know is an error rather than lost.
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	return &Door{
		stores: stores, plans: plans, authorizer: a, running: running,
		decoder: strict.UniversalDecoder(metacontroller.SchemeGroupVersion),
		encoder: serializer.NewCodecFactory(scheme).LegacyCodec(v1alpha1.SchemeGroupVersion),
	}
}

// ServeHTTP serves DoorPath and what is below it. The API server has authorized the request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response, err := d.serve(r)
	if err != nil {
		status := responsewriters.ErrorToAPIStatus(err)
		status.Kind, status.APIVersion = "Status", "v1"
		respond(w, int(status.Code), status)
		return
	}
	object, ok := response.(runtime.Object)
	if !ok {
		respond(w, http.StatusOK, response)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = d.encoder.Encode(object, w) // The client sees what it lacks.
}

func respond(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what) //nolint:errchkjson // The client sees what it lacks.
}

// serverReport is what a server says of itself.
type serverReport struct {
	// Host is the name of its Pod or host, with which the identity begins that it has in the Lease.
	Host string `json:"host"`
	// Lease is that without which it runs no controllers, NAMESPACE/NAME. Empty: it needs none, or runs none.
	Lease string `json:"lease"`
	// Running says that it runs controllers.
	Running bool `json:"running"`
}

// place is what a request is about. Without a name it is all objects of a resource.
type place struct {
	resource, namespace, name string
}

// placeOf returns what a path below DoorPath is about.
func placeOf(path string) place {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	p := place{}
	if len(parts) > 2 && parts[0] == "namespaces" {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.resource = parts[0]
	if len(parts) > 1 {
		p.name = strings.Join(parts[1:], "/")
	}
	return p
}

func (d *Door) serve(r *http.Request) (any, error) {
	p := placeOf(strings.TrimPrefix(r.URL.Path, DoorPath))
	resource := schema.GroupResource{Group: Group, Resource: p.resource}
	switch {
	case p.resource == "" && r.Method == http.MethodGet:
		return d.resources(), nil
	case p.resource == serversResource && r.Method == http.MethodGet:
		host, err := os.Hostname()
		return serverReport{Host: host, Lease: d.Lease, Running: d.running()}, err
	}
	store, ok := d.stores[p.resource]
	if !ok {
		return nil, apierrors.NewNotFound(resource, p.name)
	}
	// Objects are validated in the version that the request names, which is to be that of the group as it is served.
	ctx := request.WithRequestInfo(request.WithNamespace(r.Context(), p.namespace), &request.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version,
		Resource: p.resource, Namespace: p.namespace, Name: p.name,
	})
	if p.name == "" && r.Method == http.MethodGet {
		limit, _ := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
		return store.List(ctx, &metainternalversion.ListOptions{Limit: limit, Continue: r.URL.Query().Get("continue")})
	}
	if name, ok := strings.CutSuffix(p.name, planSuffix); ok && r.Method == http.MethodPost {
		return d.plan(ctx, store, place{resource: p.resource, name: name}, r.Body)
	}
	if p.name == "" || r.Method != http.MethodPut && r.Method != http.MethodDelete {
		return nil, apierrors.NewMethodNotSupported(resource, strings.ToLower(r.Method))
	}
	if err := d.mayEscalate(r.Context(), p); err != nil {
		return nil, err
	}
	dryRun := r.URL.Query().Has("dryRun")
	if !dryRun && d.running() {
		return nil, apierrors.NewConflict(resource, p.name, errors.New("this server runs controllers, which would act on what is written now"))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if r.Method == http.MethodDelete {
		return d.remove(ctx, store, p.name, body, dryRun)
	}
	return d.put(ctx, store, p, body, dryRun)
}

// plan says what the engine of this process would do with a controller of the store, if it ran it. The answer is a part of the plan, as the
// subresource plan has it, and nothing is written. The endpoint asks what the user may do.
func (d *Door) plan(ctx context.Context, store *genericregistry.Store, p place, body io.Reader) (any, error) {
	endpoint, ok := d.plans[p.resource]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: Group, Resource: p.resource}, p.name+planSuffix)
	}
	asked := &v1alpha1.ControllerPlan{}
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(asked); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	stored, err := store.Get(ctx, p.name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	text, err := runtime.Encode(d.encoder, stored)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", p.resource, p.name, err)
	}
	asked.Spec.Candidate = &runtime.RawExtension{Raw: text} // It takes no controller that runs.
	return endpoint.Create(ctx, p.name, asked, nil, &metav1.CreateOptions{})
}

// mayEscalate returns the error for a user who may not give controllers rights that he does not have.
func (d *Door) mayEscalate(ctx context.Context, p place) error {
	requester, _ := request.UserFrom(ctx)
	decision, why, err := d.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: requester, Verb: "escalate", APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version,
		Resource: p.resource, Namespace: p.namespace, Name: p.name, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		why = err.Error()
	}
	resource := schema.GroupResource{Group: Group, Resource: p.resource}
	return apierrors.NewForbidden(resource, p.name, fmt.Errorf("it takes the verb escalate on %s.%s: %s", p.resource, v1alpha1.GroupName, why))
}

// resources is the discovery of the group, for the kube-apiserver. No verb of it has other components look after the objects.
func (d *Door) resources() metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: Group + "/" + doorVersion}
	for _, k := range kinds() {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.resource, SingularName: k.singular(), Kind: k.name, Namespaced: k.namespaced, Verbs: metav1.Verbs{"list", "update"},
		})
	}
	return list
}

// put has an object in the store be what the body says, if there is none of its name or that has its UID. Whatever a controller must satisfy
// to be created here is checked.
func (d *Door) put(ctx context.Context, store *genericregistry.Store, p place, body []byte, dryRun bool) (any, error) {
	decoded, _, err := d.decoder.Decode(body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o, err := meta.Accessor(decoded)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.GetName() != p.name || o.GetNamespace() != p.namespace || o.GetUID() == "" {
		return nil, apierrors.NewBadRequest("the object needs a UID, and the name and namespace of the address")
	}
	resource := schema.GroupResource{Group: Group, Resource: p.resource}
	_, err = store.Create(ctx, decoded.DeepCopyObject(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	key, err := store.KeyFunc(ctx, p.name)
	if err != nil {
		return nil, err
	}
	stored := store.New()
	err = store.Storage.GuaranteedUpdate(ctx, key, stored, true, nil, func(existing runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		was, err := meta.Accessor(existing)
		if err != nil {
			return nil, nil, err
		}
		if was.GetUID() != "" && was.GetUID() != o.GetUID() {
			return nil, nil, apierrors.NewConflict(resource, p.name, fmt.Errorf("this server has another object of this name, with UID %s", was.GetUID()))
		}
		return decoded.DeepCopyObject(), nil, nil
	}, dryRun, nil)
	return stored, err
}

// remove removes an object from the store without a look at its finalizers: nothing is deleted, it is somewhere else.
func (*Door) remove(ctx context.Context, store *genericregistry.Store, name string, body []byte, dryRun bool) (any, error) {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil || options.Preconditions == nil || options.Preconditions.UID == nil {
		return nil, apierrors.NewBadRequest("the body must be DeleteOptions with the UID of the object as a precondition")
	}
	key, err := store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	dryRun = dryRun || len(options.DryRun) > 0
	preconditions := storage.NewUIDPreconditions(string(*options.Preconditions.UID))
	stored := store.New()
	err = store.Storage.GuaranteedUpdate(ctx, key, stored, false, preconditions, func(existing runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		o, err := meta.Accessor(existing)
		if err == nil {
			o.SetFinalizers(nil)
		}
		return existing, nil, err
	}, dryRun, nil)
	if err != nil {
		return nil, notFound(err, name)
	}
	err = store.Storage.Delete(ctx, key, stored, preconditions, rest.ValidateAllObjectFunc, dryRun, nil, storage.DeleteOptions{})
	if err != nil {
		return nil, notFound(err, name)
	}
	return stored, nil
}

// notFound has clients tell that an object is not there, of which the storage has an error of its own.
func notFound(err error, name string) error {
	if storage.IsNotFound(err) {
		return apierrors.NewNotFound(schema.GroupResource{Group: Group}, name)
	}
	return err
}
