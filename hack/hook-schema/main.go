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

// Command hook-schema writes the schema of the hook protocol from the Go types of pkg/hook: a JSON Schema (draft 2020-12) of
// each request and response, and an OpenAPI 3.1 document of all of them. The words come from the comments of the types, and
// the schemas of controllers and selectors from the API's own OpenAPI definitions. Equal input gives equal bytes.
//
// Usage, from the root of the repository: go run ./hack/hook-schema [-output docs/reference/hook-schema].
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	output := flag.String("output", filepath.Join("docs", "reference", "hook-schema"), "folder to write to")
	source := flag.String("source", filepath.Join("pkg", "hook"), "folder of the Go types")
	flag.Parse()
	if err := run(*source, *output); err != nil {
		fmt.Fprintln(os.Stderr, "writing the schema of the hook protocol:", err)
		os.Exit(1)
	}
}

func run(source, output string) error {
	files, err := generate(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil { //nolint:gosec // documentation, for everyone
		return err
	}
	// A document that is not generated any more must not stay.
	old, err := filepath.Glob(filepath.Join(output, "*.json"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, ok := files[filepath.Base(name)]; !ok {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(output, name), files[name], 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}
