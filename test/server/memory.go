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

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"k8s.io/apimachinery/pkg/util/rand"
)

// controlGroups are where control groups may be limited: the folder of each version's root, with the name of its limit and of its peak.
var controlGroups = []struct{ root, limit, peak string }{
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"},
	{"/sys/fs/cgroup", "memory.max", "memory.peak"},
}

// memoryGroup is a control group that limits the memory of a server.
type memoryGroup struct{ folder, peak string }

// limitMemory moves a process into a control group of its own. The kernel ends it when it needs more than so many bytes.
func limitMemory(pid int, bytes int64) (*memoryGroup, error) {
	var errs []error
	for _, version := range controlGroups {
		folder := filepath.Join(version.root, "metacontroller-test-"+rand.String(8))
		err := os.Mkdir(folder, 0o755)
		if err == nil {
			err = errors.Join(
				write(filepath.Join(folder, version.limit), bytes),
				write(filepath.Join(folder, "cgroup.procs"), int64(pid)))
			if err == nil {
				return &memoryGroup{folder, filepath.Join(folder, version.peak)}, nil
			}
			err = errors.Join(err, os.Remove(folder))
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("limiting the memory of process %d: %w", pid, errors.Join(errs...))
}

func write(file string, value int64) error {
	// It is not created: the kernel has it, if it has such a group.
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(value, 10))
	return errors.Join(err, f.Close())
}

// remove removes the group, whose process has ended. The kernel may need a moment to notice.
func (g *memoryGroup) remove() error {
	var err error
	for range 1000 {
		err = syscall.Rmdir(g.folder)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return fmt.Errorf("removing the control group %s: %w", g.folder, err)
}
