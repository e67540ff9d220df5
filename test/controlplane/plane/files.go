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
	_ "embed" // The stages are a file.
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/certs"
)

// stages tell kwok how a node and its Pods live.
//
//go:embed stages.yaml
var stages []byte

// auditPolicy has who wrote what be noted.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// files are the files that the programs need.
type files struct {
	data, logs string

	clientCA, servingCA, proxyCA string
	serving, proxy               certs.Pair
	tokenKey, tokenPublic        string

	adminConfig, controllerManagerConfig, schedulerConfig, kwokConfig string
	stages, auditPolicy                                               string
}

// writeFiles makes the keys and certificates, and the files that name them.
func writeFiles(folder string, p ports) (files, error) {
	f := files{data: filepath.Join(folder, "etcd"), logs: filepath.Join(folder, "logs"), stages: filepath.Join(folder, "stages.yaml")}
	f.auditPolicy = filepath.Join(folder, "audit-policy.yaml")
	certificates := filepath.Join(folder, "certificates")
	for _, d := range []string{f.logs, certificates} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return f, fmt.Errorf("creating the control plane's folders: %w", err)
		}
	}
	if err := os.WriteFile(f.stages, stages, 0o600); err != nil {
		return f, fmt.Errorf("writing kwok's stages: %w", err)
	}
	if err := os.WriteFile(f.auditPolicy, auditPolicy, 0o600); err != nil {
		return f, fmt.Errorf("writing kube-apiserver's audit policy: %w", err)
	}
	clientCA, err := certs.NewAuthority(certificates, "client-ca")
	if err != nil {
		return f, err
	}
	servingCA, err := certs.NewAuthority(certificates, "serving-ca")
	if err != nil {
		return f, err
	}
	// An authority of its own: whoever has a certificate of it may speak for every user.
	proxyCA, err := certs.NewAuthority(certificates, "front-proxy-ca")
	if err != nil {
		return f, err
	}
	f.clientCA, f.servingCA, f.proxyCA = clientCA.File, servingCA.File, proxyCA.File
	if f.serving, err = servingCA.Server("serving", "kubernetes", "kubernetes.default", "kubernetes.default.svc"); err != nil {
		return f, err
	}
	if f.proxy, err = proxyCA.Client("front-proxy", "front-proxy-client"); err != nil {
		return f, err
	}
	if f.tokenKey, f.tokenPublic, err = servingCA.SigningKey("service-accounts"); err != nil {
		return f, err
	}
	for _, user := range []struct {
		file   *string
		name   string
		groups []string
	}{
		{&f.adminConfig, "admin", []string{"system:masters"}},
		{&f.controllerManagerConfig, "system:kube-controller-manager", nil},
		{&f.schedulerConfig, "system:kube-scheduler", nil},
		{&f.kwokConfig, "kwok", []string{"system:masters"}},
	} {
		name := filepath.Base(filepath.Clean(user.name))
		pair, err := clientCA.Client(name, user.name, user.groups...)
		if err != nil {
			return f, err
		}
		*user.file = filepath.Join(folder, name+".kubeconfig")
		if err := writeKubeconfig(*user.file, p.server(), f.servingCA, pair); err != nil {
			return f, err
		}
	}
	return f, nil
}

// writeKubeconfig writes a file that holds everything, so that it can be copied elsewhere.
func writeKubeconfig(file, server, authority string, pair certs.Pair) error {
	var encoded [3]string
	for i, name := range []string{authority, pair.CertFile, pair.KeyFile} {
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("writing %s: %w", filepath.Base(file), err)
		}
		encoded[i] = base64.StdEncoding.EncodeToString(content)
	}
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: control-plane
clusters:
- name: control-plane
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: control-plane
  context: {cluster: control-plane, user: user}
users:
- name: user
  user: {client-certificate-data: %s, client-key-data: %s}
`, server, encoded[0], encoded[1], encoded[2])
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(file), err)
	}
	return nil
}
