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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

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
