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

package firsthour

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What differs from one time to the next.
var (
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	uid       = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	event     = regexp.MustCompile(`^\S+(?: \(x\d+ over \S+\))?\s{2,}(Normal|Warning)\s+(\S+)\s+(\S+)\s+(.*)$`)
	combined  = regexp.MustCompile(`^\(combined from similar events\): `)
	// begun is the start of a line of kubectl describe that says something else.
	begun = regexp.MustCompile(`^\s*(Last Transition Time|Message|Observed Generation|Reason|Status|Type):\s*(.*)$`)
)

// normal returns a text without what differs each time. The addresses of hooks become numbered ones.
func normal(addresses []string, text string) string {
	for i, address := range addresses {
		text = strings.ReplaceAll(text, address, fmt.Sprintf("127.0.0.1:%d", 8080+i))
	}
	text = timestamp.ReplaceAllString(text, "2026-01-02T03:04:05Z")
	text = uid.ReplaceAllString(text, "00000000-0000-0000-0000-000000000000")
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

// table returns a table of kubectl get without the columns of counts and ages, of which no cell is empty.
func table(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	at, columns := strings.Index(lines[0], "SYNCED"), 3 // FAILING and AGE are next to it.
	if at < 0 {
		at, columns = strings.Index(lines[0], "AGE"), 1
	}
	if at < 0 || !strings.HasPrefix(lines[0], "NAME") {
		return text
	}
	var rows []string
	for _, line := range lines {
		before, after := line, ""
		if len(line) > at {
			before, after = line[:at], line[at:]
			for range columns {
				_, after, _ = strings.Cut(after, " ")
				after = strings.TrimSpace(after)
			}
		}
		rows = append(rows, strings.TrimRight(before+after, " "))
	}
	return strings.Join(rows, "\n")
}

// events returns the events of kubectl events, each once, without ages and counts, in an order of their own.
func events(text string) string {
	var list []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if match := event.FindStringSubmatch(line); match != nil {
			list = append(list, fmt.Sprintf("%s   %s   %s   %s", match[1], match[2], match[3], combined.ReplaceAllString(match[4], "")))
		} else if len(list) > 0 {
			list[len(list)-1] += "\n" + line
		}
	}
	slices.Sort(list)
	return strings.Join(append([]string{"TYPE      REASON      OBJECT      MESSAGE"}, slices.Compact(list)...), "\n")
}

// wrong reports whether a condition says that something is wrong, or lasts.
func wrong(condition map[string]string) bool {
	if condition["Type"] == "Progressing" {
		return condition["Status"] == "True" && condition["Reason"] != "FirstSync"
	}
	return condition["Status"] == "False"
}

// conditions returns the conditions of kubectl describe in which something is wrong.
func conditions(text string) string {
	_, text, _ = strings.Cut(text, "  Conditions:\n")
	var ready, shown []string
	now := map[string]string{}
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		match := begun.FindStringSubmatch(line)
		if match == nil {
			if !strings.HasPrefix(line, "      ") {
				break
			}
			now[last] += " " + strings.TrimSpace(line)
			continue
		}
		last = match[1]
		now[last] = match[2]
		if last != "Type" {
			continue
		}
		if wrong(now) {
			text := fmt.Sprintf("    Message:  %s\n    Reason:   %s\n    Status:   %s\n    Type:     %s",
				now["Message"], now["Reason"], now["Status"], now["Type"])
			if now["Type"] == "Ready" {
				ready = append(ready, text)
			} else {
				shown = append(shown, text)
			}
		}
		now = map[string]string{}
	}
	slices.Sort(shown)
	if shown = append(ready, shown...); len(shown) == 0 {
		return "  Conditions: nothing is wrong"
	}
	return "  Conditions:\n" + strings.Join(shown, "\n")
}
