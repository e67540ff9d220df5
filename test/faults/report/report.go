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
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
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

// Row names a row of the table.
type Row string

// The rows of the table.
const (
	ServerKilled    Row = "server-killed"
	PowerCut        Row = "power-cut"
	Replicas        Row = "replicas"
	EtcdMembers     Row = "etcd-members"
	KubeAPIServer   Row = "kube-apiserver"
	APIService      Row = "apiservice"
	HookDown        Row = "hook-down"
	NoChildren      Row = "no-children"
	HostileHooks    Row = "hostile-hooks"
	ReleaseBlocked  Row = "release-blocked"
	Panics          Row = "panics"
	DiskFull        Row = "disk-full"
	Upgrade         Row = "upgrade"
	NodeLost        Row = "node-lost"
	Malformed       Row = "malformed"
	CertificateTurn Row = "certificates"
)

// description is what the table says of a row besides the figures.
type description struct {
	row            Row
	fault, promise string
}

// descriptions are in the order of the table.
var descriptions = []description{
	{ServerKilled, "SIGKILL of the server 20 times while 500 parents converge, are rolled out and are finalized", "nothing is lost, no child is duplicated, made again or orphaned, all converge each time"},
	{PowerCut, "SIGKILL during 1,000 writes of controllers to the embedded etcd, with what was not synced to the disk dropped", "every acknowledged write is there"},
	{Replicas, "two replicas over an etcd of three members: the leader killed, stopped for 60 s and resumed, cut off for 60 s", "failover in time; no two engines write the same object in between"},
	{EtcdMembers, "one of three members of an external etcd killed, then its leader, then all for 60 s", "serves through the first two; 503 with a cause in the third, which kubectl prints within 15 s and the APIService shows, no restart, recovers alone"},
	{KubeAPIServer, "the kube-apiserver down for 60 s, restarted with an empty watch cache, absent when the server starts", "waits or converges; nothing is deleted or made again; calls of hooks are bounded"},
	{APIService, "our APIService unavailable for 5 min", "reconciling goes on; the deletion of namespaces resumes after it"},
	{HookDown, "a hook down for 10 min with 1,000 parents", "every parent is tried again within 5 min of its return, never more at once than workers"},
	{NoChildren, "a hook that answers \"no children\" for all parents, with and without `deletionGuard`", "the guard holds"},
	{HostileHooks, "50 hostile hooks beside one healthy controller, with 512 MiB of memory", "the healthy one is at most twice as slow; no restart, not out of memory"},
	{ReleaseBlocked, "the release of a finalizer denied by a policy", "told in the status, bounded retries, the rest works"},
	{Panics, "a panic at every request that the engine makes", "told, tried again, the rest works"},
	{DiskFull, "the disk full under the embedded etcd, then space", "a clear error, recovers, nothing is corrupt"},
	{Upgrade, "rolling upgrade from an old version to this one and back, with live watches and load", "no request fails beyond retried ones, the state is whole both ways"},
	{NodeLost, "the node lost under the single-node shape, its Pod stuck Terminating", "the documented way back works"},
	{Malformed, "10,000 malformed requests: bodies, content types, paths, options, huge and deep", "4xx, never 5xx, no panic, memory is flat"},
	{CertificateTurn, "rotation of the serving certificate and of its CA under load", "no request fails"},
}

// Begin and End are the lines between which a document has the table.
const (
	Begin = "<!-- faults: what stands below is written by make faults -->"
	End   = "<!-- faults: end -->"
)

// unmeasured stands where a row has no figures.
const unmeasured = "not measured"

// Write returns a document with the table of the figures in place of the one between Begin and End. Where a test has several lines the
// last one counts; those of short forms do not.
func Write(document []byte, figures io.Reader) ([]byte, error) {
	lines, err := read(figures)
	if err != nil {
		return nil, err
	}
	before, rest, found := bytes.Cut(document, []byte(Begin))
	_, after, ended := bytes.Cut(rest, []byte(End))
	if !found || !ended {
		return nil, fmt.Errorf("the document has no place for the table: %q and %q", Begin, End)
	}
	return slices.Concat(before, []byte(Begin+"\n"+table(lines)+End), after), nil
}

func read(figures io.Reader) ([]line, error) {
	var lines []line
	scanner := bufio.NewScanner(figures)
	for scanner.Scan() {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("reading the figure %q: %w", scanner.Text(), err)
		}
		if !slices.ContainsFunc(descriptions, func(d description) bool { return d.row == l.Row }) {
			return nil, fmt.Errorf("%s has figures of a row %q, which there is not", l.Test, l.Row)
		}
		if !l.Long {
			continue
		}
		same := func(other line) bool { return other.Row == l.Row && other.Test == l.Test }
		lines = append(slices.DeleteFunc(lines, same), l)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the figures: %w", err)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.Test, b.Test) })
	return lines, nil
}

func table(lines []line) string {
	var text strings.Builder
	text.WriteString("| Fault | Promise | Measured |\n|---|---|---|\n")
	for _, d := range descriptions {
		var cells []string
		for _, l := range lines {
			if l.Row != d.row {
				continue
			}
			said := strings.Join(l.Said, "; ")
			if l.Failed {
				said = strings.TrimSuffix("**broken**, see "+l.Test+"; "+said, "; ")
			}
			if said != "" {
				cells = append(cells, said)
			}
		}
		if len(cells) == 0 {
			cells = []string{unmeasured}
		}
		measured := strings.ReplaceAll(strings.Join(cells, ". "), "|", `\|`)
		fmt.Fprintf(&text, "| %s | %s | %s |\n", d.fault, d.promise, measured)
	}
	return text.String()
}
