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
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Duration returns a duration as kubectl prints it. One below zero, which there is where the clock of the server is ahead, is printed as none.
func Duration(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Count returns a number with the word for what it counts, such as 1 sync or 2 syncs.
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
