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

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// serverSide writes a child by server-side apply (KEP 555).
func (a *Applier) serverSide(ctx context.Context, parent string, in plan.Input, target client.Target, outcome *Outcome) (err error) {
	if outcome.Action == plan.Create {
		return a.applyNew(ctx, parent, in, target, outcome)
	}
	if outcome.Migrate {
		if err := a.migrate(ctx, target, outcome); err != nil || outcome.Stale {
			return err
		}
	}
	outcome.Written, err = a.client.Apply(ctx, target, application(outcome, outcome.Body))
	return err
}

func application(outcome *Outcome, body []byte) client.Application {
	return client.Application{Manager: outcome.Manager, Force: outcome.Force, Body: body}
}

// applyNew creates a child. Server-side apply takes over an object that is there already, which must not happen by its name
// (docs/reference/compatibility.md#d13). A version in the body prevents it: the API server compares it with that of an existing object, where
// it never fits, and does not look at it when there is none.
func (a *Applier) applyNew(ctx context.Context, parent string, in plan.Input, target client.Target, outcome *Outcome) error {
	body, err := withVersion(outcome.Body)
	if err != nil {
		return err
	}
	outcome.Written, err = a.client.Apply(ctx, target, application(outcome, body))
	if !apierrors.IsConflict(err) {
		return err
	}
	if err := a.judgeObstacle(ctx, parent, in, target, outcome); err != nil || outcome.Stale {
		return err
	}
	outcome.Written, err = a.client.Apply(ctx, target, application(outcome, body))
	return err
}

// impossibleVersion is the version of no object: etcd's first write has number 2.
const impossibleVersion = "1"

func withVersion(body []byte) ([]byte, error) {
	var content map[string]any
	// It keeps integers that are too large for a float.
	if err := utiljson.Unmarshal(body, &content); err != nil {
		return nil, fmt.Errorf("decoding the new object: %w", err)
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("the object has no metadata")
	}
	metadata["resourceVersion"] = impossibleVersion
	return json.Marshal(content)
}

// migrate moves the fields that were applied in another way to the step's field manager, and takes the record of the merge
// strategy off. It changes no value, so nothing flaps; fields that are no longer desired go with the write after it.
func (a *Applier) migrate(ctx context.Context, target client.Target, outcome *Outcome) error {
	live, err := a.client.GetWhole(ctx, target)
	if err == nil && live.UID() != outcome.Observed.UID() || isGone(err) {
		outcome.Stale = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading who owns its fields: %w", err)
	}
	patch, err := migration(live, outcome.Manager)
	if err != nil {
		return err
	}
	_, err = a.client.Patch(ctx, target, types.JSONPatchType, patch)
	if apierrors.IsConflict(err) || isGone(err) {
		outcome.Stale = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("moving its fields to %s: %w", outcome.Manager, err)
	}
	return nil
}

// tryStep returns what the body of a step would make of its child.
func (a *Applier) tryStep(ctx context.Context, target client.Target, outcome *Outcome) (*object.Object, error) {
	if outcome.Manager == "" {
		return a.try(ctx, target, outcome.Body)
	}
	attempt := application(outcome, outcome.Body)
	attempt.Try = true
	return a.client.Apply(ctx, target, attempt)
}

// An OwnershipError says that a child was not applied because other field managers own fields of it, and force is false. It does
// not wrap the API server's error: that is a conflict, and this one does not go away when the child is read again.
type OwnershipError struct {
	// Fields say which manager owns which field.
	Fields []string
}

// Error implements error.
func (e *OwnershipError) Error() string {
	return fmt.Sprintf("other field managers own what is to be applied, and updateStrategy.force is false: %s", joined(e.Fields))
}

// ownership returns an OwnershipError if that is what an error of the API server is about, nil otherwise.
func ownership(err error) *OwnershipError {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, cause.Field+" ("+cause.Message+")")
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return &OwnershipError{Fields: fields}
}
