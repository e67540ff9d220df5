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

package plan

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connectiontest"
)

// It would mean all parents of the namespace.
func TestAnEmptyNameOfAParentIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	for what, args := range map[string][]string{
		"of a stored controller":     {"cc/website", ""},
		"of a candidate":             {"-f", file, ""},
		"of a candidate by its name": {"-f", file, "cc/website", ""},
	} {
		t.Run(what, func(t *testing.T) {
			if printed, err := connectiontest.Run(t, NewCommand, connectiontest.Documents{}, args...); err == nil || !strings.Contains(err.Error(), "the name of the parent is empty") {
				t.Errorf("printed %q, error %v", printed, err)
			}
		})
	}
}
