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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const (
	// apiServer is the program's name.
	apiServer = "kube-apiserver"
	// portFlag is its flag of the port.
	portFlag = "--secure-port="
)

// APIServer is a further kube-apiserver of a control plane, as a control plane with several has them: a test takes it away from those who
// use its kubeconfig, while the controllers of Kubernetes and the test itself go on with the first one. It is for one test goroutine.
type APIServer struct {
	// Kubeconfig is a file with an administrator's access.
	Kubeconfig string

	t       testing.TB
	program string
	args    []string
	log     string
	client  *kubernetes.Clientset
	process *process.Process
}

// NewAPIServer prepares a further kube-apiserver, which Start starts. It ends with the test.
func (c *Cluster) NewAPIServer(t testing.TB) *APIServer {
	t.Helper()
	first := c.Processes[apiServer]
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first))
	if err != nil {
		t.Fatalf("reading the arguments of the first kube-apiserver: %v", err)
	}
	dir := t.TempDir()
	s := &APIServer{
		t: t, Kubeconfig: filepath.Join(dir, "kubeconfig"), log: filepath.Join(dir, apiServer+".log"),
		program: filepath.Join(filepath.Dir(c.KubectlPath), apiServer),
	}
	port := strconv.Itoa(freeport.Find(t))
	for arg := range bytes.SplitSeq(bytes.TrimRight(command, "\x00"), []byte{0}) {
		switch text := string(arg); {
		case strings.HasPrefix(text, portFlag):
			s.args = append(s.args, portFlag+port)
		case strings.HasPrefix(text, "--") && !strings.HasPrefix(text, "--audit"):
			s.args = append(s.args, text)
		}
	}
	s.configure(c, port)
	t.Cleanup(s.Stop)
	return s
}

// configure writes the kubeconfig, and makes the client that waits for the server.
func (s *APIServer) configure(c *Cluster, port string) {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		s.t.Fatalf("reading %s: %v", c.Kubeconfig, err)
	}
	for _, each := range config.Clusters {
		address, err := url.Parse(each.Server)
		if err != nil {
			s.t.Fatalf("reading the address of the first kube-apiserver: %v", err)
		}
		address.Host = address.Hostname() + ":" + port
		each.Server = address.String()
	}
	if err := clientcmd.WriteToFile(*config, s.Kubeconfig); err != nil {
		s.t.Fatalf("writing the kubeconfig of the further kube-apiserver: %v", err)
	}
	access, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		s.t.Fatalf("reading the kubeconfig of the further kube-apiserver: %v", err)
	}
	access.Timeout = time.Second
	if s.client, err = kubernetes.NewForConfig(access); err != nil {
		s.t.Fatalf("making a client of the further kube-apiserver: %v", err)
	}
}

// Start starts the server, with caches that are empty, and returns when it is ready.
func (s *APIServer) Start() {
	s.t.Helper()
	var err error
	s.process, err = process.Start(process.Command(s.t.Context(), s.program, s.args...), process.Options{Name: "the further kube-apiserver", Log: s.log})
	if err != nil {
		s.t.Fatal(err)
	}
	Eventually(s.t, Limit, "the further kube-apiserver to be ready", func(ctx context.Context) (bool, string) {
		select {
		case <-s.process.Ended():
			s.t.Fatalf("%v\n%s", s.process.Err(), s.process.Tail(10))
		default:
		}
		answer, err := s.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, fmt.Sprintf("%s %v", answer, err)
	})
}

// Stop kills the server: who is connected to it, and who connects from now on, is refused.
func (s *APIServer) Stop() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

// audited is what was read of the audit log about one namespace.
type audited struct {
	// lines have its name in them, and are not decoded yet.
	lines  [][]byte
	events []auditv1.Event
}

// Audited returns the requests about objects of a namespace that the kube-apiserver has completed, in its order. It is there with the
// option [Audit].
func (c *Cluster) Audited(t testing.TB, namespace string) []auditv1.Event {
	t.Helper()
	c.auditing.Lock()
	defer c.auditing.Unlock()
	if err := c.readAudit(); err != nil {
		t.Fatal(err)
	}
	a := c.audits[namespace]
	if a == nil {
		return nil
	}
	for _, line := range a.lines {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("reading %q in the audit log: %v", line, err)
		}
		if e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && e.ObjectRef.Namespace == namespace {
			a.events = append(a.events, e)
		}
	}
	a.lines = nil
	return slices.Clone(a.events)
}

// readAudit reads what is new in the log, once for all namespaces.
func (c *Cluster) readAudit() error {
	file, err := os.Open(c.AuditLog())
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // It is read.
	if _, err := file.Seek(c.auditRead, io.SeekStart); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	for lines := bufio.NewReaderSize(file, 1<<16); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // The last line may be half written.
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		c.auditRead += int64(len(line))
		c.addAudit(line)
	}
}

// addAudit keeps a line for each namespace that it names: most of them are never asked for, and to decode a line takes long.
func (c *Cluster) addAudit(line []byte) {
	const field = `"namespace":"`
	for rest := line; ; {
		_, after, found := bytes.Cut(rest, []byte(field))
		if !found {
			return
		}
		name, others, _ := bytes.Cut(after, []byte(`"`))
		rest = others
		a := c.audits[string(name)]
		if a == nil {
			if c.audits == nil {
				c.audits = map[string]*audited{}
			}
			a = &audited{}
			c.audits[string(name)] = a
		}
		if n := len(a.lines); n == 0 || &a.lines[n-1][0] != &line[0] {
			a.lines = append(a.lines, line)
		}
	}
}

// AuditedRequest is verb and resource of a request, as in "patch things/status".
func AuditedRequest(e *auditv1.Event) string {
	return e.Verb + " " + strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}
