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

package object

import (
	"fmt"
	"strconv"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// ParseOptions say how an object is taken in.
type ParseOptions struct {
	// APIVersion and Kind are added to an object that does not name them, as elements of lists of built-in kinds do not.
	APIVersion, Kind string
	// KeepManagedFields keeps metadata.managedFields in the JSON.
	KeepManagedFields bool
}

// Parse takes in one object. The data may be reused by the caller afterwards. It fails for what is not the JSON of an
// object with metadata; it does not check the parts of the JSON that it does not need.
func Parse(data []byte, p ParseOptions) (*Object, error) {
	raw, err := compact(data, p)
	if err != nil {
		return nil, fmt.Errorf("parsing an object: %w", err)
	}
	o := &Object{raw: raw}
	if err := o.read(); err != nil {
		return nil, fmt.Errorf("parsing an object: %w", err)
	}
	return o, nil
}

// compact copies data without managedFields, and with type information where it was missing.
func compact(data []byte, p ParseOptions) ([]byte, error) {
	s := scanner{data: data}
	hasVersion, hasKind := false, false
	cut := span{}
	err := s.members(func(key []byte) (bool, error) {
		switch string(key) {
		case "apiVersion":
			hasVersion = true
		case "kind":
			hasKind = true
		case "metadata":
			if p.KeepManagedFields || s.peek() != '{' {
				return false, nil
			}
			var err error
			cut, err = s.managedFields()
			return true, err
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	end := s.pos
	if s.peek() != 0 {
		return nil, errSyntax
	}
	open := 0
	for data[open] != '{' {
		open++
	}
	prefix := ""
	if !hasVersion && p.APIVersion != "" {
		prefix += `"apiVersion":` + strconv.Quote(p.APIVersion) + `,`
	}
	if !hasKind && p.Kind != "" {
		prefix += `"kind":` + strconv.Quote(p.Kind) + `,`
	}
	raw := make([]byte, 0, end-open-(cut.end-cut.start)+len(prefix))
	raw = append(raw, '{')
	raw = append(raw, prefix...)
	if cut == (span{}) {
		return append(raw, data[open+1:end]...), nil
	}
	raw = append(raw, data[open+1:cut.start]...)
	return append(raw, data[cut.end:end]...), nil
}

// managedFields consumes an object of metadata and returns where managedFields stands in it, with the comma that must go
// with it.
func (s *scanner) managedFields() (span, error) {
	cut, start, comma := span{}, s.pos+1, 0
	err := s.members(func(key []byte) (bool, error) {
		if string(key) != "managedFields" {
			// The next member starts after this value; remember where this one did not end yet.
			_, err := s.value()
			comma = s.pos
			start = s.pos
			return true, err
		}
		_, err := s.value()
		if err != nil {
			return true, err
		}
		cut = span{start, s.pos}
		if comma == 0 && s.peek() == ',' {
			// The first member: the comma after it goes.
			cut.end = s.pos + 1
		}
		comma, start = s.pos, s.pos
		return true, nil
	})
	return cut, err
}

// read fills the metadata from raw. Strings share raw's memory, except those that many objects have in common.
func (o *Object) read() error {
	s := scanner{data: o.raw}
	return s.members(func(key []byte) (bool, error) {
		var err error
		switch string(key) {
		case "apiVersion":
			o.apiVersion, err = s.shared()
		case "kind":
			o.kind, err = s.shared()
		case "metadata":
			if s.null() {
				return true, nil
			}
			err = o.readMetadata(&s)
		default:
			return false, nil
		}
		return true, err
	})
}

func (o *Object) readMetadata(s *scanner) error {
	return s.members(func(key []byte) (bool, error) {
		var err error
		switch string(key) {
		case "name":
			o.name, err = s.text()
		case "namespace":
			o.namespace, err = s.shared()
		case "uid":
			var uid string
			uid, err = s.text()
			o.uid = types.UID(uid)
		case "resourceVersion":
			o.resourceVersion, err = s.text()
		case "deletionTimestamp":
			o.deletion, err = s.text()
		case "generation":
			o.generation, err = s.integer()
		case "labels":
			o.labels, err = textMap(s, true)
		case "annotations":
			start := s.pos
			if s.null() {
				return true, nil
			}
			if s.peek() != '{' {
				return true, errSyntax
			}
			_, err = s.value()
			o.annotations = span{start, s.pos}
		case "finalizers":
			o.finalizers, err = s.texts()
		case "ownerReferences":
			o.owners, err = s.owners()
		default:
			return false, nil
		}
		return true, err
	})
}

// shared reads a string that many objects have in common, and keeps one copy of it.
func (s *scanner) shared() (string, error) {
	text, err := s.text()
	if err != nil || text == "" {
		return "", err
	}
	return unique.Make(text).Value(), nil
}

func (s *scanner) integer() (int64, error) {
	if s.null() {
		return 0, nil
	}
	digits, err := s.value()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, errSyntax
	}
	return n, nil
}

func (s *scanner) boolean() (bool, error) {
	word, err := s.value()
	return string(word) == "true", err
}

func (s *scanner) texts() ([]string, error) {
	if s.null() {
		return nil, nil
	}
	var result []string
	err := s.elements(func() error {
		text, err := s.shared()
		result = append(result, text)
		return err
	})
	return result, err
}

// textMap reads an object of strings. With share, keys are kept once for all objects.
func textMap(s *scanner, share bool) (map[string]string, error) {
	if s.null() {
		return nil, nil
	}
	var result map[string]string
	err := s.members(func(key []byte) (bool, error) {
		name, err := plain(key)
		if err != nil {
			return true, err
		}
		if share && name != "" {
			name = unique.Make(name).Value()
		}
		value, err := s.text()
		if err != nil {
			return true, err
		}
		if result == nil {
			result = make(map[string]string, 4)
		}
		result[name] = value
		return true, nil
	})
	return result, err
}

func (s *scanner) owners() ([]OwnerReference, error) {
	if s.null() {
		return nil, nil
	}
	var result []OwnerReference
	err := s.elements(func() error {
		var r OwnerReference
		err := s.members(func(key []byte) (bool, error) {
			var err error
			switch string(key) {
			case "apiVersion":
				r.APIVersion, err = s.shared()
			case "kind":
				r.Kind, err = s.shared()
			case "name":
				r.Name, err = s.text()
			case "uid":
				var uid string
				uid, err = s.text()
				r.UID = types.UID(uid)
			case "controller":
				r.Controller, err = s.boolean()
			case "blockOwnerDeletion":
				r.BlockOwnerDeletion, err = s.boolean()
			default:
				return false, nil
			}
			return true, err
		})
		result = append(result, r)
		return err
	})
	return result, err
}
