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

package inspect

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// RollbackREST gives parents the fields of former revisions back.
type RollbackREST struct{ *subresource }

var _ rest.NamedCreater = &RollbackREST{}

// New returns an empty ControllerRollback.
func (*RollbackREST) New() runtime.Object { return &v1alpha1.ControllerRollback{} }

// Create rolls one parent back, if the caller may get and update it and the parent was not changed meanwhile. A dry run has the API server
// check the write.
func (r *RollbackREST) Create(
	ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	asked, err := admitted[*v1alpha1.ControllerRollback](ctx, object, validate)
	if err != nil {
		return nil, err
	}
	if asked.Spec.Name == "" {
		return nil, apierrors.NewBadRequest("spec.name: name the parent, and its namespace unless it is cluster-scoped")
	}
	ctx, leave, err := r.rollbacks.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	who, c, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	done := asked.DeepCopy()
	done.Status, err = rollback(ctx, who, c, &asked.Spec, options != nil && len(options.DryRun) > 0)
	if err != nil {
		return nil, err
	}
	return done, nil
}

// rollback rolls a parent back in the name of a caller.
func rollback(
	ctx context.Context, who *caller, c inspection.Controller, spec *v1alpha1.ControllerRollbackSpec, dryRun bool,
) (status v1alpha1.ControllerRollbackStatus, err error) {
	p, err := find(ctx, who, c, &v1alpha1.ParentSelection{Namespace: spec.Namespace, Name: spec.Name})
	if err != nil {
		return status, err
	}
	if err := mayUpdate(ctx, who, p); err != nil {
		return status, err
	}
	status, err = c.Rollback(ctx, p, inspection.RollbackOptions{
		Revision: spec.Revision, ResourceVersion: spec.ResourceVersion, DryRun: dryRun, User: who.subject.User,
	})
	return status, rollbackError(err, p, spec, dryRun)
}

// mayUpdate returns an error unless the caller may update a parent. The server writes it, so that it asks for what an API server would ask
// of him, which is more if the parent gives rights.
func mayUpdate(ctx context.Context, who *caller, p v1alpha1.ParentReference) error {
	wanted := []rights.Right{{Verb: rights.Update, Group: p.Group, Resource: p.Resource, Namespace: p.Namespace, Name: p.Name}}
	for _, more := range rights.Guarded(p.GroupResource()) {
		more.Namespace = p.Namespace
		wanted = append(wanted, more)
	}
	lacking, err := who.lacking(ctx, wanted...)
	if err != nil || lacking == nil {
		return err
	}
	return apierrors.NewForbidden(p.GroupResource(), p.Name, fmt.Errorf(
		"user %q may not %s %s in namespace %q, which rolling a parent back takes", who.subject.User, lacking.Verb,
		schema.GroupResource{Group: lacking.Group, Resource: lacking.Resource}, lacking.Namespace))
}

// rollbackError is the error of a rollback as callers get it. Only one that says so leaves open whether the parent was written.
func rollbackError(err error, p v1alpha1.ParentReference, spec *v1alpha1.ControllerRollbackSpec, dryRun bool) error {
	resource := p.GroupResource()
	status, ofServer := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, inspection.ErrOutcomeUnknown) && dryRun:
		return failed(err, fmt.Sprintf("it is not known whether %s %q can be rolled back", resource, p.Name))
	case errors.Is(err, inspection.ErrOutcomeUnknown):
		return failed(err, fmt.Sprintf("it is not known whether %s %q was rolled back; look at the parent before you repeat it", resource, p.Name))
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return failed(err, fmt.Sprintf("%s %q was not rolled back", resource, p.Name))
	case errors.Is(err, inspection.ErrNoRevision):
		notFound := apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "controllerrevisions"}, spec.Revision)
		notFound.ErrStatus.Message = fmt.Sprintf("%s %q cannot be rolled back: %v", resource, p.Name, err)
		return notFound
	case ofServer:
		answered := status.Status()
		answered.Message = fmt.Sprintf("%s %q was not rolled back: %s", resource, p.Name, answered.Message)
		return &apierrors.StatusError{ErrStatus: answered}
	}
	return apierrors.NewConflict(resource, p.Name, fmt.Errorf("it was not rolled back: %w", err))
}

// failed is the error of a rollback that the server, and not what it was asked for, is the cause of. It asks nobody to repeat it.
func failed(err error, text string) error {
	text = fmt.Sprintf("%s: %v", text, err)
	if errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) {
		return apierrors.NewTimeoutError(text, 0)
	}
	return apierrors.NewInternalError(errors.New(text))
}

// ResyncREST has parents synced.
type ResyncREST struct{ *subresource }

var _ rest.NamedCreater = &ResyncREST{}

// New returns an empty ControllerResync.
func (*ResyncREST) New() runtime.Object { return &v1alpha1.ControllerResync{} }

// Create puts the parents that are selected, and that the caller may get, into the queue, and says how many these are. A dry run says how
// many it would be.
func (r *ResyncREST) Create(
	ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	asked, err := admitted[*v1alpha1.ControllerResync](ctx, object, validate)
	if err != nil {
		return nil, err
	}
	who, c, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := selectParents(ctx, who, c, asked.Spec.Parents, false)
	if err != nil {
		return nil, err
	}
	done := asked.DeepCopy()
	done.Status = v1alpha1.ControllerResyncStatus{Parents: int64(len(s.parents)), Hidden: s.hidden}
	if options == nil || len(options.DryRun) == 0 {
		done.Status.Parents = int64(c.Resync(s.parents))
	}
	return done, nil
}
