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

package lint

import (
	"bytes"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

var (
	// fieldOf finds the path of the field with which a message begins, or which it quotes as unknown or duplicate.
	fieldOf = regexp.MustCompile(`^(?:(?:unknown|duplicate) field ")?([A-Za-z][^\s:"]*)`)
	// stepOf finds the names and indexes of a path.
	stepOf = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)
	// malformedAt finds the line at which text is no YAML.
	malformedAt = regexp.MustCompile(`yaml: line (\d+):`)
)

// locate gives findings in the documents of files their lines.
func locate(sources []source, findings []finding) {
	for i := range findings {
		findings[i].Line = 1
	}
	for _, s := range sources {
		documents, err := controllerobject.Documents(bytes.NewReader(s.text))
		if err != nil { // Which is a finding, of the first line.
			continue
		}
		starts := s.starts(documents)
		for i := range findings {
			if f := &findings[i]; f.File == s.name && f.Document > 0 && f.Document <= len(documents) {
				f.Line = starts[f.Document-1] + lineOf(documents[f.Document-1], f.Message) - 1
			}
		}
	}
}

// starts returns the lines of a file, counted from 1, at which its documents begin.
func (s source) starts(documents [][]byte) []int {
	lines, from := make([]int, len(documents)), 0
	for i, document := range documents {
		text := bytes.TrimRight(document, "\n")
		if place := bytes.Index(s.text[from:], text); place >= 0 {
			from += place
			lines[i] = 1 + bytes.Count(s.text[:from], []byte("\n"))
			from += len(text)
		} else { // Its ends of lines are not those of the file.
			lines[i] = 1
		}
	}
	return lines
}

// lineOf returns the line of a document, counted from 1, that a message is about: that of the field, or of the last field on the way that is there.
func lineOf(document []byte, message string) int {
	if found := malformedAt.FindStringSubmatch(message); found != nil {
		line, _ := strconv.Atoi(found[1]) // It is a number.
		return line
	}
	var root yaml.Node
	if yaml.Unmarshal(document, &root) != nil || len(root.Content) == 0 {
		return 1
	}
	node := root.Content[0]
	line := node.Line
	if found := fieldOf.FindStringSubmatch(message); found != nil {
		for _, step := range stepOf.FindAllString(found[1], -1) {
			var at int
			if node, at = below(node, step); node == nil {
				break
			}
			line = at
		}
	}
	return line
}

// below returns the value at a step of a path, and its line. Of a field that is there twice it is the second one.
func below(node *yaml.Node, step string) (value *yaml.Node, line int) {
	if step[0] == '[' {
		step = step[1 : len(step)-1]
	}
	switch node.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				value, line = node.Content[i+1], node.Content[i].Line
			}
		}
	case yaml.DocumentNode, yaml.ScalarNode, yaml.AliasNode:
	}
	return value, line
}
