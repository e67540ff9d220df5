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
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is what the server and the hook have used so far.
type usage struct {
	cpu      float64 // seconds
	rss      float64 // MB
	requests map[string]int64
	hook     hookCounts
}

// usage reads the counters of the server and the hook.
func (b *bench) usage(ctx context.Context) (usage, error) {
	var u usage
	var err error
	if u.cpu, err = processCPU(b.server.Process.Pid); err != nil {
		return u, err
	}
	if u.rss, err = processRSS(b.server.Process.Pid); err != nil {
		return u, err
	}
	if u.requests, err = b.requests(ctx); err != nil {
		return u, err
	}
	body, err := b.fetch(ctx, http.DefaultClient, b.hookURL+"/counts")
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal(body, &u.hook)
}

// requests returns the server's requests to the cluster by method, watches and leases aside, from its own metrics.
func (b *bench) requests(ctx context.Context) (map[string]int64, error) {
	body, err := b.fetch(ctx, b.own, fmt.Sprintf("https://127.0.0.1:%d/metrics", b.port))
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	scanner := bufio.NewScanner(strings.NewReader(string(body)))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		labels, ok := strings.CutPrefix(line, "rest_client_requests_total{")
		if !ok || !strings.Contains(labels, `host="`+strings.TrimPrefix(b.config.Host, "https://")+`"`) {
			continue
		}
		_, method, _ := strings.Cut(labels, `method="`)
		method, _, _ = strings.Cut(method, `"`)
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		counts[method] += int64(n)
	}
	return counts, scanner.Err()
}

func (b *bench) fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %s", url, response.Status, body)
	}
	return body, nil
}

// writeProfile stores one of the server's profiles.
func (b *bench) writeProfile(ctx context.Context, name, path string) error {
	if b.profile == "" {
		return nil
	}
	body, err := b.fetch(ctx, b.own, fmt.Sprintf("https://127.0.0.1:%d/debug/pprof/%s", b.port, path))
	if err != nil {
		return fmt.Errorf("reading the profile %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(b.profile, name), body, 0o644)
}

// clockTick is the unit of times in /proc, 1/100 s on every Linux.
const clockTick = 100

func processCPU(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	user, errUser := strconv.ParseFloat(fields[11], 64)
	system, errSystem := strconv.ParseFloat(fields[12], 64)
	if errUser != nil || errSystem != nil {
		return 0, fmt.Errorf("reading the processor time of %d", pid)
	}
	return (user + system) / clockTick, nil
}

func processRSS(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(content), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("no resident memory of %d", pid)
	}
	kilobytes, err := strconv.ParseFloat(fields[0], 64)
	return kilobytes / 1024, err
}
