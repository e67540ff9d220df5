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

// Command repeatable-runtime writes an overlay for "go build" and "go test" with which programs behave the same each time in bubbles of
// testing/synctest: the order of maps, the choice of select, the order of timers that are due at once and math/rand are the same in every
// bubble. Outside of bubbles, hashes are the same in every process. Nowhere is a goroutine preempted because it has run for long, which on a
// machine with other work happens anywhere. It is for the simulation (test/simulation) and for nothing that
// serves.
//
// Usage: repeatable-runtime FOLDER. It prints the path for -overlay. A history repeats exactly with GOMAXPROCS=1, if no garbage is
// collected meanwhile.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// edit replaces a text that a file of package runtime has once.
type edit struct{ file, old, new string }

// edits give each bubble random numbers of its own. Not all of the runtime's are: those by which it chooses which allocations to
// profile, for example, depend on what was allocated before.
var edits = []edit{
	{"synctest.go", "\tid      uint64 // unique id\n", "\tid      uint64 // unique id\n\tnumbers uint64 // state of random\n"},
	{"rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", `	mp := getg().m
	if gp := mp.curg; gp != nil && gp.bubble != nil {
		return gp.bubble.random()
	}
	c := &mp.chacha8
`},
	{"rand.go", "\tglobalRand.state.Init(*seed)\n", "\tfor i := range seed {\n\t\tseed[i] = byte(i)\n\t}\n\tglobalRand.state.Init(*seed)\n"},
	{"rand.go", "// rand32 is uint32(rand()), called from compiler-generated code.\n", `// random returns the next number of a bubble (SplitMix64).
//
//go:nosplit
func (bubble *synctestBubble) random() uint64 {
	bubble.numbers += 0x9e3779b97f4a7c15
	z := bubble.numbers
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// rand32 is uint32(rand()), called from compiler-generated code.
`},
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := randn(uint32(norder + 1))"},
	{"time.go", "t.rand = cheaprand()", "t.rand = rand32()"},
	{"proc.go", "const forcePreemptNS = 10 * 1000 * 1000 // 10ms\n", "const forcePreemptNS = 1 << 62 // For ever.\n"},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: repeatable-runtime FOLDER")
		os.Exit(2)
	}
	overlay, err := write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(overlay)
}

// write writes the overlay into a folder and returns its path.
func write(folder string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("finding the folder: %w", err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return "", fmt.Errorf("creating the folder: %w", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output() //nolint:noctx // It takes no time.
	if err != nil {
		return "", fmt.Errorf("finding the sources of Go: %w", err)
	}
	replace := map[string]string{}
	for _, e := range edits {
		original := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime", e.file)
		edited, done := replace[original]
		if !done {
			edited = original
		}
		text, err := os.ReadFile(edited)
		if err != nil {
			return "", fmt.Errorf("reading the runtime: %w", err)
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, not once; this version of Go needs other edits", original, e.old, n)
		}
		replace[original] = filepath.Join(folder, e.file)
		if err := os.WriteFile(replace[original], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			return "", fmt.Errorf("writing the edited runtime: %w", err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("encoding the overlay: %w", err)
	}
	path := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return path, nil
}
