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

package outputformat

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Formats of documents.
const (
	JSON = "json"
	YAML = "yaml"
)

// AddDocument adds --output to the flags of a command that prints what is no object of the API as a document. The command prints the formats own itself.
func AddDocument(flags *pflag.FlagSet, format *string, own ...string) {
	flags.StringVarP(format, "output", "o", "", "output format: "+documents(own))
}

// CheckDocument returns an error for a format that is none of those.
func CheckDocument(format string, own ...string) error {
	if format == "" || format == JSON || format == YAML || slices.Contains(own, format) {
		return nil
	}
	return fmt.Errorf("--output: %q is not known: use %s", format, documents(own))
}

func documents(own []string) string {
	return strings.Join(append(slices.Clone(own), JSON), ", ") + " or " + YAML
}

// PrintDocument prints a document as JSON or YAML.
func PrintDocument(out io.Writer, format string, document any) error {
	if format == YAML {
		text, err := yaml.Marshal(document)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}
