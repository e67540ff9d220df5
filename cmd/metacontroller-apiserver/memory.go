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
	"strconv"
)

// memoryVariable is the environment variable with the memory that the process may use, in bytes. In the manifests it is the limit of the
// container.
const memoryVariable = "METACONTROLLER_MEMORY_LIMIT"

// memoryLimit returns below what the Go runtime is to keep its memory, and 0 if nobody says: nine tenths of what the process may use. The
// rest is for what the runtime does not count, such as the program itself, pages of etcd's database, and buffers of connections. GOMEMLIMIT,
// which the runtime reads itself, goes before.
func memoryLimit(getenv func(string) string) (int64, error) {
	text := getenv(memoryVariable)
	if text == "" || getenv("GOMEMLIMIT") != "" {
		return 0, nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return 0, fmt.Errorf("%s must be a number of bytes, not %q", memoryVariable, text)
	}
	return limit / 10 * 9, nil
}
