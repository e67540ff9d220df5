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
	"bytes"
	"context"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// observedGeneration is the field of the status of a CompositeController's parent that the engine sets.
const observedGeneration = "observedGeneration"

// BuiltIn reports whether the parent is of a kind of Kubernetes' own, whose status another controller writes.
func (s *Sync) BuiltIn() bool { return s.controller.origin(s.Source) == discovery.BuiltIn }

func (c *Controller) origin(s *Source) discovery.Origin {
	return c.shared.Cluster.Discovery.Origin(s.Resource.GroupVersion())
}

// Complete adds what the engine reports in a status: the generation that the hook was shown, unless the kind has no such field.
func (s *Sync) Complete(status map[string]any) {
	if s.Source.ReportsGeneration && !s.Source.noGeneration.Load() {
		status[observedGeneration] = s.Generation()
	}
}

// send makes changes of a parent in one request, if they change anything and are not known to be pointless. It returns the parent as written,
// nil if it was not.
func (c *Controller) send(ctx context.Context, key parent.Key, t client.Target, changes parent.Changes, o *object.Object) (*object.Object, error) {
	source, status, api := c.byResource[key.Resource()], changes.Status, c.shared.Cluster.Client
	if c.pointless(key, status, o) {
		changes.Status = nil
		return changes.Write(ctx, api, t, o)
	}
	changes.BuiltIn = status != nil && c.origin(source) == discovery.BuiltIn
	written, err := changes.Write(ctx, api, t, o)
	if status == nil {
		return written, err
	}
	switch unknown := parent.UnknownFields(err); {
	case len(unknown) > 0 && source.ReportsGeneration && slices.Equal(unknown, []string{"status." + observedGeneration}):
		source.noGeneration.Store(true)
		changes.Status = maps.Clone(status)
		delete(changes.Status, observedGeneration)
		return c.send(ctx, key, t, changes, o)
	case len(unknown) > 0:
		c.parents.pointless(key, c.standsFor(key, status, o, true))
		c.noticeUnknown(source, unknown, o)
		changes.Status = nil
		return changes.Write(ctx, api, t, o)
	case written != nil && bytes.Equal(rawStatus(o), rawStatus(written)):
		c.parents.pointless(key, c.standsFor(key, status, o, false))
	}
	return written, err
}

// pointless reports whether it was seen that a write of a status changes nothing of the parent as it is.
func (c *Controller) pointless(key parent.Key, status map[string]any, o *object.Object) bool {
	if status == nil {
		return false
	}
	known := c.parents.progress(key).pointless
	return known != 0 && (known == c.standsFor(key, status, o, false) || known == c.standsFor(key, status, o, true))
}

// standsFor stands for a status and the definition of the parent's kind, and for the status that the parent has, unless the kind cannot have the
// other one whatever it has.
func (c *Controller) standsFor(key parent.Key, status map[string]any, o *object.Object, whatever bool) uint64 {
	encoded, err := json.Marshal(status)
	if err != nil {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, c.shared.Cluster.Discovery.Definition(key.Resource()))
	maphash.WriteComparable(&h, whatever)
	_, _ = h.WriteString(string(o.UID()))
	_, _ = h.Write(encoded)
	if !whatever {
		_, _ = h.Write(rawStatus(o))
	}
	return max(h.Sum64(), 1)
}

func rawStatus(o *object.Object) []byte {
	raw, _ := o.Field("status")
	return raw
}
