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

package main

import (
	"encoding/json"
	"os"
	"testing"
)

func TestOverlayFitsThisVersionOfGo(t *testing.T) {
	path, err := write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct {
		Replace map[string]string `json:"Replace"`
	}
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, e := range edits {
		files[e.file] = true
	}
	if len(overlay.Replace) != len(files) {
		t.Errorf("%d files are replaced, want %d", len(overlay.Replace), len(files))
	}
	for original, edited := range overlay.Replace {
		for _, file := range []string{original, edited} {
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
		}
	}
}
