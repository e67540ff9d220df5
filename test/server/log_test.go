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
	"testing"
)

func TestComplaints(t *testing.T) {
	const (
		panicked = `E1122 06:20:26.873790   23962 recovery.go:84] "Recovered from a panic" what="writing children"`
		canceled = `E1122 06:20:26.873790   23962 manager.go:156] "Cannot keep the serving certificate; trying again" err="context canceled"`
		crashed  = `panic: runtime error: index out of range`
	)
	for name, c := range map[string]struct {
		log       string
		tolerated []string
		want      []string
	}{
		"an information may say what it likes":         {log: `I1122 06:20:26.8   23962 a.go:1] "Done" err="context canceled"`},
		"an error about something else":                {log: `E1122 06:20:26.8   23962 a.go:1] "Sync failed" err="the hook responded 500"`},
		"an error that a shutdown left":                {log: "I1122 x\n" + canceled + "\n", want: []string{canceled}},
		"an error that the test provokes":              {log: canceled, tolerated: []string{"manager.go"}},
		"an error of client-go at a shutdown":          {log: `E1122 06:20:26.8   23962 request.go:1] "Unexpected error when reading response body" err="context canceled"`},
		"an error of the API server that cannot write": {log: `E1122 06:20:26.8   23962 writers.go:84] "Unhandled Error" err="apiserver could not write: context canceled"`},
		"an error of the API server on a slow machine": {log: `E1122 06:20:26.8   23962 timeout.go:1] "post-timeout activity" timeElapsed="1s" err="context canceled"`},
		"a recovered panic":                            {log: panicked + "\n" + canceled, want: []string{panicked, canceled}},
		"a crash":                                      {log: crashed, want: []string{crashed}},
		"text that looks like no line of klog":         {log: `Everything: context canceled`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := complaints(c.log, c.tolerated); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestRace(t *testing.T) {
	if got := race("fine\nfine", 3); got != "" {
		t.Errorf("got %q from a log without race", got)
	}
	if got, want := race("a\nWARNING: DATA RACE\n1\n2\n3\n", 3), "WARNING: DATA RACE\n1\n2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
