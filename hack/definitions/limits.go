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
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// limits has, by types and names of fields in JSON, what tags such as +k8s:maxItems=256 say of the field.
type limits map[string]map[string]node

// fieldTags are the tags, and what schemas call them.
var fieldTags = map[string]string{
	"maxItems": "maxItems", "maxLength": "maxLength", "maxProperties": "maxProperties", "minimum": "minimum", "maximum": "maximum",
}

// readLimits reads those of the types in a folder.
func readLimits(folder string) (limits, error) {
	files, err := filepath.Glob(filepath.Join(folder, "types_*.go"))
	if err != nil {
		return nil, err
	}
	all := limits{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("reading the types: %w", err)
		}
		for _, declared := range parsed.Decls {
			general, ok := declared.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, each := range general.Specs {
				if t, ok := each.(*ast.TypeSpec); ok {
					if structure, ok := t.Type.(*ast.StructType); ok {
						all[t.Name.Name] = ofFields(structure)
					}
				}
			}
		}
	}
	all.embed()
	return all, nil
}

// embedded marks the type of an embedded field, whose fields are those of the type around it.
const embedded = ",embedded"

func ofFields(structure *ast.StructType) map[string]node {
	fields := map[string]node{}
	for _, field := range structure.Fields.List {
		name := ""
		if field.Tag != nil {
			name, _, _ = strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
		}
		if len(field.Names) == 0 {
			if of, ok := field.Type.(*ast.Ident); ok && name == "" {
				fields[of.Name+embedded] = nil
			}
			continue
		}
		if declared := ofTags(field.Doc); len(declared) > 0 {
			fields[name] = declared
		}
	}
	return fields
}

func ofTags(doc *ast.CommentGroup) node {
	declared := node{}
	if doc == nil {
		return declared
	}
	for _, line := range doc.List {
		tag, ok := strings.CutPrefix(line.Text, "// +k8s:")
		if !ok {
			continue
		}
		to := declared
		if inner, each := strings.CutPrefix(tag, "eachVal=+k8s:"); each {
			tag, to = inner, node{}
			declared["items"] = to
		}
		key, value, _ := strings.Cut(tag, "=")
		if name := fieldTags[key]; name != "" {
			if n, err := strconv.Atoi(value); err == nil {
				to[name] = n
			}
		}
	}
	return declared
}

// embed gives types the limits of those that they embed.
func (l limits) embed() {
	for _, fields := range l {
		for name := range fields {
			if of, ok := strings.CutSuffix(name, embedded); ok {
				maps.Copy(fields, l[of])
			}
		}
	}
}

// apply adds to the schema of a type what the type declares.
func (l limits) apply(of string, schema node) {
	properties, _ := schema["properties"].(node)
	for name, declared := range l[of] {
		if property, ok := properties[name].(node); ok {
			merge(property, declared)
		}
	}
}

func merge(to, from node) {
	for key, value := range from {
		inner, isNode := value.(node)
		target, has := to[key].(node)
		if isNode && has {
			merge(target, inner)
		} else if !isNode {
			to[key] = value
		}
	}
}
