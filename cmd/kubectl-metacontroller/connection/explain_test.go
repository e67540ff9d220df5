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

package connection

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestErrorsOfRequestsSayWhatToLookAt(t *testing.T) {
	resource := schema.GroupResource{Group: "metacontroller.k8s.io", Resource: "compositecontrollers"}
	request := func(err error) error {
		return fmt.Errorf("listing CompositeControllers: %w", &url.Error{Op: "Get", URL: "https://cluster/apis", Err: err})
	}
	for what, tc := range map[string]struct {
		err  error
		want string
	}{
		"not available": {apierrors.NewServiceUnavailable("no endpoints"), "kubectl describe apiservice"},
		"forbidden":     {apierrors.NewForbidden(resource, "web", errors.New("no")), "kubectl auth can-i --list"},
		"unauthorized":  {apierrors.NewUnauthorized("no"), "kubectl auth whoami"},
		"refused":       {request(errors.New("connection refused")), "the cluster cannot be reached"},
		"too late":      {request(context.DeadlineExceeded), "the cluster cannot be reached"},
		"interrupted":   {request(context.Canceled), ""},
		"another":       {errors.New("no"), ""},
	} {
		t.Run(what, func(t *testing.T) {
			got := Explain(tc.err)
			if !errors.Is(got, tc.err) || !strings.Contains(got.Error(), tc.want) || tc.want == "" && got.Error() != tc.err.Error() {
				t.Errorf("got %v, want in it %q", got, tc.want)
			}
		})
	}
	got := ExplainOf("apps", apierrors.NewServiceUnavailable("no endpoints"))
	if !strings.Contains(got.Error(), "kubectl get apiservices") || strings.Contains(got.Error(), "metacontroller") {
		t.Errorf("of another group: %v", got)
	}
	if err := Explain(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}
