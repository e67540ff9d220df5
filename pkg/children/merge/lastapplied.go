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

package merge

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/scratch"
)

// Annotation is where a child keeps what was applied to it last (docs/reference/contract.md#s12.1).
const Annotation = "metacontroller.k8s.io/last-applied-configuration"

// hashed marks the hash that stands for a value of a Secret.
const hashed = "sha256:"

// Encode returns the text of the annotation for a desired object: its JSON with sorted keys. For a Secret it has hashes
// in place of the values, which must not be found outside of data (docs/reference/compatibility.md#d12).
func Encode(desired map[string]any) (string, error) {
	if IsSecret(desired) {
		redacted := maps.Clone(desired)
		for _, field := range []string{"data", "stringData"} {
			if values, ok := desired[field].(map[string]any); ok {
				redacted[field] = hashValues(values)
			}
		}
		desired = redacted
	}
	buffer := scratch.Borrow()
	defer scratch.Return(buffer)
	if err := json.NewEncoder(buffer).Encode(desired); err != nil {
		return "", fmt.Errorf("encoding the configuration to be applied: %w", err)
	}
	// The encoder ends with a line break.
	return string(buffer.Bytes()[:buffer.Len()-1]), nil
}

// Decode returns the object in the text of the annotation. Text that is empty or damaged counts as nothing applied.
func Decode(text string) map[string]any {
	if text == "" {
		return nil
	}
	var last map[string]any
	if err := utiljson.Unmarshal([]byte(text), &last); err != nil {
		return nil
	}
	return last
}

// IsSecret reports whether a desired object is a Secret.
func IsSecret(desired map[string]any) bool {
	return desired["apiVersion"] == "v1" && desired["kind"] == "Secret"
}

// Observable returns a desired object in the form in which the API server shows it: the stringData of a Secret, which
// can only be written, becomes data, and its base64 has no line breaks. Other objects are returned as they are.
func Observable(desired map[string]any) map[string]any {
	if !IsSecret(desired) {
		return desired
	}
	values, _ := desired["stringData"].(map[string]any)
	written, _ := desired["data"].(map[string]any)
	data := make(map[string]any, len(written)+len(values))
	for name, value := range written {
		if encoded, ok := value.(string); ok {
			value = unwrapped.Replace(encoded)
		}
		data[name] = value
	}
	for name, value := range values {
		if plain, ok := value.(string); ok {
			data[name] = base64.StdEncoding.EncodeToString([]byte(plain))
		}
	}
	shown := maps.Clone(desired)
	delete(shown, "stringData")
	if len(data) > 0 {
		shown["data"] = data
	}
	return shown
}

// unwrapped returns base64 without line breaks, which API servers take and do not keep.
var unwrapped = strings.NewReplacer("\n", "", "\r", "")

func hashValues(values map[string]any) map[string]any {
	result := make(map[string]any, len(values))
	for name, value := range values {
		if value == nil {
			result[name] = nil
			continue
		}
		sum := sha256.Sum256([]byte(stringify(value)))
		result[name] = hashed + hex.EncodeToString(sum[:16])
	}
	return result
}
