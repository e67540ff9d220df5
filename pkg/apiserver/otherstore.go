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

package apiserver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// versionPatience is how long etcd may take to say at which version it is. Without that word a watch begins all the same.
const versionPatience = time.Second

// currentVersion returns the version of a store, as storage.Interface does.
type currentVersion func(ctx context.Context) (uint64, error)

// ofOtherStore returns the error for a watch that goes on at a version which this store has not reached: whoever served the group before had given it.
// The watch cache would wait for that version in silence, while the client takes what it has for the truth. The client lists again.
func ofOtherStore(ctx context.Context, version string, current currentVersion) error {
	wanted, err := strconv.ParseUint(version, 10, 64)
	if err != nil || wanted == 0 {
		return nil // It begins with what is there, or is refused below.
	}
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	reached, err := current(ctx)
	if err != nil || wanted <= reached {
		return nil
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("the resourceVersion %d is of another store than this server's, which is at %d: list again", wanted, reached))
}
