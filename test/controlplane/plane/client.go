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

package plane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// node is the name of the simulated node.
const node = "kwok-node-0"

// client asks the programs the few things that the start needs.
type client struct {
	ports ports
	http  *http.Client
}

func newClient(f files, p ports) (*client, error) {
	authority, err := os.ReadFile(f.servingCA)
	if err != nil {
		return nil, fmt.Errorf("reading the serving authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	folder := filepath.Dir(f.servingCA)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(folder, "admin.crt"), filepath.Join(folder, "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	return &client{ports: p, http: &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}},
	}}, nil
}

func (c *client) serverReady(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, c.ports.server()+"/readyz", nil)
	return err
}

func (c *client) controllerManagerReady(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, loopback(c.ports.controllerManager)+"/healthz", nil)
	return err
}

func (c *client) schedulerReady(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, loopback(c.ports.scheduler)+"/healthz", nil)
	return err
}

func (c *client) createNode(ctx context.Context) error {
	body := map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{
			"name":        node,
			"annotations": map[string]string{"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
			"labels": map[string]string{
				"kubernetes.io/hostname": node, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
				"node-role.kubernetes.io/agent": "", "type": "kwok",
			},
		},
		"status": map[string]any{
			"allocatable": map[string]string{"cpu": "10000", "memory": "100Ti", "pods": "1000000"},
			"capacity":    map[string]string{"cpu": "10000", "memory": "100Ti", "pods": "1000000"},
		},
	}
	// Asked again after an answer that was lost, it is there already.
	if _, err := c.ask(ctx, "/api/v1/nodes/"+node); err == nil {
		return nil
	}
	_, err := c.do(ctx, http.MethodPost, c.ports.server()+"/api/v1/nodes", body)
	return err
}

func (c *client) nodeReady(ctx context.Context) error {
	content, err := c.ask(ctx, "/api/v1/nodes/"+node)
	if err != nil {
		return err
	}
	var found struct {
		Spec struct {
			Taints []struct {
				Key string `json:"key"`
			} `json:"taints"`
		} `json:"spec"`
		Status struct {
			Conditions []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(content, &found); err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	if len(found.Spec.Taints) > 0 {
		return fmt.Errorf("the node is tainted: %v", found.Spec.Taints)
	}
	for _, condition := range found.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return errors.New("the node is not ready")
}

// serviceAccount waits for what every Pod needs, which the controller manager makes.
func (c *client) serviceAccount(ctx context.Context) error {
	_, err := c.ask(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	return err
}

// aggregationSettings waits for what an aggregated API server reads first: whom to believe when it names a user.
func (c *client) aggregationSettings(ctx context.Context) error {
	content, err := c.ask(ctx, "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
	if err != nil {
		return err
	}
	if !bytes.Contains(content, []byte("requestheader-client-ca-file")) {
		return errors.New("they do not have the authority of the front proxy yet")
	}
	return nil
}

// ask gets a path of the API server.
func (c *client) ask(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, c.ports.server()+path, nil)
}

func (c *client) do(ctx context.Context, method, url string, body any) ([]byte, error) {
	var reader io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding the body for %s: %w", url, err)
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err // It names the method and the address.
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, response.Status, content)
	}
	return content, nil
}
