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

package etcdsnapshot

import "fmt"

// A BrokenError means that a file cannot be restored, because it is not a whole snapshot.
type BrokenError struct {
	// File is the path of the file.
	File string
	// Err is what was found.
	Err error
}

// Error names the file, what was found, and what an operator can do.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("snapshot %s cannot be restored: %v; take another one", e.File, e.Err)
}

// Unwrap returns what was found.
func (e *BrokenError) Unwrap() error { return e.Err }

// An OccupiedError means that a data directory holds a store already.
type OccupiedError struct {
	// Dir is the data directory of etcd.
	Dir string
	// Member is what is there.
	Member string
}

// Error names the directory, and what an operator can do.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("data directory %s holds a store already, and nothing of it was changed; choose another directory, or move %s away first",
		e.Dir, e.Member)
}
