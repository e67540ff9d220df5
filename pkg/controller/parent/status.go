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

package parent

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// WriteStatus makes status the status of o, as a whole, and returns the object as written. It writes nothing, and returns
// nil, when o already has that status.
func WriteStatus(ctx context.Context, c *client.Client, t client.Target, o *object.Object, status map[string]any) (*object.Object, error) {
	same, err := hasStatus(o, status)
	if err != nil || same {
		return nil, err
	}
	// The version makes the write conditional. It stands for the UID too: no two objects ever share a version.
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": o.ResourceVersion()},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	t.Subresource = "status"
	return c.Patch(ctx, t, types.JSONPatchType, patch)
}

func hasStatus(o *object.Object, status map[string]any) (bool, error) {
	raw, ok := o.Field("status")
	if !ok {
		return false, nil
	}
	var current map[string]any
	if err := utiljson.Unmarshal(raw, &current); err != nil {
		return false, fmt.Errorf("decoding the current status: %w", err)
	}
	return equality.Semantic.DeepEqual(current, status), nil
}
