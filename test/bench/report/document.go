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
	"fmt"
	"os"
	"strings"
)

// Replace puts a text between the markers of a document that have the name.
func Replace(file, name, text string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	replaced, err := replace(string(content), name, text)
	if err != nil {
		return fmt.Errorf("writing to %s: %w", file, err)
	}
	if err := os.WriteFile(file, []byte(replaced), 0o644); err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	return nil
}

func replace(content, name, text string) (string, error) {
	begin, end := "<!-- begin "+name+": written by make bench -->", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(content, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the markers %q and %q are missing", begin, end)
	}
	return before + begin + "\n\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}
