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
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// request is a request that writes a child.
type request struct {
	verb metrics.Verb
	// before is the child as it is known before the request. Nil: it is not.
	before *object.Object
}

// count counts the request in the metrics and returns what it is given, which is the response.
func (r request) count(after *object.Object, err error) (*object.Object, error) {
	metrics.ChildWrite(r.verb, r.outcome(after, err))
	return after, err
}

func (r request) outcome(after *object.Object, err error) metrics.Outcome {
	_, responded := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil && (r.verb == metrics.Trial || r.before != nil && after != nil && r.before.ResourceVersion() == after.ResourceVersion()):
		return metrics.Unchanged
	case err == nil:
		return metrics.Written
	case !responded:
		return metrics.Unanswered
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), r.verb != metrics.Create && isGone(err):
		return metrics.Conflicted
	}
	return metrics.Rejected
}

// Patch sends a merge patch of the metadata of a child, outside of plans: adopting and releasing do. The error is that of the client.
func (a *Applier) Patch(ctx context.Context, target client.Target, patch []byte) (*object.Object, error) {
	return request{verb: metrics.Update}.count(a.client.Patch(ctx, target, types.MergePatchType, patch))
}
