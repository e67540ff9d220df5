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

package merge

// path is a place in an object, from the inside out.
type path struct {
	outer *path
	step  string
	item  bool
}

func (p *path) field(name string) *path { return &path{outer: p, step: name} }
func (p *path) at(key string) *path     { return &path{outer: p, step: key, item: true} }

// String returns the path as people write it.
func (p *path) String() string {
	if p == nil {
		return ""
	}
	outer := p.outer.String()
	switch {
	case p.item:
		return outer + "[" + p.step + "]"
	case outer == "":
		return p.step
	}
	return outer + "." + p.step
}
