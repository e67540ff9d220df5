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

package engine

import (
	"os"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// TestOneServer has one server for the faults that leave it as it was.
func TestOneServer(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Limit: limit()})
	for _, fault := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"HookDown", hookDown},
		{"NoChildren", noChildren},
		{"ReleaseBlocked", releaseBlocked},
		{"APIServiceUnavailable", apiServiceUnavailable},
	} {
		t.Run(fault.name, func(t *testing.T) { fault.run(t, e) })
	}
}

// limit is more than anything takes on a busy machine.
func limit() time.Duration { return report.Pick(5*time.Minute, 10*time.Minute) }

// pause lets a fault last.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// seconds is how figures say how long something took.
func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
