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

package tracing_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	basetracing "k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// TestACollectorThatDoesNotAnswerHoldsNobodyUp has one that accepts connections and says nothing. Without the limit the test would take
// as long as an export may take, and end without an error.
func TestACollectorThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := basetracing.NewProvider(t.Context(), &tracingapi.TracingConfiguration{
		Endpoint: new(listener.Addr().String()), SamplingRatePerMillion: new(int32(1_000_000)),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	limited := tracing.LimitFlush(provider, 10*time.Millisecond)
	run(t.Context(), tracing.New(limited), nil)
	if err := limited.Shutdown(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	refuse(t, listener)
}

// refuse answers the export that waits for the collector, which ends it.
func refuse(t *testing.T, listener net.Listener) {
	t.Helper()
	asked, ended := make(chan struct{}), make(chan error)
	collector := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		close(asked)
		return status.Error(codes.Unimplemented, "it takes no spans")
	}))
	go func() { ended <- collector.Serve(listener) }()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Error("no export waits any more")
	}
	collector.GracefulStop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
