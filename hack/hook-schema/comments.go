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
	"errors"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// comments are the comments of types and of fields, by "Type" and "Type.Field".
type comments map[string]string

func readComments(folder string) (comments, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the Go types: %w", err)
	}
	found := comments{}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, name), nil, parser.ParseComments)
			if err != nil {
				return nil, fmt.Errorf("parsing the Go types: %w", err)
			}
			found.read(file)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no Go types in " + folder)
	}
	return found, nil
}

func (c comments) read(file *ast.File) {
	for _, declaration := range file.Decls {
		types, ok := declaration.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			spec, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			text := spec.Doc.Text()
			if text == "" {
				text = types.Doc.Text()
			}
			c[spec.Name.Name] = plain(text)
			structure, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range structure.Fields.List {
				for _, name := range field.Names {
					c[spec.Name.Name+"."+name.Name] = plain(field.Doc.Text())
				}
			}
		}
	}
}

// references to Go sections such as "(docs/reference/contract.md#s9)" and links to Go names mean nothing outside of the source.
var (
	contractReference = regexp.MustCompile(` \(docs/reference/(?:contract|compatibility)\.md#[^)]*\)`)
	docLink           = regexp.MustCompile(`\[([A-Za-z.]+)\]`)
	paragraphs        = regexp.MustCompile(`\n{2,}`)
)

// plain turns a doc comment into text: paragraphs on one line each, without links.
func plain(text string) string {
	parsed := new(comment.Parser).Parse(contractReference.ReplaceAllString(text, ""))
	printer := comment.Printer{TextWidth: 1 << 20}
	flat := docLink.ReplaceAllString(strings.TrimSpace(string(printer.Text(parsed))), "$1")
	return paragraphs.ReplaceAllString(flat, "\n")
}

// field returns the words of a field, with its JSON name in place of the Go one.
func (c comments) field(goType, goName, jsonName string) string {
	text := c[goType+"."+goName]
	if rest, ok := strings.CutPrefix(text, goName); ok && strings.HasPrefix(strings.TrimLeft(rest, ","), " ") {
		return jsonName + rest
	}
	return text
}
