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
	"slices"
	"strings"
)

// raceReport is how the race detector begins to tell what it saw.
const raceReport = "WARNING: DATA RACE"

// alarms are in lines that no server under test may log, however bad its hooks and its cluster are.
var alarms = []string{
	"Recovered from a panic", "Observed a panic", "http: panic serving", "panic: ", "fatal error: ",
	// What METACONTROLLER_VERIFY checks.
	"METACONTROLLER_VERIFY",
}

// noise is in error lines that ordinary deletions and an ordinary end must not leave.
var noise = []string{"context canceled", "Handler timeout", "could not write"}

// unavoidable are in error lines of libraries that say nothing of the server: client-go logs the first of every request whose context ends while the
// response is being read, and the API server the second of a request that a slow machine has not answered in its time.
var unavoidable = []string{"Unexpected error when reading response body", "post-timeout activity"}

// complaints returns the lines of a server's log that fail a test. Lines with one of the texts in tolerated are left out.
func complaints(log string, tolerated []string) []string {
	var found []string
	for line := range strings.SplitSeq(log, "\n") {
		if (contains(line, alarms) || isError(line) && contains(line, noise) && !contains(line, unavoidable)) && !contains(line, tolerated) {
			found = append(found, line)
		}
	}
	return found
}

func contains(line string, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) })
}

// isError reports whether klog wrote a line as an error: E, then month and day.
func isError(line string) bool {
	return len(line) > 5 && line[0] == 'E' && strings.Trim(line[1:5], "0123456789") == ""
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
