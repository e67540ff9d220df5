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

package escalation_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// TestAControllerThatWouldUseTooManyRights is refused for good, without asking the cluster for them. Its author learns what to do.
func TestAControllerThatWouldUseTooManyRights(t *testing.T) {
	object := composite(func(s *v1alpha1.CompositeControllerSpec) {
		for i := range 1000 {
			s.ChildResources = append(s.ChildResources, v1alpha1.CompositeControllerChildResourceRule{ResourceRule: rule("v1", fmt.Sprintf("kind%d", i))})
		}
	})
	c := &cluster{may: all()}
	err := newPlugin(t, c).Validate(t.Context(), write(object, nil, false), nil)
	const want = "this controller would use 6011 rights of the server, and the cluster is asked for 2048 at most; name fewer kinds, Secrets and ConfigMaps, have " +
		"the controller act as a service account with spec.serviceAccountRef, or have somebody write it who has the verb escalate on " +
		"compositecontrollers.metacontroller.k8s.io"
	if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if asked := c.questions(); len(asked) != 1 {
		t.Errorf("asked for %d rights", len(asked))
	}
}
