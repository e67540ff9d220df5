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

package discovery

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// known are the Published of all catalogs, by what they serve: servers serve the same again and again, and documents are large.
var known sync.Map

// Published are the bodies of a catalog as they are sent, each encoded once in a process.
type Published struct {
	catalog Catalog
	bodies  sync.Map
}

// body is the JSON of a path; nil if the path is not served.
type body []byte

// Publish returns the bodies of a catalog, which must not be modified any more.
func (c Catalog) Publish() *Published {
	var key strings.Builder
	for _, k := range c.Kinds {
		// Kinds are made once for each definition, and never forgotten.
		fmt.Fprintf(&key, "%p %t,", k, c.Ending[k])
	}
	published, _ := known.LoadOrStore(key.String(), &Published{catalog: c})
	return published.(*Published) //nolint:forcetypeassert // Nothing else is stored.
}

// Body returns the body of a path, false if it is not served. The path begins with a slash. The body must not be modified.
func (p *Published) Body(path string) ([]byte, bool) {
	encoded, ok := p.bodies.Load(path)
	if !ok {
		encoded, _ = p.bodies.LoadOrStore(path, p.catalog.encode(path))
	}
	b := encoded.(body) //nolint:forcetypeassert // Nothing else is stored.
	return b, b != nil
}

func (c Catalog) encode(path string) body {
	content, found := c.content(path)
	if !found {
		return nil
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("encoding a %T: %v", content, err)) //nolint:forbidigo // It is an error of the program.
	}
	return encoded
}
