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

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxItems is the bound of every list, as the markers in v1alpha1 have it. A longer list is refused there, and its items
	// are not looked at here.
	maxItems = 256
	// maxShown is the longest value that an error repeats, in bytes.
	maxShown = 256
)

// bounded returns the items, or none of a list that is too long.
func bounded[T any](items []T) []T {
	if len(items) > maxItems {
		return nil
	}
	return items
}

// invalid is the error of a value that is not what is demanded. The value is repeated unless it is long.
func invalid(path *field.Path, value, demand string) *field.Error {
	if len(value) > maxShown {
		return secret(path, demand)
	}
	return field.Invalid(path, value, demand)
}

// secret is the error of a value that may hold a password, or a token. It is not repeated: errors are printed, logged and kept
// by audit.
func secret(path *field.Path, demand string) *field.Error {
	return field.Invalid(path, field.OmitValueType{}, demand)
}

// cut shortens a value that an error must repeat.
func cut(value string) string { return value[:min(len(value), maxShown)] }
