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
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
)

// Back undoes Forward: the definitions serve the group again, with the objects as this server has them, and Metacontroller runs. The objects leave
// this server's store. It goes on where it was interrupted, and undoes a Forward that was interrupted.
func Back(ctx context.Context, o Options) error { return alone(ctx, o, (*move).back) }

func (m *move) back(ctx context.Context) error {
	switch {
	case m.state == nil:
		return m.confirmBack(ctx)
	case m.state.Direction == finishing && slices.Contains([]string{"detach", "drop"}, m.state.Step):
		return errors.New("--finish has begun: the definitions are being deleted, and there is no way back to them")
	case m.state.Direction == forward && slices.Contains([]string{"", "check", "connect"}, m.state.Step):
		return m.disconnect(ctx)
	case m.state.Direction == forward, m.state.Direction == finishing:
		m.state.Direction, m.state.Step, m.state.Done = backward, "", false
	default:
		m.sayf("Going on after step %q.", m.state.Step)
	}
	if err := m.reopen(ctx); err != nil {
		return err
	}
	err := m.run(ctx, []step{
		{"check", "what the definitions would drop. Nothing is changed", m.checkBack},
		{"freeze", "nobody may write controllers and revisions from now on", func(ctx context.Context) error { return m.freeze(ctx) }},
		{"hold", "the Lease of this server is taken, so that it runs no controllers any more", m.holdBack},
		{"cover", "the definitions lose what --finish gave them, if it began", m.cover},
		{"switch", "the definitions serve " + v1alpha1.GroupName + ", by one update of an APIService", m.giveBack},
		{"restore", "the objects become what this server has", m.restore},
		{"start", "Metacontroller is started", m.startMetacontroller},
		{"thaw", "controllers and revisions may be written", m.unfreeze},
		{"empty", "the copies leave the store of this server, which may run again", m.empty},
		{"forget", "the APIService of " + Group + " and the state are deleted", m.forget},
	})
	if err != nil {
		return fmt.Errorf("%w. Run the command again to go on", err)
	}
	m.sayf("The definitions serve the group. Stop this server, or leave it: it has no controllers.")
	return m.sayWhatStays(ctx)
}

// sayWhatStays prints which controllers could not be deleted while Metacontroller runs, which does not know their finalizer.
func (m *move) sayWhatStays(ctx context.Context) error {
	all, err := m.list(ctx, false)
	if err != nil {
		return err
	}
	said := false
	for _, key := range all.keys() {
		if !slices.Contains(all[key].GetFinalizers(), v1alpha1.FinalizerParents) {
			continue
		}
		if !said {
			m.sayf("Metacontroller does not take finalizer %s off. When you delete one of these, take it off yourself:", v1alpha1.FinalizerParents)
			said = true
		}
		m.sayf("  %s", key)
	}
	return nil
}

// reopen opens the way to the door again, which somebody may have closed. A server whose controllers never ran need not be reached before its store is
// emptied.
func (m *move) reopen(ctx context.Context) error {
	if _, err := m.servers(ctx); err == nil || len(m.CABundle) == 0 || m.state.Step == "empty" {
		return nil
	}
	err := m.connect(ctx)
	if err != nil && !m.state.Began && ctx.Err() == nil {
		m.sayf("Going on without this server: %v", err)
		return nil
	}
	return err
}

// disconnect undoes a move that has changed nothing but who reaches this server, which need not be reached for it.
func (m *move) disconnect(ctx context.Context) error {
	if err := m.forget(ctx); err != nil {
		return err
	}
	m.sayf("Nothing was moved yet. The APIService of group %s and the state are deleted.", Group)
	return nil
}

// confirmBack returns an error unless the definitions serve the group without a move under way, which is what a run leaves that was killed at its very end.
func (m *move) confirmBack(ctx context.Context) error {
	here, err := m.servedHere(ctx)
	if err != nil {
		return err
	}
	if here {
		return fmt.Errorf("there is no ConfigMap %s/%s: nothing was moved, or --finish has ended it", m.Service.Namespace, ConfigMapName)
	}
	m.sayf("The definitions serve the group already, and no move is under way.")
	return m.sayWhatStays(ctx)
}

// checkBack looks for Metacontroller, and refuses what the definitions do not take, and to lose a field: what they do not know they drop without a word.
func (m *move) checkBack(ctx context.Context) error {
	if err := m.requireDefinitions(ctx); err != nil {
		return err
	}
	if m.state.Workload != "" {
		if _, err := m.findWorkload(ctx); err != nil {
			return err
		}
	}
	if !m.state.Began {
		return nil
	}
	stored, err := m.list(ctx, true)
	if err != nil {
		return err
	}
	lost := 0
	for _, k := range kinds() {
		schema, validator, err := m.schemaOf(ctx, k)
		if err != nil {
			return err
		}
		for _, key := range stored.keys() {
			if kindOf(stored[key]) != k {
				continue
			}
			for _, field := range dropped(schema, stored[key]) {
				m.sayf("  The definitions drop %s of %s: take it off before.", field, key)
				lost++
			}
			for _, wrong := range validation.ValidateCustomResource(nil, stored[key].Object, validator) {
				m.sayf("  The definitions refuse %s: %s", key, wrong)
				lost++
			}
		}
	}
	if lost > 0 {
		return fmt.Errorf("the definitions cannot have %d values, which are named above", lost)
	}
	return nil
}

// schemaOf returns the schema of a definition, and what validates by it.
func (m *move) schemaOf(ctx context.Context, k kind) (*structuralschema.Structural, validation.SchemaCreateValidator, error) {
	definition, err := m.definition(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		if version.Name != v1alpha1.SchemeGroupVersion.Version || version.Schema == nil {
			continue
		}
		internal := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, internal, nil); err != nil {
			return nil, nil, fmt.Errorf("reading the schema of %s: %w", k.definition(), err)
		}
		structural, err := structuralschema.NewStructural(internal)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the schema of %s: %w", k.definition(), err)
		}
		validator, _, err := validation.NewSchemaValidator(internal)
		return structural, validator, err
	}
	return nil, nil, fmt.Errorf("CustomResourceDefinition %s has no version %s", k.definition(), v1alpha1.SchemeGroupVersion.Version)
}

func (m *move) definition(ctx context.Context, k kind) (*apiextensionsv1.CustomResourceDefinition, error) {
	found, err := m.rawDefinitions().Get(ctx, k.definition(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", k.definition(), err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, definition); err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", k.definition(), err)
	}
	return definition, nil
}

// dropped returns the fields of an object that a schema does not know. Statuses have fields of this server, which mean nothing to another engine.
func dropped(schema *structuralschema.Structural, o *unstructured.Unstructured) (fields []string) {
	unknown := pruning.PruneWithOptions(o.DeepCopy().Object, schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, field := range unknown {
		if field != "status" && !strings.HasPrefix(field, "status.") {
			fields = append(fields, field)
		}
	}
	return fields
}

func (m *move) holdBack(ctx context.Context) error {
	m.stopped = time.Now()
	return m.hold(ctx)
}

// stay ends the way back before the switch: this server runs its controllers again, and they may be written.
func (m *move) stay(ctx context.Context, why error) error {
	m.state.Direction, m.state.Step = forward, "confirm"
	if err := m.thaw(ctx); err != nil {
		return errors.Join(why, err)
	}
	m.state.Step = "thaw"
	return errors.Join(fmt.Errorf("%w: this server goes on as before", why), m.store.save(ctx, m.state))
}

// giveBack has the definitions serve the group, and waits until they do. Until nobody could write any more, users may have written what the
// definitions do not take.
func (m *move) giveBack(ctx context.Context) error {
	here, err := m.servedHere(ctx)
	if err != nil {
		return err
	}
	if here && m.state.Began {
		if err := m.checkBack(ctx); err != nil {
			return m.stay(ctx, err)
		}
	}
	if err := registration.GiveBack(ctx, m.Config, m.Service); err != nil {
		return err
	}
	return m.await(ctx, "the definitions to serve the group", func(ctx context.Context) (bool, string) {
		here, err := m.servedHere(ctx)
		if err != nil {
			return false, err.Error()
		}
		return !here, "this server does"
	})
}

// restore writes what this server has into the objects of the definitions. These are the latest ones if this server's controllers never ran.
func (m *move) restore(ctx context.Context) error {
	if !m.state.Began {
		return nil
	}
	wanted, err := m.list(ctx, true)
	if err != nil {
		return err
	}
	found, err := m.list(ctx, false)
	if err != nil {
		return err
	}
	written := 0
	for _, key := range found.keys() {
		if w, ok := wanted[key]; ok && (w.GetUID() == found[key].GetUID() || createdAgain(w, found[key])) {
			continue
		}
		if err := m.deleteRestored(ctx, found[key]); err != nil {
			return err
		}
		delete(found, key)
		written++
	}
	for _, key := range wanted.keys() {
		changed, err := m.restoreOne(ctx, wanted[key], found[key])
		if err != nil {
			return fmt.Errorf("restoring %s: %w", key, err)
		}
		if changed {
			written++
		}
	}
	m.sayf("  %d of %d objects were written.", written, len(wanted))
	return nil
}

// createdAgain reports whether an object of the definitions was created by an earlier run, for one that came after the move. It has another UID.
func createdAgain(wanted, found *unstructured.Unstructured) bool {
	return found.GetAnnotations()[originAnnotation] == string(wanted.GetUID())
}

// originAnnotation is on an object that was created on the way back, with the UID that it had in this server's store.
const originAnnotation = "metacontroller.k8s.io/moved-from"

func annotate(o *unstructured.Unstructured, origin string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[originAnnotation] = origin
	o.SetAnnotations(annotations)
}

// restoreOne has an object of the definitions be what this server has. It returns false if it was.
func (m *move) restoreOne(ctx context.Context, wanted, found *unstructured.Unstructured) (bool, error) {
	k := kindOf(wanted)
	client := m.dynamic.Resource(k.served()).Namespace(wanted.GetNamespace())
	o := wanted.DeepCopy()
	o.SetResourceVersion("")
	var written bool
	if found == nil {
		annotate(o, string(wanted.GetUID()))
		o.SetManagedFields(nil)
		created, err := client.Create(ctx, o, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return false, err
		}
		found, written = created, true
	} else {
		if origin, ok := found.GetAnnotations()[originAnnotation]; ok {
			annotate(o, origin)
		}
		o.SetUID(found.GetUID())
		o.SetResourceVersion(found.GetResourceVersion())
		// An update can change neither. Whether it is being deleted is made so below.
		o.SetDeletionTimestamp(found.GetDeletionTimestamp())
		o.SetDeletionGracePeriodSeconds(found.GetDeletionGracePeriodSeconds())
		updated, err := client.Update(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager})
		if err != nil {
			return false, err
		}
		written = updated.GetResourceVersion() != found.GetResourceVersion()
		found = updated
	}
	if status, ok := wanted.Object["status"]; ok && lacking(status, found.Object["status"], "") != "" {
		found.Object["status"] = status
		if _, err := client.UpdateStatus(ctx, found, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		written = true
	}
	if wanted.GetDeletionTimestamp() != nil && found.GetDeletionTimestamp() == nil {
		return true, client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
	return written, nil
}

// deleteRestored deletes an object of the definitions that this server's users have deleted. Its finalizers had their turn then.
func (m *move) deleteRestored(ctx context.Context, o *unstructured.Unstructured) error {
	k := kindOf(o)
	client := m.dynamic.Resource(k.served()).Namespace(o.GetNamespace())
	if len(o.GetFinalizers()) > 0 {
		o.SetFinalizers(nil)
		if _, err := client.Update(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("taking the finalizers off %s, which was deleted after the move: %w", keyOf(k, o), err)
		}
	}
	if err := client.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s, which was deleted after the move: %w", keyOf(k, o), err)
	}
	return nil
}

// empty empties the server's store, and lets its engine run, which has nothing to do then.
func (m *move) empty(ctx context.Context) error {
	if !m.stopped.IsZero() {
		m.sayf("  Nothing was reconciled for %s, and until Metacontroller has started.", time.Since(m.stopped).Round(time.Millisecond))
	}
	stored, err := m.list(ctx, true)
	if err != nil {
		return err
	}
	for _, key := range stored.keys() {
		if err := m.removeCopy(ctx, stored[key]); err != nil {
			return err
		}
	}
	return m.release(ctx)
}
