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

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

// Forward moves all controllers and ControllerRevisions from CustomResourceDefinitions to the server of the options, and has that serve the group.
// The definitions stay with their objects, hidden, until Finish. It goes on where it was interrupted.
func Forward(ctx context.Context, o Options) error { return alone(ctx, o, (*move).forward) }

func (m *move) forward(ctx context.Context) error {
	switch {
	case m.state == nil:
		m.state = &state{Direction: forward}
	case m.state.Direction == backward:
		return errors.New("the way back is under way: end it with --back first")
	case m.state.Direction == finishing || m.state.Done:
		m.sayf("This server has everything already. --finish deletes the definitions, and until then --back goes back.")
		return nil
	default:
		m.sayf("Going on after step %q.", m.state.Step)
	}
	err := m.run(ctx, []step{
		{"check", "what the cluster has, and who Metacontroller is. Nothing is changed", m.check},
		{"connect", "the kube-apiserver is led to this server by an APIService of group " + Group, m.connect},
		{"rehearse", "this server checks all objects in a dry run", m.rehearse},
		{"hold", "the Lease of this server is taken, so that it runs no controllers yet", m.hold},
		{"copy", "all objects are copied, while everything goes on", m.copyAll},
		{"plan", "hooks are called for all parents, and nothing is written: would children change?", m.plan},
		{"freeze", "nobody but Metacontroller may write controllers and revisions from now on", m.freezeForEngine},
		{"stop", "Metacontroller is stopped", m.stopMetacontroller},
		{"delta", "what changed since is copied", m.copyDelta},
		{"verify", "the copies are compared with the objects", m.verify},
		{"switch", "this server serves " + v1alpha1.GroupName + ", by one update of an APIService", m.takeOver},
		{"confirm", "the cluster is asked for the objects", m.confirm},
		{"thaw", "this server runs the controllers, and they may be written", m.thaw},
	})
	if err != nil && m.state.Step == "" {
		return err // Nothing is changed, and there is no state.
	}
	if err != nil {
		return fmt.Errorf("%w. Run the command again to go on, or with --back to undo what was done", err)
	}
	m.sayf("Moved. The definitions and their objects are there still, hidden: --back goes back to them, and --finish deletes them.")
	return nil
}

// check looks whether the move can begin, and prints what names Metacontroller's account.
func (m *move) check(ctx context.Context) error {
	if err := m.requireDefinitions(ctx); err != nil {
		return err
	}
	here, err := m.servedHere(ctx)
	if err != nil {
		return err
	}
	if here {
		return errors.New("an API server serves the group, not the definitions: there is nothing to move")
	}
	if err := m.checkRights(ctx); err != nil {
		return err
	}
	_, err = m.kube.CoreV1().Services(m.Service.Namespace).Get(ctx, m.Service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no Service %s: install this server first, or name its Service with --service", m.Service)
	}
	if err != nil {
		return fmt.Errorf("reading the Service of this server: %w", err)
	}
	found, err := m.findWorkload(ctx)
	if err != nil || found == nil {
		return err
	}
	return m.sayWhatNames(ctx, found.account)
}

// checkRights returns the error that a right is missing, before anything depends on it.
func (m *move) checkRights(ctx context.Context) error {
	var missing []string
	for _, right := range []struct{ verbs, resource, namespace string }{
		{"update patch delete", "apiservices.apiregistration.k8s.io", ""},
		{"create update delete", "validatingadmissionpolicies.admissionregistration.k8s.io", ""},
		{"create delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io", ""},
		{"create update", "leases.coordination.k8s.io", m.Service.Namespace},
		{"create update", "configmaps", m.Service.Namespace},
		{"patch", "statefulsets.apps", m.Metacontroller.Namespace},
		{"list update delete", "compositecontrollers." + Group, ""},
		{"list update delete", "controllerrevisions." + Group, ""},
		{"list update escalate", "compositecontrollers." + v1alpha1.GroupName, ""},
		{"escalate", "controllerrevisions." + v1alpha1.GroupName, ""},
		{"update delete", "customresourcedefinitions.apiextensions.k8s.io", ""},
	} {
		for verb := range strings.FieldsSeq(right.verbs) {
			resource := schema.ParseGroupResource(right.resource)
			allowed, err := review.Own(ctx, m.kube.AuthorizationV1().SelfSubjectAccessReviews(), rights.Right{
				Verb: verb, Group: resource.Group, Resource: resource.Resource, Namespace: right.namespace,
			})
			if err != nil {
				return fmt.Errorf("asking for the rights of %s: %w", m.user, err)
			}
			if !allowed {
				missing = append(missing, verb+" "+right.resource)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s may not %s: run the command as an administrator", m.user, strings.Join(missing, ", "))
	}
	return nil
}

// sayWhatNames prints the bindings of Metacontroller's account, which this server does not have.
func (m *move) sayWhatNames(ctx context.Context, account string) error {
	named := func(subjects []rbacv1.Subject) bool {
		return slices.Contains(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: m.Metacontroller.Namespace, Name: account})
	}
	everywhere, err := m.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing ClusterRoleBindings: %w", err)
	}
	for i := range everywhere.Items {
		if b := &everywhere.Items[i]; named(b.Subjects) {
			m.sayf("  ClusterRoleBinding %s names Metacontroller's account %s: if this server has another one, it lacks ClusterRole %s.", b.Name, account, b.RoleRef.Name)
		}
	}
	inNamespaces, err := m.kube.RbacV1().RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing RoleBindings: %w", err)
	}
	for i := range inNamespaces.Items {
		if b := &inNamespaces.Items[i]; named(b.Subjects) {
			m.sayf("  RoleBinding %s/%s names Metacontroller's account %s: if this server has another one, it lacks %s %s.",
				b.Namespace, b.Name, account, b.RoleRef.Kind, b.RoleRef.Name)
		}
	}
	return nil
}

func (m *move) target() registration.Target {
	return registration.Target{Service: m.Service, Port: m.Port, CABundle: m.CABundle}
}

// connect opens the way to the door, and waits until the cluster reaches this server by it: so it will after the switch. If it does not, it closes
// the way: no namespace can be deleted while an APIService leads nowhere.
func (m *move) connect(ctx context.Context) error {
	if err := registration.RegisterOther(ctx, m.Config, Group, doorVersion, m.target()); err != nil {
		return err
	}
	err := m.await(ctx, "the kube-apiserver to reach this server", func(ctx context.Context) (bool, string) {
		_, err := m.servers(ctx)
		return err == nil, fmt.Sprintf("%v; look whether Service %s leads to a server that is ready, and whose certificate is of the authority that was given", err, m.Service)
	})
	if err != nil && ctx.Err() == nil {
		return errors.Join(err, registration.UnregisterOther(ctx, m.Config, Group, doorVersion))
	}
	return err
}

// rehearse has this server check all objects, and prints what it warns of, and each that it refuses.
func (m *move) rehearse(ctx context.Context) error {
	all, err := m.list(ctx, false)
	if err != nil {
		return err
	}
	stored, err := m.list(ctx, true)
	if err != nil {
		return err
	}
	for _, key := range stored.keys() {
		if found, ok := all[key]; !ok || found.GetUID() != stored[key].GetUID() {
			return fmt.Errorf("this server has objects of its own, such as %s: begin with an empty store", key)
		}
	}
	refused := 0
	defer func() { m.rehearsed = "" }()
	for _, key := range all.keys() {
		m.rehearsed = key
		if err := m.put(ctx, all[key], true); err != nil {
			refused++
			m.sayf("  %s would be refused: %v", key, err)
		}
	}
	if refused > 0 {
		return fmt.Errorf("this server refuses %d of %d objects, for the reasons above: correct them", refused, len(all))
	}
	m.sayf("  This server would take all %d objects.", len(all))
	return nil
}

// copyAll has the server's store have all objects as they are, and no others. What it has is skipped.
func (m *move) copyAll(ctx context.Context) error {
	_, err := m.copyObjects(ctx)
	return err
}

func (m *move) copyObjects(ctx context.Context) (objects, error) {
	all, err := m.list(ctx, false)
	if err != nil {
		return nil, err
	}
	stored, err := m.list(ctx, true)
	if err != nil {
		return nil, err
	}
	for _, key := range stored.keys() {
		if found, ok := all[key]; !ok || found.GetUID() != stored[key].GetUID() {
			if err := m.removeCopy(ctx, stored[key]); err != nil {
				return nil, err
			}
		}
	}
	written := 0
	for _, key := range all.keys() {
		if found, ok := stored[key]; ok && lacking(content(all[key]), content(found), "") == "" {
			continue
		}
		if err := m.put(ctx, all[key], false); err != nil {
			return nil, fmt.Errorf("copying %s: %w", key, err)
		}
		written++
	}
	m.sayf("  %d of %d objects were copied.", written, len(all))
	return all, nil
}

func (m *move) freezeForEngine(ctx context.Context) error {
	found, err := m.findWorkload(ctx)
	if err != nil {
		return err
	}
	if found == nil {
		return m.freeze(ctx)
	}
	return m.freeze(ctx, found.user(m.Metacontroller.Namespace))
}

// copyDelta copies what changed since, and notes what was copied.
func (m *move) copyDelta(ctx context.Context) error {
	all, err := m.copyObjects(ctx)
	if err != nil {
		return err
	}
	m.state.Source = all.digest()
	return nil
}

// verify compares the copies with the objects, which must be those that were copied.
func (m *move) verify(ctx context.Context) error {
	if err := m.requireStopped(ctx); err != nil {
		return err
	}
	all, err := m.list(ctx, false)
	if err != nil {
		return err
	}
	if all.digest() != m.state.Source {
		return m.repeat(ctx, "stop", errChanged)
	}
	copies, err := m.list(ctx, true)
	if err != nil {
		return err
	}
	if sentences := differing(all, copies); len(sentences) > 0 {
		return fmt.Errorf("the copies are not what they were made of: %s", strings.Join(sentences, "; "))
	}
	return nil
}

// takeOver has this server serve the group, if nothing changed since the copies were verified.
func (m *move) takeOver(ctx context.Context) error {
	existing, err := registration.Inspect(ctx, m.Config)
	if err != nil {
		return err
	}
	if existing.ByDefinitions {
		if err := m.verify(ctx); err != nil {
			return err
		}
		if err := m.requireStopped(ctx); err != nil {
			return err
		}
	}
	return registration.TakeOver(ctx, m.Config, m.target())
}

// confirm asks the cluster for the objects until it has those of this server's store.
func (m *move) confirm(ctx context.Context) error {
	stored, err := m.list(ctx, true)
	if err != nil {
		return err
	}
	return m.await(ctx, "the cluster to have the objects of this server", func(ctx context.Context) (bool, string) {
		here, err := m.servedHere(ctx)
		if err != nil {
			return false, err.Error()
		}
		all, err := m.list(ctx, false)
		switch {
		case err != nil:
			return false, err.Error()
		case !here:
			return false, "the definitions serve the group"
		}
		return all.digest() == stored.digest(), "the objects are others"
	})
}

// thaw lets this server's engine run, and then everybody write.
func (m *move) thaw(ctx context.Context) error {
	if err := m.requireStopped(ctx); err != nil {
		return err
	}
	m.state.Began = true
	if err := m.store.save(ctx, m.state); err != nil {
		return err
	}
	if err := m.release(ctx); err != nil {
		return err
	}
	if !m.stopped.IsZero() {
		m.sayf("  Nothing was reconciled for %s, and until this server has taken its Lease.", time.Since(m.stopped).Round(time.Millisecond))
	}
	m.state.Done = true
	return m.unfreeze(ctx)
}
