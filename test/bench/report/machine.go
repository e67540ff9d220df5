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

package report

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine says on what the figures were measured. The versions are those of Kubernetes and of the server.
func Machine(kubernetes, server string) string {
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	memory, _ := os.ReadFile("/proc/meminfo")
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return machine(machineFacts{
		model: field(string(cpu), "model name"), cores: runtime.NumCPU(), memory: field(string(memory), "MemTotal"),
		kernel: strings.TrimSpace(string(kernel)), compiler: runtime.Version(), kubernetes: kubernetes, server: server,
	})
}

type machineFacts struct {
	model                                string
	cores                                int
	memory                               string
	kernel, compiler, kubernetes, server string
}

func machine(f machineFacts) string {
	kilobytes, _, _ := strings.Cut(f.memory, " ")
	gigabytes := "unknown"
	if n, err := strconv.ParseFloat(kilobytes, 64); err == nil {
		gigabytes = fmt.Sprintf("%.0f GB", n/(1<<20))
	}
	return fmt.Sprintf("%d cores (%s) and %s of memory, shared by the control plane, the server, the hook and the clients; "+
		"Linux %s, %s, Kubernetes %s, server %s.", f.cores, f.model, gigabytes, f.kernel, f.compiler, f.kubernetes, f.server)
}

// field returns the first value of a name in a file of lines such as "name : value".
func field(content, name string) string {
	for line := range strings.SplitSeq(content, "\n") {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
