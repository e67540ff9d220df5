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

package preflight

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// expired returns a certificate that has expired.
func expired(t *testing.T) servingcert.Files {
	t.Helper()
	year := 365 * 24 * time.Hour
	files := servingcert.FilesIn(t.TempDir())
	manager := servingcert.New(files, servingcert.Options{Clock: clocktesting.NewFakeClock(time.Now().Add(-year))})
	if err := manager.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return files
}
