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

package storage

import (
	"os"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// path is where the server serves the controllers.
	path = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers"
	// runLabel is on the controllers that are stored only, and not run, with the flag stored.
	runLabel, run = fixture.Group + "/run", "no"
	stored        = "--target-label-selector=" + runLabel + "!=" + run
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

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
