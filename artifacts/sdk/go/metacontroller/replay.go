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

package metacontroller

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// The ends of the names of recorded files.
const (
	requestSuffix  = ".request.json"
	responseSuffix = ".response.json"
)

// hidden is what the server records in place of a value of a Secret.
const hidden = "(hidden)"

// Differences calls hooks with the requests recorded in a folder, and returns a text for each response that is not the recorded one. The
// request HOOK.request.json or HOOK-TEXT.request.json goes to the hook at /HOOK, and HOOK.response.json or HOOK-TEXT.response.json is what
// it has to return. A value of a Secret that was recorded as hidden is equal to any other one. A folder without requests is an error.
func Differences(ctx context.Context, folder string, hooks map[string]http.Handler) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*"+requestSuffix))
	if err != nil {
		return nil, fmt.Errorf("looking for recorded requests: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no recorded request *%s", folder, requestSuffix)
	}
	var texts []string
	for _, file := range files {
		text, err := difference(ctx, strings.TrimSuffix(file, requestSuffix), hooks)
		if err != nil {
			return nil, err
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// difference compares what a hook returns with one recorded pair of files.
func difference(ctx context.Context, base string, hooks map[string]http.Handler) (string, error) {
	name := filepath.Base(base)
	hook, _, _ := strings.Cut(name, "-")
	handler, ok := hooks["/"+hook]
	if !ok {
		return fmt.Sprintf("%s: there is no hook /%s", name+requestSuffix, hook), nil
	}
	body, err := os.ReadFile(base + requestSuffix)
	if err != nil {
		return "", fmt.Errorf("reading a recorded request: %w", err)
	}
	recorded, err := os.ReadFile(base + responseSuffix)
	if err != nil {
		return "", fmt.Errorf("reading a recorded response: %w", err)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodPost, "/"+hook, bytes.NewReader(body)))
	if recorder.Code != http.StatusOK {
		return fmt.Sprintf("%s: the hook returned status %d: %s", name+requestSuffix, recorder.Code, recorder.Body), nil
	}
	wanted, err := decoded(recorded)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name+responseSuffix, err)
	}
	got, err := decoded(recorder.Body.Bytes())
	if err != nil {
		return "", fmt.Errorf("reading the response of the hook: %w", err)
	}
	HideSecrets(wanted, got)
	if reflect.DeepEqual(wanted, got) {
		return "", nil
	}
	return fmt.Sprintf("%s: the hook returned\n%s\nand %s is\n%s", name+requestSuffix, indented(got), name+responseSuffix, indented(wanted)), nil
}

// decoded decodes JSON with integers as int64, which are not equal where they differ.
func decoded(body []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return withNumbers(value), nil
}

// withNumbers returns a value with an int64 in place of each number that is an integer, and a float64 of each other one.
func withNumbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			value[key] = withNumbers(field)
		}
	case []any:
		for i, element := range value {
			value[i] = withNumbers(element)
		}
	case json.Number:
		if integer, err := value.Int64(); err == nil {
			return integer
		}
		number, err := value.Float64()
		if err != nil {
			return value
		}
		if integer := int64(number); float64(integer) == number {
			return integer
		}
		return number
	}
	return value
}

func indented(value any) string {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// HideSecrets hides, in both of two responses as JSON decodes them into any, the values of Secrets that the server has hidden in one of them,
// so that they can be compared. It modifies both; what is no response is left as it is.
func HideSecrets(wanted, got any) {
	returned := secretsOf(got)
	for name, secret := range secretsOf(wanted) {
		others := valuesOf(returned[name])
		for i, values := range valuesOf(secret) {
			for key, value := range values {
				if other, ok := others[i][key]; ok && (isHidden(value) || isHidden(other)) {
					values[key], others[i][key] = hidden, hidden
				}
			}
		}
	}
}

// isHidden reports whether the server recorded that in place of a value. Values of data are in base64.
func isHidden(value any) bool {
	return value == hidden || value == base64.StdEncoding.EncodeToString([]byte(hidden))
}

// secretsOf returns the Secrets among the children or attachments of a response by namespace and name.
func secretsOf(response any) map[[2]string]map[string]any {
	secrets := map[[2]string]map[string]any{}
	fields, _ := response.(map[string]any)
	for _, field := range []string{"children", "attachments"} {
		children, _ := fields[field].([]any)
		for _, element := range children {
			child, _ := element.(map[string]any)
			if child["apiVersion"] != "v1" || child["kind"] != "Secret" {
				continue
			}
			metadata, _ := child["metadata"].(map[string]any)
			namespace, _ := metadata["namespace"].(string)
			name, _ := metadata["name"].(string)
			secrets[[2]string{namespace, name}] = child
		}
	}
	return secrets
}

// valuesOf returns the maps of a Secret in which the server hides values. Annotations may have a copy of it.
func valuesOf(secret map[string]any) [3]map[string]any {
	data, _ := secret["data"].(map[string]any)
	text, _ := secret["stringData"].(map[string]any)
	metadata, _ := secret["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return [3]map[string]any{data, text, annotations}
}
