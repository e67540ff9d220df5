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

package manager

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

var _ inspection.Engine = &Manager{}

// errNotRunning says that there is nothing to ask.
var errNotRunning = errors.New("the controller does not run here at present; its condition Ready says why, and kubectl describe shows it")

// Controller implements inspection.Engine.
func (m *Manager) Controller(kind, name string, uid types.UID) (inspection.Controller, error) {
	if c, ok := m.controllers.instance(identity{kind: kind, name: name}, uid).(inspection.Controller); ok {
		return c, nil
	}
	return nil, errNotRunning
}

// Candidate implements inspection.Engine.
func (m *Manager) Candidate(ctx context.Context, object runtime.Object) (inspection.Controller, func(), error) {
	d, ok := definitionOf(object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no controller", object)
	}
	instance, err := m.candidate(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	candidate, ok := instance.(interface {
		inspection.Controller
		Open(ctx context.Context) (shut func(), err error)
	})
	if !ok {
		return nil, nil, fmt.Errorf("a %T cannot be asked", instance)
	}
	shut, err := candidate.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	return candidate, shut, nil
}

// candidate builds a controller that does not run.
func (m *Manager) candidate(ctx context.Context, d reconciler.Definition) (Instance, error) {
	shared := *m.shared
	shared.Expectations, shared.History = nil, nil // It writes nothing, and must not be taken for the controller that runs.
	instance, _, err := builder{shared: &shared, resources: shared.Cluster.Discovery}.Build(ctx, d)
	return instance, err
}
