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
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

func application(step *plan.Step, body []byte) client.Application {
	return client.Application{Manager: step.Manager, Force: step.Force, Body: body}
}

// creation returns what sends a child to be created. Server-side apply takes over an object that is there already, which must not
// happen by its name (docs/reference/compatibility.md#d13). A version in the body prevents it: the API server compares it with
// that of an existing object, where it never fits, and does not look at it when there is none.
func (a *Applier) creation(step *plan.Step, target client.Target) (func(context.Context) (*object.Object, error), error) {
	if step.Manager == "" {
		where := client.Target{Resource: target.Resource, Namespace: target.Namespace}
		return func(ctx context.Context) (*object.Object, error) {
			return request{verb: metrics.Create}.count(a.client.Create(ctx, where, step.Body))
		}, nil
	}
	body, err := withVersion(step.Body, impossibleVersion)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*object.Object, error) {
		return request{verb: metrics.Create}.count(a.client.Apply(ctx, target, application(step, body)))
	}, nil
}

// impossibleVersion is the version of no object: etcd's first write has number 2.
const impossibleVersion = "1"

// withVersion returns what is applied with a version: the API server refuses it for an object in any other one.
func withVersion(body []byte, version string) ([]byte, error) {
	var content map[string]any
	// It keeps integers that are too large for a float.
	if err := utiljson.Unmarshal(body, &content); err != nil {
		return nil, fmt.Errorf("decoding what is applied: %w", err)
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("the object has no metadata")
	}
	metadata["resourceVersion"] = version
	return json.Marshal(content)
}

// maxFields is how many fields of a conflict are named.
const maxFields = 5

func joined(fields []string) string {
	if more := len(fields) - maxFields; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(fields[:maxFields], ", "), more)
	}
	return strings.Join(fields, ", ")
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
