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

package terminal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// settledPolls is how often a command prints the same before it is taken to be settled.
const settledPolls = 8

// block is a command of a document with what it prints.
var block = regexp.MustCompile("(?s)```console\n\\$ (.*?)```\n")

// heredoc is how a command begins that goes on up to a line END.
const heredoc = "<<'END'"

// split separates a command from what it prints. A command goes on after a line that ends with a backslash, and up to the end of a
// here-document.
func split(text string) (command, printed string) {
	inside := false
	for line := range strings.Lines(text) {
		command += line
		if strings.Contains(line, heredoc) {
			inside = true
		} else if line == "END\n" {
			inside = false
		}
		if !inside && !strings.HasSuffix(line, "\\\n") {
			break
		}
	}
	return strings.TrimSuffix(command, "\n"), text[len(command):]
}

// repeatable are commands that change nothing: what they print follows what the cluster does, and is waited for.
var repeatable = regexp.MustCompile(`^(kubectl (-n \S+ )?(metacontroller (status|tree|version|parents|plan|syncs|explain-loop)|get|rollout|wait|events)|metacontroller-apiserver preflight|.* --dry-run=server -f -) `)

// Play runs the commands of a document of the repository, those in blocks of the language "console", from its top to its end, and
// compares what they print. With update, it writes what they print into the document. The document must have at least as many commands
// as given. A command that ends with " &" is a hook that runs until the test ends.
func (s *Shell) Play(t *testing.T, document string, least int, update bool) {
	t.Helper()
	s.PlaySection(t, document, "", least, update)
}

// PlaySection is Play for a section of a document: from the line of its heading to the next heading of the level.
func (s *Shell) PlaySection(t *testing.T, document, heading string, least int, update bool) {
	t.Helper()
	path := filepath.Join(cluster.Root(), filepath.FromSlash(document))
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, section, after := cut(string(page), heading)
	if section == "" {
		t.Fatalf("%s has no section %q", document, heading)
	}
	commands := 0
	written := block.ReplaceAllStringFunc(section, func(text string) string {
		command, want := split(block.FindStringSubmatch(text)[1])
		commands++
		got := s.play(t, command, want, update)
		if got != want && !update {
			t.Errorf("%s:\n$ %s\nprinted\n%s\nand the page has\n%s", document, command, got, want)
		}
		return "```console\n$ " + command + "\n" + got + "```\n"
	})
	if commands < least {
		t.Errorf("%s has %d commands, want %d and more", document, commands, least)
	}
	if update && !t.Failed() {
		if err := os.WriteFile(path, []byte(before+written+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cut takes a page apart at a section, which is all of it if no heading is given, and empty if there is none.
func cut(page, heading string) (before, section, after string) {
	if heading == "" {
		return "", page, ""
	}
	before, section, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		return page, "", ""
	}
	level, _, _ := strings.Cut(heading, " ")
	section, after, found = strings.Cut(section, "\n"+level+" ")
	if found {
		after = "\n" + level + " " + after
	}
	return before, "\n" + heading + "\n" + section, after
}

// play runs a command of a document until it prints what is wanted, if it may be run again, and returns what it printed last.
func (s *Shell) play(t *testing.T, command, wanted string, update bool) string {
	t.Helper()
	if background, ok := strings.CutSuffix(command, " &"); ok {
		s.Start(t, background)
		return ""
	}
	if !repeatable.MatchString(command + " ") {
		return normal(s.Run(t, command))
	}
	var got string
	same := 0
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	Poll(ctx, func() bool {
		before := got
		got = normal(s.Run(t, command))
		if got == before {
			same++
		} else {
			same = 0
		}
		return got == wanted || update && same >= settledPolls
	})
	return got
}

// What differs from one time to the next, and what the page has for it.
var varying = []struct {
	what *regexp.Regexp
	with string
}{
	// client-go logs that a watch ended if kubectl, which has seen enough, ends it while an event is read.
	{regexp.MustCompile(`(?m)^[IW]\d{4} .* reflector\.go:\d+\] .*context canceled.*\n`), ""},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-01-02T03:04:05Z"},
	{regexp.MustCompile(`\b[1-9]\d* syncs?,`), "12 syncs,"},
	{regexp.MustCompile(`, \d+ waiting to be synced`), ""},
	{regexp.MustCompile(`, [1-9]\d* failed( \(as of|\.)`), ", 3 failed$1"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}\b`), "15:04:05.000"},
	{regexp.MustCompile(`\b\d+ calls?,? half of them within \d+ ms, 99 of 100 within \d+ ms`), "12 calls, half of them within 3 ms, 99 of 100 within 9 ms"},
	{regexp.MustCompile(`\b\d+ calls?\b`), "12 calls"},
	{regexp.MustCompile(`within \d+ ms`), "within 5 ms"},
	{regexp.MustCompile(`\b(\d+m)?\d+(m|s|ms) ago\b`), "5s ago"},
	{regexp.MustCompile(`( ago +)[0-9.]+m?s\b`), "${1}12ms"},
	{regexp.MustCompile(`(ResyncRequested +)\S+( +)\S+`), "${1}0s${2}5ms"},
	{regexp.MustCompile(`\bin \d+\.\d+s\b`), "in 0.001s"},
	{regexp.MustCompile(`(replicasets\.apps/example-)[0-9a-z]+`), "${1}7c5b6d9f8"},
	{regexp.MustCompile(`(endpointslices\.discovery\.k8s\.io/example-)[0-9a-z]+`), "${1}h8r5z"},
	{regexp.MustCompile(`(\bControllerRevision: [a-z.]+-)[0-9a-f]{40}\b`), "${1}0123456789abcdef0123456789abcdef01234567"},
	{regexp.MustCompile(`(?m)^(Plugin|Cluster): v\S+$`), "$1: v1.2.3"},
	{regexp.MustCompile(`(The kube-apiserver at https://)127\.0\.0\.1:\d+ `), "${1}192.0.2.1:6443 "},
}

// pod is a Pod of a Deployment.
var pod = regexp.MustCompile(`pods/example-[0-9a-z]+-[0-9a-z]+`)

// numbered gives each Pod of a Deployment a name of its own that is the same each time, in the order in which they are printed.
func numbered(printed string) string {
	names := map[string]string{}
	return pod.ReplaceAllStringFunc(printed, func(name string) string {
		if names[name] == "" {
			names[name] = fmt.Sprintf("pods/example-7c5b6d9f8-x2k4%d", len(names)+1)
		}
		return names[name]
	})
}

// normal returns what was printed without what differs each time, and without spaces at the ends of lines.
func normal(printed string) string {
	for _, v := range varying {
		printed = v.what.ReplaceAllString(printed, v.with)
	}
	printed = numbered(printed)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(printed), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	printed = strings.Join(lines, "\n")
	if printed == "" {
		return ""
	}
	switch {
	case strings.HasPrefix(printed, "NAME "):
		if strings.HasSuffix(lines[0], " AGE") {
			for i := range lines[1:] {
				lines[i+1] = age.ReplaceAllString(lines[i+1], "5s")
			}
		}
		return aligned(lines, first)
	case strings.HasPrefix(printed, "TIME "):
		return aligned(lines, ago)
	}
	return printed + "\n"
}

// age is the last cell of a row.
var age = regexp.MustCompile(`\S+$`)

// first is the first cell of a row of a tree, whose lines may stand apart.
var (
	first = regexp.MustCompile(`^([ │├└─]*\S+)\s+(.*)$`)
	// ago is the first cell of a row of syncs.
	ago = regexp.MustCompile(`^(TIME|15:04:05\.000)\s+(.*)$`)
	gap = regexp.MustCompile(`\s{3,}`)
)

// aligned writes a table with the widths of what it holds now.
func aligned(lines []string, first *regexp.Regexp) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, line := range lines {
		if match := first.FindStringSubmatch(line); match != nil {
			line = match[1] + "\t" + gap.ReplaceAllString(match[2], "\t")
		}
		_, _ = w.Write([]byte(line + "\n")) // It writes to memory.
	}
	_ = w.Flush()
	return b.String()
}
