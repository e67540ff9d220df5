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
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
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

const (
	// tracebackBegins is the first line of a traceback of Python. The first line after it that is not indented names the exception, and ends it.
	tracebackBegins = "Traceback (most recent call last):\n"
	// quietTime is how long it is waited for more of the same traceback before it is printed how often it came.
	quietTime = 2 * time.Second
)

// prefixed prints each line after a prefix. Its end is lost if it is no line. A traceback is printed once, and then how often it came again:
// a sync that fails is retried.
type prefixed struct {
	prefix string
	out    io.Writer

	mu   sync.Mutex
	rest []byte
	// traceback is the beginning of one, and seen are those that were printed.
	traceback string
	seen      map[string]bool
	// repeated counts the tracebacks that were left out since it was printed how many; exception is the last line of the latest one.
	repeated  int
	exception string
	quiet     *time.Timer
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
		if err := p.line(string(p.rest[:end+1])); err != nil {
			return 0, err
		}
		p.rest = p.rest[end+1:]
	}
}

// line takes the next line.
func (p *prefixed) line(line string) error {
	if p.traceback == "" && line != tracebackBegins {
		return p.print(line)
	}
	p.traceback += line
	if line == tracebackBegins || strings.HasPrefix(line, " ") {
		return nil
	}
	whole := p.traceback
	p.traceback = ""
	if !p.seen[whole] {
		if p.seen == nil {
			p.seen = map[string]bool{}
		}
		p.seen[whole] = true
		return p.print(whole)
	}
	p.repeated++
	p.exception = strings.TrimSpace(line)
	if p.quiet == nil {
		p.quiet = time.AfterFunc(quietTime, p.tellRepeated)
	} else {
		p.quiet.Reset(quietTime)
	}
	return nil
}

func (p *prefixed) print(text string) error {
	_, err := io.WriteString(p.out, p.prefix+strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+p.prefix)+"\n")
	return err
}

// tellRepeated prints how many tracebacks were left out.
func (p *prefixed) tellRepeated() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.repeated > 0 {
		times := "again"
		if p.repeated > 1 {
			times = fmt.Sprintf("%d times", p.repeated)
		}
		_ = p.print(fmt.Sprintf("%s: the same %s", p.exception, times)) // Nobody would read the error.
		p.repeated = 0
	}
}

// restart forgets which tracebacks were printed: another program begins.
func (p *prefixed) restart() {
	p.tellRepeated()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traceback, p.seen = "", nil
}
