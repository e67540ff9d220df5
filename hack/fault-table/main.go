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

// Command fault-table writes the table of faults into a document.
//
//	go run ./hack/fault-table FIGURES DOCUMENT
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fault-table FIGURES DOCUMENT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "fault-table:", err)
		os.Exit(1)
	}
}

func run(figures, document string) error {
	measured, err := os.ReadFile(figures)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	after, err := report.Write(before, bytes.NewReader(measured))
	if err != nil {
		return err
	}
	if bytes.Equal(before, after) {
		return nil
	}
	return os.WriteFile(document, after, 0o644) //nolint:gosec // A document, for everybody to read.
}
