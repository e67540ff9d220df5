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
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

// Clients are clients of one API server with the same access.
type Clients struct {
	// Dynamic is for objects of any kind.
	Dynamic dynamic.Interface
	// Kube is for the kinds of Kubernetes.
	Kube kubernetes.Interface
	// Versioned is for the kinds of Metacontroller.
	Versioned versioned.Interface
}

// NewClients makes the clients for an access, which is that of Config unless a test has one of its own. Warnings of the API server are not
// logged, unless the access says so.
func NewClients(t testing.TB, config *rest.Config) *Clients {
	t.Helper()
	c := new(Clients)
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		config = rest.CopyConfig(config)
		config.WarningHandlerWithContext = rest.NoWarnings{}
	}
	var err error
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatalf("making the dynamic client: %v", err)
	}
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatalf("making the client of Kubernetes: %v", err)
	}
	if c.Versioned, err = versioned.NewForConfig(config); err != nil {
		t.Fatalf("making the client of Metacontroller: %v", err)
	}
	return c
}
