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

package process

import (
	"bytes"
	"os"
)

// A lineWriter copies to a file, and sends the first line that is wanted. It is used by one goroutine, that of exec.
type lineWriter struct {
	file   *os.File
	wanted func(string) bool
	found  chan<- string
	line   bytes.Buffer
}

// Write implements io.Writer.
func (w *lineWriter) Write(b []byte) (int, error) {
	for _, c := range b {
		if w.wanted == nil {
			break
		}
		if c != '\n' {
			w.line.WriteByte(c)
			continue
		}
		if s := w.line.String(); w.wanted(s) {
			w.found <- s
			w.wanted = nil
		}
		w.line.Reset()
	}
	return w.file.Write(b)
}
