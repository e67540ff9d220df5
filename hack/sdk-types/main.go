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

// Command sdk-types writes the types of hook requests and responses for the modules under artifacts/sdk, from the published schema of
// the hook protocol: Python, TypeScript and Go. Equal input gives equal bytes.
//
// Usage, from the root of the repository: go run ./hack/sdk-types [-schema docs/reference/hook-schema] [-output artifacts/sdk].
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	schema := flag.String("schema", filepath.Join("docs", "reference", "hook-schema"), "folder of the schema")
	output := flag.String("output", filepath.Join("artifacts", "sdk"), "folder of the modules")
	license := flag.String("license", filepath.Join("hack", "boilerplate.go.txt"), "text at the beginning of a Go file")
	flag.Parse()
	if err := run(*schema, *output, *license); err != nil {
		fmt.Fprintln(os.Stderr, "writing the types of hooks:", err)
		os.Exit(1)
	}
}

func run(schema, output, license string) error {
	records, err := read(schema)
	if err != nil {
		return err
	}
	header, err := os.ReadFile(license)
	if err != nil {
		return fmt.Errorf("reading the license: %w", err)
	}
	inGo, err := golang(string(header), records)
	if err != nil {
		return err
	}
	for file, text := range map[string][]byte{
		"python/metacontroller_hook/types.py": []byte(python(records)),
		"javascript/types.d.ts":               []byte(typescript(records)),
		"go/metacontroller/types.go":          inGo,
	} {
		path := filepath.Join(output, filepath.FromSlash(file))
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // source code, for everyone
			return fmt.Errorf("writing types: %w", err)
		}
	}
	return nil
}
