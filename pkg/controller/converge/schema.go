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

package converge

import (
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
)

// published is a schema of the cluster as package merge sees it.
type published struct{ *discovery.Schema }

func schemaOf(s *discovery.Schema) merge.Schema {
	if s == nil {
		return nil
	}
	return published{s}
}

// Field implements merge.Schema.
func (p published) Field(name string) merge.Schema { return schemaOf(p.Schema.Field(name)) }

// Item implements merge.Schema.
func (p published) Item() merge.Schema { return schemaOf(p.Schema.Item()) }
