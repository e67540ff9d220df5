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

// Package gitops runs the engines of Argo CD and Flux against the product: what they deploy, compare, prune and call healthy.
//
// It is a module of its own, so that what the engines depend on is none of the product's, and that they may want another Go. `make gitops`
// runs it. What is written for users of these tools is in artifacts/gitops, and explained in docs/how-to/gitops.md.
package gitops

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

const limit = cluster.Limit

func TestMain(m *testing.M) {
	// The engines log each watch that fails while the server is stopped.
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	os.Exit(cluster.Main(m))
}
