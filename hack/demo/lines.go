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

package main

import (
	"bytes"
	"io"
	"sync"
)

// lines is what several goroutines print to, whole lines at a time.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

// prefixed prints each line after a prefix. Its end is lost if it is no line.
type prefixed struct {
	prefix string
	out    io.Writer

	mu   sync.Mutex
	rest []byte
}

// Write implements io.Writer.
func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		end := bytes.IndexByte(p.rest, '\n')
		if end < 0 {
			return len(b), nil
		}
		if _, err := p.out.Write(append([]byte(p.prefix), p.rest[:end+1]...)); err != nil {
			return 0, err
		}
		p.rest = p.rest[end+1:]
	}
}
