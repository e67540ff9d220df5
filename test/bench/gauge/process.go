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

package gauge

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// clockTick is the unit of times in /proc, 1/100 s on every Linux.
const clockTick = 100

// CPU returns the processor time of a process, in seconds.
func CPU(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %d: %w", pid, err)
	}
	return cpuOf(content)
}

func cpuOf(stat []byte) (float64, error) {
	// The second field is the program's name in parentheses, and may contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading the processor time: %d fields after the name, 13 are needed", len(fields))
	}
	user, errUser := strconv.ParseFloat(fields[11], 64)
	system, errSystem := strconv.ParseFloat(fields[12], 64)
	if errUser != nil || errSystem != nil {
		return 0, fmt.Errorf("reading the processor time: %q and %q are not numbers", fields[11], fields[12])
	}
	return (user + system) / clockTick, nil
}

// RSS returns the resident memory of a process, in MB.
func RSS(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %d: %w", pid, err)
	}
	return rssOf(string(content))
}

func rssOf(status string) (float64, error) {
	_, rest, _ := strings.Cut(status, "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("reading the memory: no VmRSS")
	}
	kilobytes, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return 0, fmt.Errorf("reading the memory: %w", err)
	}
	return kilobytes / 1024, nil
}
