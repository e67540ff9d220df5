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

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// Cluster is a running control plane.
type Cluster struct {
	// Kubeconfig is a file with an administrator's access.
	Kubeconfig string `json:"kubeconfig"`
	// KubectlPath is the program kubectl of the same version.
	KubectlPath string `json:"kubectl"`
	// Dir holds the control plane's files, its logs in the folder logs.
	Dir string `json:"dir"`
	// EtcdServers is the address of the control plane's etcd.
	EtcdServers string `json:"etcdServers"`
	// Processes has the process number of each of its programs, for tests that disturb them.
	Processes map[string]int `json:"processes"`

	command *exec.Cmd
	stdin   io.Closer
	// lock is held as long as a control plane is used that others have used before.
	lock *os.File

	access func() (*rest.Config, error)
	reader func() (*reader, error)

	// auditing guards what was read of the audit log, by namespaces, and how much of it that was, in whole lines.
	auditing  sync.Mutex
	audits    map[string]*audited
	auditRead int64
}

var shared *Cluster

// Audit is an option of Main: the control plane notes who writes what, see [Cluster.AuditLog].
const Audit = "--audit"

// Main runs the tests of a package with a control plane that they share, and returns the code to exit with:
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
//
// If METACONTROLLER_CONTROL_PLANES names a folder, the control plane may be one that tests of other packages have used before, without what they
// have left in it: what they did to its programs would stay.
func Main(m *testing.M, options ...string) int {
	started, err := (*Cluster)(nil), error(nil)
	if folder := os.Getenv(lentVariable); folder != "" {
		if started, err = borrow(folder); err != nil {
			fmt.Fprintln(os.Stderr, "this package gets a control plane of its own:", err)
		}
	}
	if started == nil {
		started, err = start(options...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the control plane:", err)
		return 1
	}
	shared = started
	defer started.stop()
	return m.Run()
}

// Shared returns the control plane that Main started.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	if shared == nil {
		t.Fatal("the package's TestMain must call cluster.Main")
	}
	return shared
}

// Start starts a control plane for one test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	started, err := start()
	if err != nil {
		t.Fatalf("starting the control plane: %v", err)
	}
	t.Cleanup(started.stop)
	return started
}

// program finds the control plane's program, or builds it, once in a test process.
var program = sync.OnceValues(func() (string, error) {
	if folder := process.Built(); folder != "" {
		return filepath.Join(folder, "controlplane"), nil
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w", err)
	}
	folder = filepath.Join(folder, "metacontroller-apiserver", "controlplane")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("creating %s: %w", folder, err)
	}
	// Test processes of several packages may do this at once, each under a name of its own.
	built := filepath.Join(folder, fmt.Sprintf("controlplane-%d", os.Getpid()))
	command := exec.Command("go", "build", "-o", built, ".")
	command.Dir = module()
	command.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the control plane's program: %w\n%s", err, output)
	}
	// Other checkouts may have another one.
	checkout := sha256.Sum256([]byte(Root()))
	target := filepath.Join(folder, "controlplane-"+hex.EncodeToString(checkout[:6]))
	if err := os.Rename(built, target); err != nil {
		return "", fmt.Errorf("installing the control plane's program: %w", err)
	}
	return target, nil
})

// Root returns the root folder of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

func module() string { return filepath.Join(Root(), "test", "controlplane") }

func start(options ...string) (*Cluster, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	//nolint:noctx // It outlives the start, and ends when its input is closed.
	c := &Cluster{command: exec.Command(path, startArguments(options...)...)}
	c.command.Dir = module()
	var progress bytes.Buffer
	c.command.Stderr = io.MultiWriter(os.Stderr, &progress)
	if c.stdin, err = c.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("holding the control plane: %w", err)
	}
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("reading from the control plane: %w", err)
	}
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("running the control plane's program: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("waiting for the control plane: %w\n%s", err, progress.String())
	}
	if err := c.use(line); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func startArguments(options ...string) []string {
	return append([]string{"start", "--with-stdin", "--frugal"}, options...)
}

// use takes over what the control plane's program says of how to use it.
func (c *Cluster) use(info []byte) error {
	if err := json.Unmarshal(info, c); err != nil {
		return fmt.Errorf("reading %q from the control plane: %w", info, err)
	}
	c.access, c.reader = sync.OnceValues(c.readConfig), sync.OnceValues(c.newReader)
	return nil
}

// stop ends the control plane, unless others will use it.
func (c *Cluster) stop() {
	if c.command != nil {
		_ = c.stdin.Close()
		_ = c.command.Wait()
	}
}

// AuditLog is the file with a line of JSON, an Event of audit.k8s.io/v1, for each request to the kube-apiserver that writes. It is there
// with the option [Audit].
func (c *Cluster) AuditLog() string { return filepath.Join(c.Dir, "logs", "audit.log") }

// Config returns an administrator's access without a client-side rate limit.
func (c *Cluster) Config(t testing.TB) *rest.Config {
	t.Helper()
	config, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// config returns a copy of the access, for which the file is read once.
func (c *Cluster) config() (*rest.Config, error) {
	config, err := c.access()
	if err != nil {
		return nil, err
	}
	return rest.CopyConfig(config), nil
}

func (c *Cluster) readConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.Kubeconfig, err)
	}
	config.QPS = -1
	return config, nil
}

func (c *Cluster) kubectlCache() string { return filepath.Join(c.Dir, "kubectl-cache") }

// Kubectl runs kubectl and returns what it printed on both outputs. It fails the test when kubectl does.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	output, err := c.TryKubectl(t.Context(), "", args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// KubectlInput is Kubectl with a standard input, for "-f -".
func (c *Cluster) KubectlInput(t testing.TB, input string, args ...string) string {
	t.Helper()
	output, err := c.TryKubectl(t.Context(), input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// TryKubectl runs kubectl with a standard input and returns what it printed on both outputs, and its error.
func (c *Cluster) TryKubectl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, c.KubectlPath, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	// Discovery is cached by kubectl in the home folder; tests must not see each other's. It ends before a heap that grows, as those of
	// other programs of the tests do, saves more in collections than its pages cost.
	command.Env = append(os.Environ(), "KUBECACHEDIR="+c.kubectlCache(), "GOGC=100")
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(output), fmt.Errorf("exit code %d", exit.ExitCode())
	}
	return string(output), err
}
