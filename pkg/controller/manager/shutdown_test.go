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

package manager

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
)

func TestControllersLearnOfAShutdown(t *testing.T) {
	nowhere := &rest.Config{Host: "http://127.0.0.1:1"}
	m, err := New(t.Context(), Config{Loopback: nowhere, Cluster: nowhere})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	select {
	case <-m.shared.ShuttingDown:
		t.Error("the process is said to end before it does")
	default:
	}
	stop()
	<-m.shared.ShuttingDown
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
