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
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
var repeatable = regexp.MustCompile(`^(kubectl (-n \S+ )?(metacontroller (status|tree|version|parents|plan|syncs|explain-loop)|get|rollout|wait|events)|metacontroller-apiserver preflight) `)

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
