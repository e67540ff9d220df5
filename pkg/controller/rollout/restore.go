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

package rollout

import (
	"errors"
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Errors of Former. They are told apart with errors.Is.
var (
	// ErrNoFormer says that the parent has no revision but its present one.
	ErrNoFormer = errors.New("it has no former revision: a revision is kept only as long as children are on it")
	// ErrUnknown says that the parent has no revision of a name.
	ErrUnknown = errors.New("it has no such revision")
)

// Former returns one of the revisions that Planner.Revisions returned, by its name. [v1alpha1.RevisionPrevious] and an empty name stand for
// the newest one that is not the latest. The latest is a revision like others.
func Former(revisions []Revision, name string) (*Revision, error) {
	if name == "" || name == v1alpha1.RevisionPrevious {
		if len(revisions) < 2 {
			return nil, ErrNoFormer
		}
		return &revisions[1], nil
	}
	for i := range revisions {
		if r := &revisions[i]; r.Exists && r.Object.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w as %s", ErrUnknown, name)
}
