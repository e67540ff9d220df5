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
	"slices"
	"testing"
)

func TestFieldsOfAStatusAreLostThatComeNotBack(t *testing.T) {
	for name, tc := range map[string]struct {
		sent, stored string
		want         []string
	}{
		"all there":                   {`{"a":1,"b":{"c":"d"}}`, `{"a":1,"b":{"c":"d"}}`, nil},
		"one missing":                 {`{"a":1,"b":2}`, `{"a":1}`, []string{"status.b"}},
		"none there":                  {`{"a":1,"b":2}`, ``, []string{"status.a", "status.b"}},
		"with all in it":              {`{"a":{"b":1,"c":2}}`, `{}`, []string{"status.a"}},
		"deep":                        {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, []string{"status.a.c"}},
		"in elements":                 {`{"a":[{"b":1},{"b":2,"c":3}]}`, `{"a":[{"b":1},{"b":2}]}`, []string{"status.a[].c"}},
		"empty values":                {`{"a":0,"b":"","c":false,"d":{},"e":[],"f":null,"g":0.0,"h":{"i":0}}`, `{}`, nil},
		"a map that is not empty":     {`{"a":{"b":0,"c":[1]}}`, `{}`, []string{"status.a"}},
		"another value":               {`{"a":1,"b":{"c":1}}`, `{"a":2,"b":"c"}`, []string{"status.b.c"}},
		"what others added, defaults": {`{"a":1}`, `{"a":1,"b":2}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"}`
			if tc.stored != "" {
				text += `,"status":` + tc.stored
			}
			if got := LostOfStatus(decode(t, tc.sent), parse(t, text+"}")); !slices.Equal(got, tc.want) {
				t.Errorf("lost %q, want %q", got, tc.want)
			}
		})
	}
}
