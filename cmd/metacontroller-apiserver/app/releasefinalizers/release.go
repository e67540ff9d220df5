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

package releasefinalizers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// release takes the finalizers off, as many at the same time as the cluster is asked. It goes on after an error, and returns how many
// objects are left.
func (c *cluster) release(ctx context.Context, free []object, r *report) error {
	var mu sync.Mutex
	left := 0
	var group errgroup.Group
	group.SetLimit(c.parallel)
	for i := range free {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			gone, err := c.releaseOne(ctx, &free[i])
			mu.Lock()
			defer mu.Unlock()
			r.released(&free[i], gone, err)
			if err != nil {
				left++
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d of %d objects could not be released: see above, and run it again", left, len(free))
	}
	return nil
}

// releaseOne takes a finalizer off an object. The write is for the object as it was read a moment ago: somebody else's write comes in
// between, and it is read again. It reports whether the object has gone, or was replaced by another one.
func (c *cluster) releaseOne(ctx context.Context, o *object) (gone bool, err error) {
	objects := c.objects.Resource(o.resource).Namespace(o.namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		read, err := objects.Get(ctx, o.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && read.UID != o.uid {
			gone = true
			return nil
		}
		if err != nil {
			return err
		}
		if !slices.Contains(read.Finalizers, o.finalizer) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":             read.UID,
			"resourceVersion": read.ResourceVersion,
			"finalizers":      slices.DeleteFunc(read.Finalizers, func(name string) bool { return name == o.finalizer }),
		}})
		if err != nil {
			return err
		}
		_, err = objects.Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			gone = true
			return nil
		}
		return err
	})
	return gone, err
}
