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
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

const (
	// holder has the Lease of this server during a move, so that its engine does not run.
	holder = "metacontroller-apiserver-migrate"
	// holdSeconds is how long: the Lease must not expire while the command is not run. Ten years.
	holdSeconds = 10 * 365 * 24 * 60 * 60
)

// hold takes the Lease of this server, whoever holds it, and waits until its former holder runs no controllers any more.
func (m *move) hold(ctx context.Context) error {
	lease := m.Service.Namespace + "/" + m.Lease
	report, err := m.ask(ctx)
	if err != nil {
		return err
	}
	if report.Host != "" && report.Lease != lease {
		return fmt.Errorf("the server on %s has Lease %s, and %s would be taken: name its Lease with --leader-elect-resource-name, and have it run with "+
			"--leader-elect and a Lease in the namespace of its Service", report.Host, cmp.Or(report.Lease, "none"), lease)
	}
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return m.takeLease(ctx) }); err != nil {
		return fmt.Errorf("taking Lease %s: %w", lease, err)
	}
	if err := m.awaitFormer(ctx); err != nil {
		return err
	}
	if report, err = m.ask(ctx); err == nil && report.Running {
		return fmt.Errorf("the server on %s runs controllers though Lease %s is taken", report.Host, lease)
	}
	return err
}

// ask asks the server what it does. On the way back from a move in which its controllers never ran, it need not be reached.
func (m *move) ask(ctx context.Context) (serverReport, error) {
	report, err := m.servers(ctx)
	if err != nil && m.state.Direction == backward && !m.state.Began {
		return serverReport{}, nil
	}
	return report, err
}

// takeLease takes the Lease unless the move has it. Its holder may renew it meanwhile, which is a conflict.
func (m *move) takeLease(ctx context.Context) error {
	leases := m.kube.CoordinationV1().Leases(m.Service.Namespace)
	lease, err := leases.Get(ctx, m.Lease, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case missing:
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: m.Lease}}
	case err != nil:
		return err
	case ptr.Deref(lease.Spec.HolderIdentity, "") == holder:
		return nil
	}
	// Saved before it is overwritten: whoever goes on has to wait for the same holder.
	m.state.Former, m.state.FormerSeconds = ptr.Deref(lease.Spec.HolderIdentity, ""), ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)
	if err := m.store.save(ctx, m.state); err != nil {
		return err
	}
	now := metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new(holder), LeaseDurationSeconds: new(int32(holdSeconds)), AcquireTime: &now, RenewTime: &now,
		LeaseTransitions: new(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1),
	}
	if missing {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}

// awaitFormer waits until the former holder of the Lease has said that it runs no controllers, or must have stopped because it could not renew.
func (m *move) awaitFormer(ctx context.Context) error {
	if m.state.Former == "" {
		return nil
	}
	expired, cancel := context.WithTimeout(ctx, time.Duration(m.state.FormerSeconds)*time.Second)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		report, err := m.servers(expired)
		if err == nil && !report.Running && strings.HasPrefix(m.state.Former, report.Host+"_") {
			return nil
		}
		select {
		case <-expired.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// release lets this server's engine run, which waits for the Lease. One that somebody else holds is left.
func (m *move) release(ctx context.Context) error {
	leases := m.kube.CoordinationV1().Leases(m.Service.Namespace)
	lease, err := leases.Get(ctx, m.Lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != holder {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Lease %s: %w", m.Lease, err)
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = nil, new(int32(1))
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("releasing Lease %s: %w", m.Lease, err)
	}
	return nil
}

// workload is the StatefulSet or Deployment of Metacontroller.
type workload struct {
	kind, account string
	replicas      int32
	selector      *metav1.LabelSelector
	// settled says that its controller has seen the latest definition, and made it so.
	settled bool
}

// findWorkload returns Metacontroller's workload, nil if none runs.
func (m *move) findWorkload(ctx context.Context) (*workload, error) {
	if m.Metacontroller.Name == "" {
		return nil, nil //nolint:nilnil // There is none.
	}
	apps, name := m.kube.AppsV1(), m.Metacontroller
	if m.state.Workload != "" && !strings.HasSuffix(m.state.Workload, "/"+name.String()) {
		return nil, fmt.Errorf("this move has stopped %s: name that with --metacontroller, not %s", m.state.Workload, name)
	}
	set, err := apps.StatefulSets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err == nil {
		return &workload{
			kind: "StatefulSet", account: set.Spec.Template.Spec.ServiceAccountName, replicas: ptr.Deref(set.Spec.Replicas, 1), selector: set.Spec.Selector,
			settled: set.Status.ObservedGeneration >= set.Generation && set.Status.Replicas == 0,
		}, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading StatefulSet %s: %w", name, err)
	}
	deployment, err := apps.Deployments(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is neither a StatefulSet nor a Deployment %s: name that of Metacontroller with --metacontroller NAMESPACE/NAME, "+
			"or say --metacontroller none, and stop and start it yourself", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Deployment %s: %w", name, err)
	}
	return &workload{
		kind: "Deployment", account: deployment.Spec.Template.Spec.ServiceAccountName, replicas: ptr.Deref(deployment.Spec.Replicas, 1),
		selector: deployment.Spec.Selector,
		settled:  deployment.Status.ObservedGeneration >= deployment.Generation && deployment.Status.Replicas == 0,
	}, nil
}

// user is the name of the service account of the workload's Pods.
func (w *workload) user(namespace string) string {
	return rights.Account{Namespace: namespace, Name: cmp.Or(w.account, "default")}.User()
}

// scale sets the replicas of Metacontroller's workload.
func (m *move) scale(ctx context.Context, kind string, replicas int32) error {
	name := m.Metacontroller
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	var err error
	options := metav1.PatchOptions{FieldManager: fieldManager}
	if kind == "Deployment" {
		_, err = m.kube.AppsV1().Deployments(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch, options)
	} else {
		_, err = m.kube.AppsV1().StatefulSets(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch, options)
	}
	if err != nil {
		return fmt.Errorf("scaling %s %s to %d: %w", kind, name, replicas, err)
	}
	return nil
}

// stopMetacontroller scales Metacontroller to zero and waits until its Pods are gone. Its replicas are saved first.
func (m *move) stopMetacontroller(ctx context.Context) error {
	found, err := m.findWorkload(ctx)
	if err != nil || found == nil {
		m.stopped = time.Now()
		return err
	}
	if m.state.Workload == "" {
		m.state.Workload, m.state.Replicas = found.kind+"/"+m.Metacontroller.String(), found.replicas
		if err := m.store.save(ctx, m.state); err != nil {
			return err
		}
	}
	m.stopped = time.Now()
	if err := m.scale(ctx, found.kind, 0); err != nil {
		return err
	}
	return m.await(ctx, "the Pods of Metacontroller to end", m.hasStopped)
}

// hasStopped reports whether Metacontroller is scaled to zero and has no Pods, and otherwise what there is.
func (m *move) hasStopped(ctx context.Context) (bool, string) {
	found, err := m.findWorkload(ctx)
	switch {
	case err != nil:
		return false, err.Error()
	case found == nil:
		return true, ""
	case found.replicas > 0 || !found.settled:
		return false, fmt.Sprintf("%s %s is not scaled to zero", found.kind, m.Metacontroller)
	}
	pods, err := m.kube.CoreV1().Pods(m.Metacontroller.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(found.selector)})
	if err != nil {
		return false, err.Error()
	}
	if len(pods.Items) > 0 {
		return false, "Pod " + pods.Items[0].Name + " of " + found.kind + " " + m.Metacontroller.String() + " is there"
	}
	return true, ""
}

// requireStopped returns an error if somebody has started Metacontroller again, which the next run stops.
func (m *move) requireStopped(ctx context.Context) error {
	stopped, seen := m.hasStopped(ctx)
	if stopped {
		return nil
	}
	return m.repeat(ctx, "freeze", fmt.Errorf("somebody has started Metacontroller again: %s. Find out who", seen))
}

// startMetacontroller gives Metacontroller the replicas back that it had.
func (m *move) startMetacontroller(ctx context.Context) error {
	if m.state.Workload == "" {
		m.sayf("  The move has stopped nothing, so nothing is started.")
		return nil
	}
	found, err := m.findWorkload(ctx)
	if err != nil {
		return err
	}
	if found == nil {
		m.sayf("  Start %s with %d replicas yourself, because of --metacontroller none.", m.state.Workload, m.state.Replicas)
		return nil
	}
	return m.scale(ctx, found.kind, m.state.Replicas)
}
