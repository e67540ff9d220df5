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

package dependencies

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/barrier"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Expectations are kept by the barrier. UID returns the UID of a parent, empty if it is gone.
type Expectations struct {
	Barrier *barrier.Barrier
	UID     func(parent.Key) types.UID
}

// Wrote implements childcontrol.Expectations.
func (e Expectations) Wrote(key parent.Key, informer *cache.Informer, written *object.Object) {
	if uid := e.UID(key); uid != "" {
		e.Barrier.WroteObject(uid, informer, written)
	}
}

// Deleted implements childcontrol.Expectations.
func (e Expectations) Deleted(key parent.Key, informer *cache.Informer, o *object.Object) {
	if uid := e.UID(key); uid != "" {
		e.Barrier.Deleted(uid, informer, o.Namespace(), o.Name(), o.UID())
	}
}
