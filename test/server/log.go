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

package server

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// raceReport is how the race detector begins to tell what it saw.
const raceReport = "WARNING: DATA RACE"

// alarms are in lines that no server under test may log, however bad its hooks and its cluster are.
var alarms = []string{
	"Recovered from a panic", "Observed a panic", "http: panic serving", "panic: ", "fatal error: ",
	// What METACONTROLLER_VERIFY checks.
	"METACONTROLLER_VERIFY",
}

// noise is in error lines of ours that ordinary deletions and an ordinary end must not leave. Libraries log such lines where a machine is slow,
// or a request's context ends, and say nothing of the server by them.
var noise = []string{"context canceled", "Handler timeout", "could not write"}

// sources has the text of our files that may log, by the names under which klog knows them.
var sources = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	for _, folder := range []string{"cmd", "pkg"} {
		// What cannot be read logs nothing.
		_ = filepath.WalkDir(filepath.Join(cluster.Root(), folder), func(path string, _ fs.DirEntry, err error) error {
			if text, errRead := os.ReadFile(path); err == nil && errRead == nil && strings.HasSuffix(path, ".go") {
				texts[filepath.Base(path)] += string(text)
			}
			return nil
		})
	}
	return texts
})

// errorLine is an error of klog: E, month and day, the time, the thread, the file with the number of its line, and the begin of the message.
var errorLine = regexp.MustCompile(`^E\d{4} \S+ +\d+ ([^ :]+\.go):\d+\] ("[^"]{1,40})`)

// ownError reports whether a line is an error that our code has logged: its message begins so in a file of that name.
func ownError(line string) bool {
	found := errorLine.FindStringSubmatch(line)
	return len(found) == 3 && strings.Contains(sources()[found[1]], found[2])
}

// complaints returns the lines of a server's log that fail a test. Lines with one of the texts in tolerated are left out.
func complaints(log string, tolerated []string) []string {
	var found []string
	for line := range strings.SplitSeq(log, "\n") {
		if (contains(line, alarms) || contains(line, noise) && ownError(line)) && !contains(line, tolerated) {
			found = append(found, line)
		}
	}
	return found
}

func contains(line string, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) })
}

// race returns the first report of the race detector in a log, empty if there is none, and no more than some of its lines.
func race(log string, lines int) string {
	_, report, found := strings.Cut(log, raceReport)
	if !found {
		return ""
	}
	all := strings.SplitN(report, "\n", lines+1)
	return raceReport + strings.Join(all[:min(len(all), lines)], "\n")
}
