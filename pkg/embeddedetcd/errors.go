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

package embeddedetcd

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrNotRunning means that no process runs an etcd on a data directory.
var ErrNotRunning = errors.New("no server runs on this data directory")

// An InUseError means that another process holds the data directory. Trying again is useless until that process ends.
type InUseError struct {
	// Dir is the data directory.
	Dir string
	// Holder describes the process as it wrote itself into the lock file; empty when it could not be read.
	Holder string
}

// Error names the directory and the process that holds it.
func (e *InUseError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("data directory %s is in use by %s; stop that process or choose another data directory", e.Dir, holder)
}

// A DamagedError means that the stored data cannot be trusted as a whole, so nothing of it is served.
type DamagedError struct {
	// Dir is the data directory.
	Dir string
	// Err is what was found.
	Err error
}

// Error names the directory, what was found, and what an operator can do.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("data directory %s is damaged: %v; keep it for inspection and restore a backup into an empty directory",
		e.Dir, e.Err)
}

// Unwrap returns what was found.
func (e *DamagedError) Unwrap() error { return e.Err }

// A NoSpaceError means that the file system refused to store more. What had been acknowledged before is safe.
type NoSpaceError struct {
	// Dir is the data directory.
	Dir string
	// Err is the failed operation.
	Err error
}

// Error names the directory, the failed operation, and what an operator can do.
func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("no space left for data directory %s: %v; free some space or enlarge the volume, then start again",
		e.Dir, e.Err)
}

// Unwrap returns the failed operation.
func (e *NoSpaceError) Unwrap() error { return e.Err }

// isNoSpace tells whether a file system operation failed because the volume, a disk quota, or a limit on file sizes is exhausted.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
