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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const (
	// binaryVariable names the binary instead of the default.
	binaryVariable = "METACONTROLLER_APISERVER"
	defaultBinary  = "bin/race/metacontroller-apiserver"

	startTimeout = cluster.Limit
	// stopTimeout is what an operator is promised after SIGTERM, and the share of the race detector and of what runs beside it.
	stopTimeout = time.Minute
	// verification has the engine check itself while it runs; what it finds is an error in the log.
	verification = "METACONTROLLER_VERIFY=plans"
	// logLines is how much of the log is shown when a test fails.
	logLines = 8
	// endLines is how much of the log End returns.
	endLines = 80
	// raceLines is how much of a report of the race detector is shown.
	raceLines = 80
)

// Options say how the server is started.
type Options struct {
	// Definitions are CustomResourceDefinitions, in YAML, by which the cluster serves the API. Empty: the server serves it, unless
	// METACONTROLLER_TEST_API says otherwise.
	Definitions string
	// Kubeconfig is the file with which the server reaches the cluster. Empty: an administrator's access.
	Kubeconfig string
	// DataDir is the server's data directory. Empty: a new one that the test removes.
	DataDir string
	// Command makes a command that runs the server's program with arguments, and that is killed when ctx is done. Nil: it runs the binary.
	Command func(ctx context.Context, args ...string) *exec.Cmd
	// Binary is the server's binary. Empty: that of Binary.
	Binary string
	// Env are further variables of the server's environment, as "NAME=value".
	Env []string
	// Memory is how many bytes the kernel gives the server, which is killed when it needs more; only root can limit it. Zero: no limit.
	Memory int64
	// Args are further flags of the server.
	Args []string
	// Port is where the server listens, for servers that share one with --permit-port-sharing. Zero: a free one.
	Port int
	// Authority are the flags of register that name the authority of the server's certificate. Empty: that in DataDir.
	Authority []string
	// Tolerate has texts of lines in the server's log that would fail the test, since they tell of a panic or of an error that
	// an ordinary end does not leave, but that the test provokes.
	Tolerate []string
}

// A Server is the server's binary and what it was started with. It is for one test goroutine.
type Server struct {
	t       testing.TB
	cluster *cluster.Cluster
	options Options
	binary  string
	port    int
	log     string
	process *process.Process
	memory  *memoryGroup

	// scraping guards the pages of metrics that were read last, by their paths.
	scraping sync.Mutex
	scraped  map[string]scrape
}

// Start starts the server, registers it at the cluster c unless that serves the API by definitions, and returns when its API is available there, to kubectl too. The server ends
// with the test.
func Start(t testing.TB, c *cluster.Cluster, o Options) *Server {
	t.Helper()
	if o.Kubeconfig == "" {
		o.Kubeconfig = c.Kubeconfig
	}
	if o.Definitions == "" && OnDefinitions() {
		o.Definitions = Definitions(t)
	}
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	if o.Port == 0 {
		o.Port = freeport.Find(t)
	}
	if len(o.Authority) == 0 {
		o.Authority = []string{"--data-dir", o.DataDir}
	}
	if o.Binary == "" && o.Command == nil {
		o.Binary = Binary(t)
	}
	s := &Server{t: t, cluster: c, options: o, binary: o.Binary, port: o.Port, log: filepath.Join(t.TempDir(), "server.log")}
	t.Cleanup(s.end)
	if o.Definitions != "" {
		c.DefineManifests(t, o.Definitions)
	}
	s.RestartAndRegister()
	return s
}

// end stops the server with the test, and fails the test when the server did not end well or was seen racing.
func (s *Server) end() {
	if s.process == nil {
		return
	}
	select {
	case <-s.process.Ended():
		// The test has ended it, and has judged how.
	default:
		if err := s.Stop(); err != nil {
			s.t.Errorf("stopping the server: %v", err)
		}
	}
	s.freeMemory()
	printed, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Errorf("reading the server's log: %v", err)
	}
	if report := race(string(printed), raceLines); report != "" {
		s.t.Errorf("the race detector saw this in the server:\n%s", report)
	}
	if lines := complaints(string(printed), s.options.Tolerate); len(lines) > 0 {
		s.t.Errorf("%d lines of the server's log must not be there, among them:\n%s", len(lines), strings.Join(lines[:min(len(lines), 5)], "\n"))
	}
	if s.t.Failed() {
		s.t.Log(s.process.Tail(logLines))
	}
}

// Restart starts a server that was ended by Kill or Stop again, with the same data directory, port and flags, and returns
// when its API is available in the cluster, to kubectl too, where it is registered still.
func (s *Server) Restart() {
	s.t.Helper()
	s.run()
	s.awaitAvailable()
}

// run starts the server's process, and returns when it is ready.
func (s *Server) run() {
	s.t.Helper()
	args := append([]string{
		"--kubeconfig", s.options.Kubeconfig,
		"--data-dir", s.options.DataDir,
		"--bind-address", "127.0.0.1",
		"--secure-port", strconv.Itoa(s.port),
	}, s.options.Args...)
	if s.options.Definitions != "" {
		args = append(onDefinitions(s.options.Kubeconfig, s.port), s.options.Args...)
	}
	var err error
	command := s.command(context.WithoutCancel(s.t.Context()), args...)
	command.Env = append(append(command.Environ(), verification), s.options.Env...)
	s.process, err = process.Start(command, process.Options{Name: "the server", Log: s.log})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.options.Memory > 0 {
		s.freeMemory()
		if s.memory, err = limitMemory(s.process.ID(), s.options.Memory); err != nil {
			s.t.Fatal(err)
		}
	}
	s.awaitReady()
}

// RestartAndRegister is Restart for a server of which the cluster does not know, or knows no more.
func (s *Server) RestartAndRegister() {
	s.t.Helper()
	s.run()
	if s.options.Definitions != "" {
		s.awaitAvailable()
		return
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), startTimeout)
	defer cancel()
	if _, err := process.OutputOf(ctx, s.command(ctx, append([]string{
		"register",
		"--kubeconfig", s.cluster.Kubeconfig,
		"--host", "localhost",
		"--port", strconv.Itoa(s.port),
	}, s.options.Authority...)...)); err != nil {
		s.t.Fatal(err)
	}
	s.awaitAvailable()
}

// awaitAvailable waits until the cluster leads requests to the server, and tells kubectl of its API.
func (s *Server) awaitAvailable() {
	s.t.Helper()
	controllers := cluster.NewClients(s.t, s.cluster.Config(s.t)).Versioned.MetacontrollerV1alpha1().CompositeControllers()
	cluster.Eventually(s.t, startTimeout, "the server's API to be available in the cluster", func(ctx context.Context) (bool, string) {
		_, err := controllers.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, fmt.Sprint(err)
	})
	s.cluster.AwaitServed(s.t, startTimeout, v1alpha1.SchemeGroupVersion)
}

// command makes a command that runs the server's program.
func (s *Server) command(ctx context.Context, args ...string) *exec.Cmd {
	if s.options.Command != nil {
		return s.options.Command(ctx, args...)
	}
	return exec.CommandContext(ctx, s.binary, args...)
}

// PeakMemory returns how many bytes of memory the server has used at most since it was started with a limit, files that the kernel
// remembers for it among them.
func (s *Server) PeakMemory() int64 {
	s.t.Helper()
	text, err := os.ReadFile(s.memory.peak)
	if err != nil {
		s.t.Fatalf("reading the memory of the server: %v", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		s.t.Fatalf("reading the memory of the server: %v", err)
	}
	return n
}

// freeMemory removes the control group of the process that has ended.
func (s *Server) freeMemory() {
	s.t.Helper()
	if s.memory == nil {
		return
	}
	if err := s.memory.remove(); err != nil {
		s.t.Error(err)
	}
	s.memory = nil
}

// Kill ends the server with SIGKILL, as a power cut would.
func (s *Server) Kill() {
	s.process.Kill()
}

// Stop ends the server with SIGTERM and waits. The error is nil when it exits with status 0 in time.
func (s *Server) Stop() error {
	return s.process.Stop(stopTimeout)
}

// Ended is closed when the running server has ended.
func (s *Server) Ended() <-chan struct{} {
	return s.process.Ended()
}

// End waits until the running server has ended, and returns its exit code, -1 after a signal, and the end of its log.
func (s *Server) End() (code int, log string) {
	<-s.process.Ended()
	return s.process.Code(), s.process.Tail(endLines)
}

// PID is the operating system's number of the process that runs.
func (s *Server) PID() int { return s.process.ID() }

// Port is where the server listens, on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// DataDir is the server's data directory.
func (s *Server) DataDir() string { return s.options.DataDir }

// Log is the file that holds what the server printed, over all its restarts.
func (s *Server) Log() string { return s.log }

// Get asks the server itself, without credentials and not through the cluster, as a probe would, and returns the status.
func (s *Server) Get(ctx context.Context, path string) (int, error) {
	// Whether the answer comes from the right server does not matter to a probe.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(path), http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("asking for %s: %w", path, err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, fmt.Errorf("asking for %s: %w", path, err)
	}
	return response.StatusCode, response.Body.Close()
}

// awaitReady waits until the server says that it is ready, or has ended.
func (s *Server) awaitReady() {
	s.t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.process.Ended():
			return false, s.process.Err()
		default:
		}
		status, err := s.Get(ctx, "/readyz")
		last = fmt.Sprintf("status %d, error %v", status, err)
		return status == http.StatusOK, nil
	})
	if err != nil {
		s.t.Fatalf("waiting for the server to be ready: %v; the last answer was %s", err, last)
	}
}

// Binary is the path of the server's binary. The test fails when there is none.
func Binary(t testing.TB) string {
	t.Helper()
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		binary = filepath.Join(cluster.Root(), defaultBinary)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("there is no server to test, run 'make build-race' first: %v", err)
	}
	return binary
}

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

// Suspend stops the running server where it is, with SIGSTOP, as a machine does that is paused. The server goes on at the end of the test, if
// Resume was not called.
func (s *Server) Suspend() {
	s.t.Helper()
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	suspended := s.process
	s.t.Cleanup(func() { _ = suspended.Signal(syscall.SIGCONT) }) // It may have ended.
}

// Resume lets a suspended server go on.
func (s *Server) Resume() {
	s.t.Helper()
	if err := s.process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
}

// raceReport is how the race detector begins to tell what it saw.
const raceReport = "WARNING: DATA RACE"

// alarms are in lines that no server under test may log, however bad its hooks and its cluster are.
var alarms = []string{
	"Recovered from a panic", "Observed a panic", "http: panic serving", "panic: ", "fatal error: ",
	// What METACONTROLLER_VERIFY checks.
	"METACONTROLLER_VERIFY",
}

// noise is in error lines of ours that ordinary deletions and an ordinary end must not leave. Libraries log such lines where a machine is slow,
// or a request's context ends, and say nothing of the server by them.
var noise = []string{"context canceled", "Handler timeout", "could not write"}

// sources has the text of our files that may log, by the names under which klog knows them.
var sources = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	for _, folder := range []string{"cmd", "pkg"} {
		// What cannot be read logs nothing.
		_ = filepath.WalkDir(filepath.Join(cluster.Root(), folder), func(path string, _ fs.DirEntry, err error) error {
			if text, errRead := os.ReadFile(path); err == nil && errRead == nil && strings.HasSuffix(path, ".go") {
				texts[filepath.Base(path)] += string(text)
			}
			return nil
		})
	}
	return texts
})

// errorLine is an error of klog: E, month and day, the time, the thread, the file with the number of its line, and the begin of the message.
var errorLine = regexp.MustCompile(`^E\d{4} \S+ +\d+ ([^ :]+\.go):\d+\] ("[^"]{1,40})`)

// ownError reports whether a line is an error that our code has logged: its message begins so in a file of that name.
func ownError(line string) bool {
	found := errorLine.FindStringSubmatch(line)
	return len(found) == 3 && strings.Contains(sources()[found[1]], found[2])
}

// complaints returns the lines of a server's log that fail a test. Lines with one of the texts in tolerated are left out.
func complaints(log string, tolerated []string) []string {
	var found []string
	for line := range strings.SplitSeq(log, "\n") {
		if (contains(line, alarms) || contains(line, noise) && ownError(line)) && !contains(line, tolerated) {
			found = append(found, line)
		}
	}
	return found
}

func contains(line string, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) })
}

// race returns the first report of the race detector in a log, empty if there is none, and no more than some of its lines.
func race(log string, lines int) string {
	_, report, found := strings.Cut(log, raceReport)
	if !found {
		return ""
	}
	all := strings.SplitN(report, "\n", lines+1)
	return raceReport + strings.Join(all[:min(len(all), lines)], "\n")
}
