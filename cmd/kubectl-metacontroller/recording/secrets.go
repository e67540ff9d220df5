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

import "encoding/base64"

// hidden is what the server records in place of a value of a Secret. The modules for hooks (artifacts/sdk) compare Secrets in the same way.
const hidden = "(hidden)"

// hideSecrets hides the values of Secrets in both responses that are hidden in one of them.
func hideSecrets(wanted, got any) {
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
