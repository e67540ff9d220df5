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

package synchistory

import (
	"strings"
	"unsafe"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/health"
)

// maxShort is how many bytes of an error are kept of a sync that is abridged.
const maxShort = 128

// Sizes of what a sync consists of, without the texts.
const (
	sizeOfSync    = int64(unsafe.Sizeof(Recording{})) // It holds the sync and its node.
	sizeOfTrigger = int64(unsafe.Sizeof(v1alpha1.SyncTrigger{}))
	sizeOfObject  = int64(unsafe.Sizeof(v1alpha1.SyncObject{}))
	sizeOfChild   = int64(unsafe.Sizeof(v1alpha1.SyncChild{}))
	sizeOfText    = int64(unsafe.Sizeof(""))
)

// sizeOf returns how many bytes a sync takes. Names that are there anyway, such as those of kinds and of the parent, are not counted.
func sizeOf(s *v1alpha1.ControllerSync) int64 {
	n := sizeOfSync + int64(len(s.Error)) + texts(s.Fields) + texts(s.ChangedBackBy)
	for i := range s.Triggers {
		t := &s.Triggers[i]
		n += sizeOfTrigger + texts(t.Fields)
		if t.Object != nil {
			n += sizeOfObject + int64(len(t.Object.Name))
		}
	}
	for i := range s.Children {
		c := &s.Children[i]
		n += sizeOfChild + int64(len(c.Name)) + texts(c.Fields) + texts(c.ChangedBackBy)
	}
	return n
}

func sizeOfHashes(lists [][]record.Hash) int64 {
	n := int64(cap(lists)) * int64(unsafe.Sizeof([]record.Hash{}))
	for _, list := range lists {
		n += int64(cap(list)) * int64(unsafe.Sizeof(record.Hash(0)))
	}
	return n
}

func texts(list []string) int64 {
	n := int64(cap(list)) * sizeOfText
	for _, text := range list {
		n += int64(len(text))
	}
	return n
}

// abridge returns a sync without its fields and children, and with one trigger.
func abridge(s *v1alpha1.ControllerSync) *v1alpha1.ControllerSync {
	short := *s
	short.Abridged, short.Fields, short.ChangedBackBy, short.Children, short.Triggers = true, nil, nil, nil, nil
	short.MoreChildren += clamp(len(s.Children))
	if len(s.Triggers) > 0 {
		short.Triggers = []v1alpha1.SyncTrigger{{Reason: s.Triggers[0].Reason, Object: s.Triggers[0].Object}}
		short.MoreTriggers += clamp(len(s.Triggers) - 1)
	}
	short.Error = strings.Clone(health.Shorten(s.Error, maxShort))
	return &short
}
