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

package reconciler

import (
	"context"
	"errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

func (c *Controller) Requests(ctx context.Context, p v1alpha1.ParentReference, hook string) ([]v1alpha1.HookRequest, []inspection.Place, error) {
	return nil, nil, errors.New("x")
}
func (c *Controller) Plan(ctx context.Context, p v1alpha1.ParentReference, o inspection.PlanOptions) (v1alpha1.ParentPlan, []inspection.Place) {
	return v1alpha1.ParentPlan{}, nil
}
