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

package eventrecorder_test

import (
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
)

func TestShortenCutsNoCharacterInTwo(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"empty":                     {"", 3, ""},
		"as long as the limit":      {"abc", 3, "abc"},
		"longer":                    {"abcd", 3, "abc…"},
		"a character at the limit":  {"abü", 3, "ab…"},
		"a character of that ends":  {"aüb", 3, "aü…"},
		"nothing fits but ellipsis": {"€uro", 1, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := eventrecorder.Shorten(c.text, c.limit); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
