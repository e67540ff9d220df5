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

package recording

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// The ends of the names of files.
const (
	requestEnd  = ".request.json"
	responseEnd = ".response.json"
)

// nameOf names the files of a request. What separates the parts is in no name of an object, so that no two requests have the same. The
// resource is a part for controllers that have several.
func nameOf(p v1alpha1.ParentReference, hook, revision string, several bool) string {
	var parts []string
	if several {
		parts = append(parts, p.GroupResource().String())
	}
	for _, part := range []string{p.Namespace, p.Name, revision} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return hook + "-" + strings.Join(parts, "_")
}

// hookOf is the hook to which the request of a name goes.
func hookOf(name string) string {
	hook, _, _ := strings.Cut(name, "-")
	return hook
}

// normal writes JSON in the one form that files have: indented, with sorted keys, and numbers that are the same written in the same way.
func normal(body []byte) ([]byte, error) {
	value, err := decode(body)
	if err != nil {
		return nil, err
	}
	return indented(value)
}

// decode decodes JSON, and integers without loss.
func decode(body []byte) (any, error) {
	var value any
	err := utiljson.Unmarshal(body, &value)
	return value, err
}

func indented(value any) ([]byte, error) {
	var b bytes.Buffer
	err := outputformat.PrintDocument(&b, outputformat.JSON, value)
	return b.Bytes(), err
}

// pair is a request with its response.
type pair struct {
	name              string
	request, response []byte
}

// write writes a pair into a folder, in place of one of the same name.
func (p pair) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // source code, for everyone
		return fmt.Errorf("making the folder of recorded requests: %w", err)
	}
	parts := []struct {
		end  string
		body []byte
	}{{requestEnd, p.request}, {responseEnd, p.response}}
	// Both are written before one takes the place of a former one: a request with another response would count as a change of the hook.
	for _, part := range parts {
		text, err := normal(part.body)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name+part.end, err)
		}
		file := filepath.Join(folder, p.name+part.end+unfinished)
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // as above
			return errors.Join(fmt.Errorf("recording a request: %w", err), os.RemoveAll(file))
		}
	}
	for _, part := range parts {
		file := filepath.Join(folder, p.name+part.end)
		if err := os.Rename(file+unfinished, file); err != nil {
			return fmt.Errorf("recording a request: %w", err)
		}
	}
	return nil
}

// unfinished ends the names of files that are being written.
const unfinished = ".tmp"

// read reads all pairs of a folder, in the order of their names.
func read(folder string) ([]pair, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no folder %s: record requests with 'kubectl metacontroller record CONTROLLER -o %s'", folder, folder)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for recorded requests: %w", err)
	}
	var pairs []pair
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), requestEnd)
		if !ok {
			continue
		}
		p := pair{name: name}
		if p.request, err = os.ReadFile(filepath.Join(folder, entry.Name())); err != nil {
			return nil, fmt.Errorf("reading a recorded request: %w", err)
		}
		if p.response, err = os.ReadFile(filepath.Join(folder, name+responseEnd)); err != nil {
			return nil, fmt.Errorf("reading a recorded response: %w", err)
		}
		pairs = append(pairs, p)
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%s holds no recorded request *%s: record some with 'kubectl metacontroller record CONTROLLER -o %s'", folder, requestEnd, folder)
	}
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	return pairs, nil
}
