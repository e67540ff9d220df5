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
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
