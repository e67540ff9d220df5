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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const (
	// dialInterval is how often it is tried whether the hook listens.
	dialInterval = 50 * time.Millisecond
	// lateness is within which time a change is told: when nothing more has changed for a moment, and on a busy machine.
	lateness = time.Second
	// ownPortAfter and silentAfter are after how long a hook that does not listen at its port is looked for at another one, and told of.
	ownPortAfter, silentAfter = 2 * time.Second, 5 * time.Second
	// hookGrace is how long a hook may take to end before it is killed.
	hookGrace = 5 * time.Second
	// hookHost is where the server looks for the hook: a program that does not heed HOST may listen at the IPv6 address alone.
	hookHost = "localhost"
)

// interpreter returns the program and the arguments that run a hook's file in its folder.
func interpreter(folder, file string) (program string, args []string, err error) {
	path := filepath.Join(folder, file)
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, fmt.Errorf("looking for the hook: %w", err)
	}
	switch filepath.Ext(file) {
	case ".py":
		return "python3", []string{file}, nil
	case ".js", ".mjs", ".cjs":
		return "node", []string{file}, nil
	case ".go":
		if inModule(folder) {
			return "go", []string{"run", "."}, nil
		}
		return "go", []string{"run", file}, nil
	}
	if info.IsDir() {
		return "", nil, fmt.Errorf("%s is a folder: name the file in it that serves the hook", path)
	}
	if info.Mode()&0o111 == 0 {
		return "", nil, fmt.Errorf("%s is no program: a hook is a .py, .js or .go file, or one that may be executed (chmod +x)", path)
	}
	return path, nil, nil
}

// inModule tells whether a folder is in a Go module, where a file alone lacks the others of its package.
func inModule(folder string) bool {
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return true
		}
		above := filepath.Dir(folder)
		if above == folder {
			return false
		}
		folder = above
	}
}

// A hookRunner keeps a hook running: it is started again when a file in a watched folder changes. Create it with newHookRunner. Inline hooks have
// no program: one that runs none watches the folders of their manifests.
type hookRunner struct {
	program, folder, file, log string
	args                       []string
	port                       int
	out                        io.Writer
	// printed gets what the program prints.
	printed *prefixed
	// watched are the folders of watches.
	watched []string
	watches []*localhook.Watch
	edits   *localhook.Edits
	// manifest tells of a file whether it is one that is applied, and not the hook's.
	manifest func(path string) bool
	// saved is called with the names of the files that changed, when the hook listens.
	saved func(ctx context.Context, names []string)
	// unsaved are the names of files of which saved was not told yet.
	unsaved []string
	// own is the port at which the hook listens though PORT names another one; 0: it does not.
	own atomic.Int32
	// first gets nil when the hook listens, or an error when it has ended before.
	first chan error

	running           *process.Process
	listening, silent bool
	// began is when the program was started.
	began time.Time
	// started is when the start was over: the program listened, or ended.
	started time.Time
}

// newHookRunner returns a runner that watches the folder of the hook, and others.
func newHookRunner(path string, port int, log string, out io.Writer, others []string) (*hookRunner, error) {
	h := &hookRunner{
		port: port, log: log, out: out, printed: &prefixed{prefix: "hook: ", out: out}, first: make(chan error, 1), edits: localhook.NewEdits(),
	}
	if path != "" {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("looking for the hook: %w", err)
		}
		folder, file := filepath.Split(absolute)
		if h.program, h.args, err = interpreter(folder, file); err != nil {
			return nil, err
		}
		h.folder, h.file = filepath.Clean(folder), file
		others = append([]string{h.folder}, others...)
	}
	// The first change may come while the hook starts.
	for _, folder := range others {
		if err := h.watchFolder(folder); err != nil {
			return nil, errors.Join(err, h.closeWatches())
		}
	}
	return h, nil
}

func (h *hookRunner) closeWatches() error {
	var errs []error
	for _, watch := range h.watches {
		errs = append(errs, watch.Close())
	}
	return errors.Join(errs...)
}

// watchFolder watches a folder, unless it is watched already.
func (h *hookRunner) watchFolder(folder string) error {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return fmt.Errorf("watching %s: %w", folder, err)
	}
	for _, watched := range h.watched {
		if relative, err := filepath.Rel(watched, absolute); err == nil && filepath.IsLocal(relative) && !localhook.Ignores(relative) {
			return nil
		}
	}
	watch, err := localhook.NewWatch(absolute)
	if err != nil {
		return err
	}
	h.watched, h.watches = append(h.watched, absolute), append(h.watches, watch)
	return nil
}

// A change is the names of files in a folder that changed together, or why no more changes are seen.
type change struct {
	told   time.Time
	folder string
	names  []string
	err    error
}

// run keeps the hook running until ctx is done. Then it has ended.
func (h *hookRunner) run(ctx context.Context) {
	changes := make(chan change)
	var watching sync.WaitGroup
	for _, watch := range h.watches {
		watching.Go(func() { forward(ctx, watch, changes) })
	}
	h.start(ctx)
	tick := time.NewTicker(dialInterval)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-h.ended():
			h.tellEnd()
		case <-h.starting(tick.C):
			h.look(ctx)
		case changed := <-changes:
			if changed.err != nil {
				fmt.Fprintf(h.out, "==> Changes of files are not seen any more: %v\n", changed.err)
				continue
			}
			names := h.edited(changed)
			if len(names) == 0 {
				continue
			}
			h.change(ctx, changed.folder, names)
		}
	}
	tick.Stop()
	h.stop()
	watching.Wait()
	_ = h.closeWatches() // Nobody is left who would want a change.
}

// change starts the hook again, unless only manifests have changed and it listens.
func (h *hookRunner) change(ctx context.Context, folder string, names []string) {
	names = withoutTemporary(folder, names, filepath.Ext(h.file))
	hooks := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return h.manifest(filepath.Join(folder, name)) })
	for _, name := range names {
		if !slices.Contains(h.unsaved, name) {
			h.unsaved = append(h.unsaved, name)
		}
	}
	if len(hooks) == 0 && (h.running != nil || h.program == "") {
		h.tellSaved(ctx)
		return
	}
	h.stop()
	h.start(ctx)
}

// withoutTemporary returns the names without those of files that are gone, unless all are: an editor writes a file beside the old one, and renames
// it. A source of the hook, which ends with its extension, if it has one, counts though it is gone.
func withoutTemporary(folder string, names []string, extension string) []string {
	kept := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err != nil && (extension == "" || filepath.Ext(name) != extension)
	})
	if len(kept) == 0 {
		return names
	}
	return kept
}

// tellSaved tells of what was saved, if the hook listens. Until then a sync would fail.
func (h *hookRunner) tellSaved(ctx context.Context) {
	if names := h.unsaved; h.listening && len(names) > 0 {
		h.unsaved = nil
		h.saved(ctx, names)
	}
}

// edited returns which of the files that changed are edits, and not what the start of the hook writes.
func (h *hookRunner) edited(changed change) []string {
	if h.running != nil && !h.listening || changed.told.Before(h.started.Add(lateness)) {
		return h.edits.DuringUse(changed.folder, changed.names)
	}
	h.edits.ByAuthor(changed.folder, changed.names)
	return changed.names
}

// forward sends changes until ctx is done, or the watch fails.
func forward(ctx context.Context, watch *localhook.Watch, changes chan<- change) {
	for {
		names, err := watch.Wait(ctx)
		told := time.Now()
		names = slices.DeleteFunc(names, recorded)
		if err == nil && len(names) == 0 {
			continue
		}
		select {
		case changes <- change{told: told, folder: watch.Folder(), names: names, err: err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// recorded tells of the path of a file in the folder of a hook whether it is a recorded request or response, which a hook does not read.
func recorded(path string) bool { return strings.HasPrefix(filepath.ToSlash(path), "testdata/") }

// start starts the program. What it prints is printed, and gets into the log.
func (h *hookRunner) start(ctx context.Context) {
	h.listening, h.silent, h.began = false, false, time.Now()
	if h.program == "" {
		h.listening = true
		h.report(nil)
		h.tellSaved(ctx)
		return
	}
	h.printed.restart()
	cmd := process.Command(ctx, h.program, h.args...)
	cmd.Dir = h.folder
	cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(h.port), "HOST=127.0.0.1", "PYTHONUNBUFFERED=1")
	started, err := process.Start(cmd, process.Options{Name: "the hook", Log: h.log, Also: h.printed})
	if err != nil {
		h.tell(err)
		return
	}
	h.running = started
}

func (h *hookRunner) stop() {
	if h.running != nil {
		_ = h.running.Stop(hookGrace) // How it ends does not matter.
		h.running = nil
	}
}

// ended is closed when the running program has ended; nil while none runs.
func (h *hookRunner) ended() <-chan struct{} {
	if h.running == nil {
		return nil
	}
	return h.running.Ended()
}

// starting returns the channel while the program runs and does not listen.
func (h *hookRunner) starting(tick <-chan time.Time) <-chan time.Time {
	if h.running == nil || h.listening {
		return nil
	}
	return tick
}

// look finds out whether the program listens.
func (h *hookRunner) look(ctx context.Context) {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(hookHost, strconv.Itoa(h.port)))
	waited := time.Since(h.began)
	switch {
	case err == nil:
		_ = connection.Close() // Nothing was sent.
		h.own.Store(0)
	case waited < ownPortAfter || !h.findPort():
		if waited > silentAfter && !h.silent {
			h.silent = true
			fmt.Fprintln(h.out, "==>", h.silence())
		}
		return
	}
	h.listening, h.started = true, time.Now()
	h.report(nil)
	h.tellSaved(ctx)
}

// silence says that the hook does not listen, and how it would.
func (h *hookRunner) silence() string {
	return fmt.Sprintf("The hook %s does not listen yet. It finds its port, %d, in the environment variable PORT; one that listens at a port of its own is found there",
		filepath.Join(h.folder, h.file), h.port)
}

// findPort finds out whether the program listens at one port of its own.
func (h *hookRunner) findPort() bool {
	ports := listeningPorts(h.running.ID())
	if len(ports) != 1 || ports[0] == h.port { // It has begun to listen where it should.
		return false
	}
	if int(h.own.Swap(int32(ports[0]))) != ports[0] { //nolint:gosec // Ports have 16 bits.
		fmt.Fprintf(h.out, "==> The hook listens at a port of its own, %d\n", ports[0])
	}
	return true
}

// address is the port at which the server finds the hook.
func (h *hookRunner) address() int { return cmp.Or(int(h.own.Load()), h.port) }

// tellEnd says that the program has ended by itself.
func (h *hookRunner) tellEnd() {
	err := h.running.Err()
	h.running.Kill() // It may have left something behind.
	h.running, h.started = nil, time.Now()
	h.tell(err)
}

func (h *hookRunner) tell(err error) {
	fmt.Fprintf(h.out, "==> %v. It is started again when a file in %s changes; everything else goes on\n", err, h.folder)
	h.report(err)
}

// report tells the one who waits for the first start.
func (h *hookRunner) report(err error) {
	select {
	case h.first <- err:
	default:
	}
}
