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

package subject

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// server is our server.
type server struct {
	program
	cluster   Cluster
	port      int
	arguments []string
}

// NewServer returns the server of a binary, not started. It has default flags but for the arguments.
func NewServer(ctx context.Context, binary string, arguments []string, c Cluster) (Subject, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertData: c.Config.CertData, KeyData: c.Config.KeyData,
	}})
	if err != nil {
		return nil, fmt.Errorf("preparing to ask the server: %w", err)
	}
	return &server{cluster: c, port: port, arguments: arguments, program: program{
		name: report.Server, binary: binary, base: fmt.Sprintf("https://127.0.0.1:%d", port),
		client: &http.Client{Transport: transport, Timeout: time.Minute}, log: filepath.Join(c.Folder, "server.log"),
	}}, nil
}

// Conditions implements Subject.
func (*server) Conditions() bool { return true }

// Install implements Subject.
func (*server) Install(context.Context) error { return nil }

// Start implements Subject. The server is registered with the cluster each time.
func (s *server) Start(ctx context.Context) error {
	shared := []string{"--kubeconfig", s.cluster.Kubeconfig, "--data-dir", filepath.Join(s.cluster.Folder, "data")}
	port := strconv.Itoa(s.port)
	register := append([]string{"register", "--host", "localhost", "--port", port}, shared...)
	arguments := slices.Concat([]string{"--bind-address", "127.0.0.1", "--secure-port", port}, shared, s.arguments)
	return s.launch(ctx, arguments, 500*time.Millisecond, func(ctx context.Context) error {
		_, err := process.Output(ctx, s.binary, register...)
		return err
	})
}
