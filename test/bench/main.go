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

// Command bench measures the server against what the API server itself can take.
//
// One run starts a local control plane, the server with default flags, and a hook in a process of its own. For every size
// it measures, side by side on the same control plane, the limit (16 clients that do only the writes that must be done)
// and the server. It prints one JSON line for each workload, and a table at the end. See docs/performance.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// size is a number of parents with a number of children each.
type size struct{ parents, children int }

func (s size) String() string { return fmt.Sprintf("%d×%d", s.parents, s.children) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs the hook, as the bench starts it, or the bench.
func command(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == "hook" {
		return runHook(ctx, os.Stdout)
	}
	return run(ctx)
}

func run(ctx context.Context) error {
	sizes := flag.String("sizes", "300x3,3000x3", "sizes to measure, parents x children")
	runs := flag.Int("runs", 1, "how often each size is measured; the table has medians")
	server := flag.String("server", "bin/metacontroller-apiserver", "the server's binary")
	document := flag.String("document", "", "a file in which the table between the markers is replaced")
	profile := flag.String("profile", "", "a folder for CPU and heap profiles of the largest size")
	flag.Parse()
	parsed, err := parseSizes(*sizes)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, *server, *profile)
	if err != nil {
		return err
	}
	defer b.end()
	var results []result
	for range *runs {
		for _, s := range parsed {
			measured, err := b.measure(ctx, s)
			for _, r := range measured {
				if encodeErr := json.NewEncoder(os.Stdout).Encode(r); encodeErr != nil {
					return encodeErr
				}
			}
			if err != nil {
				return fmt.Errorf("measuring %s: %w", s, err)
			}
			results = append(results, measured...)
		}
	}
	table := tableOf(results)
	fmt.Fprintln(os.Stderr, "\n"+table)
	if *document != "" {
		return replaceTable(*document, table)
	}
	return nil
}

func parseSizes(text string) ([]size, error) {
	var sizes []size
	for part := range strings.SplitSeq(text, ",") {
		parents, children, ok := strings.Cut(part, "x")
		p, errParents := strconv.Atoi(parents)
		c, errChildren := strconv.Atoi(children)
		if !ok || errParents != nil || errChildren != nil || p < 1 || c < 1 {
			return nil, fmt.Errorf("size %q is not of the form 300x3", part)
		}
		sizes = append(sizes, size{p, c})
	}
	return sizes, nil
}
