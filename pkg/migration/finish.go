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
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

// hiddenVersion is a version that the definitions get, by which their hidden objects are reached.
const hiddenVersion = "hidden"

// Finish deletes the definitions after Forward, with their hidden objects, and what is left of the move. There is no way back then. It refuses while
// anything but the server of the options serves the group.
func Finish(ctx context.Context, o Options) error { return alone(ctx, o, (*move).finish) }

func (m *move) finish(ctx context.Context) error {
	switch {
	case m.state == nil:
		return m.confirmFinished(ctx)
	case m.state.Direction == backward:
		return errors.New("the way back is under way: end it with --back")
	case m.state.Direction == forward && !m.state.Done:
		return errors.New("the move has not ended: run the command without --finish first")
	case m.state.Direction == forward:
		m.state.Direction, m.state.Step, m.state.Done = finishing, "", false
	default:
		m.sayf("Going on after step %q.", m.state.Step)
	}
	err := m.run(ctx, []step{
		{"check", "this server serves the group", m.checkServed},
		{"uncover", "the definitions serve their hidden objects in a version of their own, " + hiddenVersion, m.uncover},
		{"detach", "the hidden objects lose their finalizers, which nobody would take off", m.detach},
		{"drop", "the definitions are deleted, and their objects with them", m.deleteDefinitions},
		{"clear", "the APIService of " + Group + " and the state are deleted", m.forget},
	})
	if err != nil {
		return fmt.Errorf("%w. Run the command again to go on", err)
	}
	m.sayf("Only this server has the controllers now. What else Metacontroller's installation has can be deleted, see docs/operations/migrate.md.")
	return nil
}

// confirmFinished returns an error unless this server serves the group and no definition is left, as after a run that was killed at its very end.
func (m *move) confirmFinished(ctx context.Context) error {
	existing, err := registration.Inspect(ctx, m.Config)
	if err != nil {
		return err
	}
	if len(existing.Definitions) > 0 {
		return fmt.Errorf("there is no ConfigMap %s/%s: nothing was moved", m.Service.Namespace, ConfigMapName)
	}
	if err := m.checkServed(ctx); err != nil {
		return err
	}
	m.sayf("Only this server has the controllers already.")
	return nil
}

// checkServed returns an error unless the registration leads to this server, and this server responds.
func (m *move) checkServed(ctx context.Context) error {
	existing, err := registration.Inspect(ctx, m.Config)
	if err != nil {
		return err
	}
	here, err := m.servedHere(ctx)
	if err != nil {
		return err
	}
	if !here || existing.ByDefinitions || existing.ServiceNamespace != m.Service.Namespace || existing.ServiceName != m.Service.Name {
		return fmt.Errorf("APIService %s does not lead to Service %s: the definitions may be what is served, and are not deleted", registration.APIServiceName, m.Service)
	}
	return nil
}

// rawDefinitions is the client for definitions, of which every field is kept that this program does not know.
func (m *move) rawDefinitions() dynamic.NamespaceableResourceInterface {
	return m.dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
}

// uncover adds the version to each definition that is there still, and waits until it is served.
func (m *move) uncover(ctx context.Context) error {
	for _, k := range kinds() {
		err := m.edit(ctx, k, addHidden)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("adding a version to CustomResourceDefinition %s: %w", k.definition(), err)
		}
		err = m.await(ctx, "the hidden objects to be served", func(ctx context.Context) (bool, string) {
			_, err := m.dynamic.Resource(k.hidden()).List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, fmt.Sprint(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cover takes the version off the definitions again.
func (m *move) cover(ctx context.Context) error {
	for _, k := range kinds() {
		if err := m.edit(ctx, k, removeHidden); err != nil {
			return fmt.Errorf("removing version %s of CustomResourceDefinition %s: %w", hiddenVersion, k.definition(), err)
		}
	}
	return nil
}

// edit changes the definition of a kind. The cluster may write its status meanwhile, which is a conflict.
func (m *move) edit(ctx context.Context, k kind, change func(*unstructured.Unstructured) error) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		definition, err := m.rawDefinitions().Get(ctx, k.definition(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := change(definition); err != nil {
			return err
		}
		_, err = m.rawDefinitions().Update(ctx, definition, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
}

// hidden is the resource of the objects behind the registration of this server.
func (k kind) hidden() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.GroupName, Version: hiddenVersion, Resource: k.resource}
}

// addHidden adds a version like the one that is stored, unless it is there.
func addHidden(definition *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return err
	}
	var added map[string]any
	for _, entry := range versions {
		version, ok := entry.(map[string]any)
		switch {
		case !ok:
			return errors.New("a version is no object")
		case version["name"] == hiddenVersion:
			return nil
		case version["storage"] == true:
			added = runtime.DeepCopyJSON(version)
		}
	}
	added["name"], added["storage"], added["served"] = hiddenVersion, false, true
	return unstructured.SetNestedSlice(definition.Object, append(versions, added), "spec", "versions")
}

func removeHidden(definition *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return err
	}
	versions = slices.DeleteFunc(versions, func(entry any) bool {
		version, ok := entry.(map[string]any)
		return ok && version["name"] == hiddenVersion
	})
	return unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
}

// detach takes the finalizers off the hidden objects. Nobody sees them, so nobody acts on that, and with them they and the definition would stay.
func (m *move) detach(ctx context.Context) error {
	for _, k := range kinds() {
		client := m.dynamic.Resource(k.hidden())
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			o, ok := item.(*unstructured.Unstructured)
			if !ok || len(o.GetFinalizers()) == 0 {
				return nil
			}
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, o.GetUID())
			_, err := client.Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("taking the finalizers off hidden %s: %w", k.resource, err)
		}
	}
	return nil
}

// deleteDefinitions deletes the definitions, while this server serves the group, and waits until they are gone.
func (m *move) deleteDefinitions(ctx context.Context) error {
	for _, k := range kinds() {
		if err := m.checkServed(ctx); err != nil {
			return err
		}
		if err := m.rawDefinitions().Delete(ctx, k.definition(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting CustomResourceDefinition %s: %w", k.definition(), err)
		}
		err := m.await(ctx, "CustomResourceDefinition "+k.definition()+" to go", func(ctx context.Context) (bool, string) {
			_, err := m.rawDefinitions().Get(ctx, k.definition(), metav1.GetOptions{})
			if err == nil {
				return false, "it is there"
			}
			return apierrors.IsNotFound(err), err.Error()
		})
		if err != nil {
			return err
		}
	}
	return m.checkServed(ctx)
}

// forget deletes what a move has left in the cluster: the APIService of the door, and the state.
func (m *move) forget(ctx context.Context) error {
	if err := registration.UnregisterOther(ctx, m.Config, Group, doorVersion); err != nil {
		return err
	}
	return m.store.remove(ctx)
}
