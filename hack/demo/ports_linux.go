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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// listeningPorts returns the TCP ports at which the processes of a group listen.
func listeningPorts(group int) []int {
	sockets := map[string]bool{}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // The pattern is right.
	for _, link := range links {
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if of, err := syscall.Getpgid(pid); err != nil || of != group {
			continue
		}
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "socket:") {
			sockets[strings.Trim(strings.TrimPrefix(target, "socket:"), "[]")] = true
		}
	}
	var ports []int
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table) // Without IPv6 there is no second one.
		for line := range strings.Lines(string(text)) {
			// The fields are a number, the local address as HEX:PORT, the remote one, the state, and at last the socket; 0A listens.
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != "0A" || !sockets[fields[9]] {
				continue
			}
			var port int
			if _, err := fmt.Sscanf(fields[1][strings.Index(fields[1], ":")+1:], "%X", &port); err == nil {
				ports = append(ports, port)
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
