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

package report

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

const (
	// longVariable asks for the long form of tests.
	longVariable = "FAULTS_LONG"
	// fileVariable names the file of the figures.
	fileVariable = "FAULTS_REPORT"
)

// Long reports whether tests of faults run in their long form.
func Long() bool { return os.Getenv(longVariable) == "1" }

// Pick returns a number for the form in which tests run.
func Pick[N any](short, long N) N {
	if Long() {
		return long
	}
	return short
}

// Figures are what one test has measured of one row. Its methods may be used concurrently.
type Figures struct {
	t testing.TB

	mu   sync.Mutex
	line line
}

// line is a line of the file.
type line struct {
	// Row is the row's.
	Row Row `json:"row"`
	// Test is the name of the test.
	Test string `json:"test"`
	// Long is whether the test ran in its long form.
	Long bool `json:"long"`
	// Failed is whether the test failed.
	Failed bool `json:"failed"`
	// Said is what was measured, as parts of a sentence.
	Said []string `json:"said"`
}

// For returns the figures of a test, which are written when it ends.
func For(t testing.TB, row Row) *Figures {
	t.Helper()
	f := &Figures{t: t, line: line{Row: row, Test: t.Name(), Long: Long()}}
	t.Cleanup(f.write)
	return f
}

// Sayf adds what was measured: a part of a sentence, as "20 kills in 104 s".
func (f *Figures) Sayf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line.Said = append(f.line.Said, fmt.Sprintf(format, args...))
}

func (f *Figures) write() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line.Failed = f.t.Failed()
	f.t.Logf("%s: %s", f.line.Row, strings.Join(f.line.Said, "; "))
	path := os.Getenv(fileVariable)
	if path == "" {
		return
	}
	encoded, err := json.Marshal(f.line)
	if err != nil {
		f.t.Errorf("encoding the figures: %v", err)
		return
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Errorf("opening the file of the figures: %v", err)
		return
	}
	// One write, since several tests may append at the same time.
	if _, err := file.Write(append(encoded, '\n')); err != nil {
		f.t.Errorf("writing the figures: %v", err)
	}
	if err := file.Close(); err != nil {
		f.t.Errorf("writing the figures: %v", err)
	}
}
