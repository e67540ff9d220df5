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

package localhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

const (
	// maxResponse is how many bytes of a response are read: what a server takes of a hook by default.
	maxResponse = 32 << 20
	// maxShown is how many bytes of a response other than 200 are shown.
	maxShown = 500
)

// The names of the hooks, as they are in paths and requests.
const (
	Sync      = "sync"
	Finalize  = "finalize"
	Customize = "customize"
)

func names() []string { return []string{Sync, Finalize, Customize} }

// errUnreachable says that nothing answers at the address of a hook.
var errUnreachable = errors.New("the hook cannot be reached")

// Hook calls hooks at their addresses. It is safe for concurrent use.
type Hook struct {
	addresses map[string]*url.URL
	client    *http.Client
}

// New returns the hooks at the given addresses: URL is that of the sync hook, and HOOK=URL that of another one. A hook that is not given
// is expected beside the sync hook, if the path of that ends with its name, as in http://localhost:8080/sync.
func New(given []string) (*Hook, error) {
	h := &Hook{addresses: map[string]*url.URL{}, client: &http.Client{CheckRedirect: checkRedirect}}
	for _, text := range given {
		name, address, named := strings.Cut(text, "=")
		if !named || !slices.Contains([]string{Sync, Finalize, Customize}, name) {
			name, address = Sync, text
		}
		parsed, err := url.Parse(address)
		if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
			return nil, fmt.Errorf("--hook: %q is no address: write http://localhost:8080/sync, or finalize=http://localhost:8080/finalize", text)
		}
		if h.addresses[name] != nil {
			return nil, fmt.Errorf("--hook: there are two addresses of the %s hook: leave one of them out", name)
		}
		h.addresses[name] = parsed
	}
	first := h.addresses[Sync]
	if first == nil {
		return h, nil
	}
	for _, name := range []string{Finalize, Customize} {
		if folder, ok := strings.CutSuffix(first.Path, "/"+Sync); ok && h.addresses[name] == nil {
			beside := *first
			beside.Path = folder + "/" + name
			h.addresses[name] = &beside
		}
	}
	return h, nil
}

// first is the address of a hook that was given, for the program that serves all of them.
func (h *Hook) first() *url.URL {
	for _, name := range slices.Sorted(maps.Keys(h.addresses)) {
		if name == Sync || h.addresses[Sync] == nil {
			return h.addresses[name]
		}
	}
	return nil
}

// Call sends a request to a hook and returns its response, which is JSON. The call ends when a server would end it, as the controller in the
// request says.
func (h *Hook) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	address := h.addresses[name]
	switch {
	case address == nil && !slices.Contains(names(), name):
		return nil, fmt.Errorf("there is no %[1]s hook: the name of a recorded file begins with that of a hook, as in sync-%[1]s.request.json: rename it", name)
	case address == nil:
		return nil, fmt.Errorf("it is not known where the %s hook is: say it with --hook %s=URL", name, name)
	}
	limit := limitOf(name, body)
	calling, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(calling, http.MethodPost, address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request to %s: %w", address, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := h.client.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: nothing listens at %s: start it, or have it started with --exec, such as --exec 'python3 hook.py'", errUnreachable, address)
	}
	if dialing, ok := errors.AsType[*net.OpError](err); ok && dialing.Op == "dial" {
		return nil, fmt.Errorf("%w: %w: say where it is with --hook", errUnreachable, err)
	}
	late := func() bool { return calling.Err() != nil && ctx.Err() == nil }
	if err != nil && late() {
		return nil, tooSlow(name, address, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("calling the %s hook: %w", name, err)
	}
	defer response.Body.Close() //nolint:errcheck // It was read.
	read, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil && late():
		return nil, tooSlow(name, address, limit)
	case err != nil:
		return nil, fmt.Errorf("reading the response of %s: %w", address, err)
	case laterAsked(response):
		return nil, fmt.Errorf("%s asks to be called later (status %d), which a server does", address, response.StatusCode)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s returned status %d: %s", address, response.StatusCode, shown(read))
	case len(read) > maxResponse:
		return nil, fmt.Errorf("%s returned more than %d bytes, which is the most that a server takes without --hook-response-limit", address, maxResponse)
	case !json.Valid(read):
		return nil, fmt.Errorf("%s returned no JSON: %s", address, shown(read))
	}
	return read, nil
}

// IsUnreachable reports whether an error of Call is that of a hook that does not run.
func IsUnreachable(err error) bool { return errors.Is(err, errUnreachable) }

func shown(body []byte) string {
	text := strings.ToValidUTF8(strings.Join(strings.Fields(string(body[:min(len(body), maxShown)])), " "), "")
	if len(body) > maxShown {
		return text + "…"
	}
	return text
}
