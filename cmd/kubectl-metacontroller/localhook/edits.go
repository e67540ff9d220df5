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

package localhook

import (
	"bytes"
	"os"
	"path/filepath"
)

// maxRepeats is how many uses in a row may follow from edits during the one before: a start or a call may write another text each time.
const maxRepeats = 3

// Edits tells what the author of a hook changed while it was started and called from what that itself writes, such as the program that the
// start builds, or the notes that the hook keeps, after which it would be started again for ever. Create it with NewEdits. It is for one
// goroutine.
type Edits struct {
	// texts are what is in files that changed.
	texts map[string]string
	// authored are files that changed while nothing was written, and written are those that uses write.
	authored, written map[string]bool
	// repeats counts the uses in a row that follow from edits during uses.
	repeats int
}

// NewEdits returns one that knows of no file.
func NewEdits() *Edits {
	return &Edits{texts: map[string]string{}, authored: map[string]bool{}, written: map[string]bool{}}
}

// DuringUse returns the edits among the files in a folder that changed while the hook was started or called, which is to be repeated for them.
// What is no text was built, and what is gone was needed for a moment; a new folder may hold texts. What a repetition leaves as it was is
// written by uses.
func (e *Edits) DuringUse(folder string, names []string) []string {
	var edits []string
	for _, name := range names {
		path := filepath.Join(folder, name)
		text, same := e.read(path)
		if !e.authored[path] && (same || e.repeats >= maxRepeats) {
			e.written[path] = true
		}
		if text && !same && !e.written[path] {
			edits = append(edits, name)
		}
	}
	if len(edits) > 0 {
		e.repeats++
	}
	return edits
}

// ByAuthor notes that files in a folder changed at another time, so that no use writes them.
func (e *Edits) ByAuthor(folder string, names []string) {
	e.repeats = 0
	for _, name := range names {
		path := filepath.Join(folder, name)
		e.read(path)
		e.authored[path] = true
		delete(e.written, path)
	}
}

// read remembers what is in a file, and tells whether that is a text, or a folder, and the same as before.
func (e *Edits) read(path string) (text, same bool) {
	content, err := os.ReadFile(path)
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		content, err = nil, nil
	}
	if err != nil || bytes.IndexByte(content, 0) >= 0 {
		return false, false
	}
	before, ok := e.texts[path]
	e.texts[path] = string(content)
	return true, ok && before == string(content)
}
