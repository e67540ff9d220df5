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

package inline

import (
	"errors"
	"fmt"
	"strings"
)

// part is a piece of a text: literal, or the source of an expression.
type part struct {
	source     string
	expression bool
}

// split finds the expressions in a text. $${ stands for ${.
func split(text string) ([]part, error) {
	var parts []part
	literal := strings.Builder{}
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, part{source: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(text); {
		switch {
		case strings.HasPrefix(text[i:], "$${"):
			literal.WriteString("${")
			i += len("$${")
		case strings.HasPrefix(text[i:], "${"):
			length := expressionLength(text[i+2:])
			if length < 0 {
				return nil, fmt.Errorf("the expression that begins at character %d has no closing brace; write $${ for a literal ${", i+1)
			}
			flush()
			source := text[i+2 : i+2+length]
			if strings.TrimSpace(source) == "" {
				return nil, errors.New("the expression is empty; write $${ for a literal ${")
			}
			parts = append(parts, part{source: source, expression: true})
			i += length + len("${}")
		default:
			literal.WriteByte(text[i])
			i++
		}
	}
	flush()
	return parts, nil
}

// expressionLength returns where the brace is that ends an expression, and -1 when there is none. Braces in strings and comments do
// not count.
func expressionLength(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '/':
			if strings.HasPrefix(text[i:], "//") {
				i += lineLength(text[i:]) - 1
			}
		case '"', '\'', '`':
			length := stringLength(text[i:], i > 0 && isRaw(text, i))
			if length < 0 {
				return -1
			}
			i += length - 1
		}
	}
	return -1
}

func lineLength(text string) int {
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		return end
	}
	return len(text)
}

// isRaw reports whether the quote at i begins a raw string: r'…', R'…', br'…'.
func isRaw(text string, i int) bool {
	if text[i-1] != 'r' && text[i-1] != 'R' {
		return false
	}
	return i < 2 || !isWord(text[i-2]) || (text[i-2] == 'b' || text[i-2] == 'B') && (i < 3 || !isWord(text[i-3]))
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// stringLength returns the length of the quoted string with which text begins, and -1 when it does not end.
func stringLength(text string, raw bool) int {
	quote := text[:1]
	if triple := strings.Repeat(quote, 3); quote != "`" && strings.HasPrefix(text, triple) {
		quote = triple
	}
	for i := len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && !raw && quote != "`":
			i++
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		}
	}
	return -1
}

// bare returns the source of an expression that may be written with or without ${…}.
func bare(text string) string {
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "${") {
		if parts, err := split(trimmed); err == nil && len(parts) == 1 && parts[0].expression {
			return parts[0].source
		}
	}
	return text
}
