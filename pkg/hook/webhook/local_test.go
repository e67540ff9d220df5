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

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// newLocal returns a hook of the fleet that the server evaluates itself. The endpoint is that of its metrics.
func newLocal(t *testing.T, endpoint string, change ...func(*webhook.Config)) *webhook.Local {
	t.Helper()
	l, err := webhook.NewLocal(configure("", change...), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// body evaluates to a body of so many bytes.
func body(bytes int) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(strings.Repeat(" ", bytes)), nil }
}

func TestLocalHooksHaveTheLimitsOfWebhooks(t *testing.T) {
	const limit = 256 << 10
	wrong := errors.New("division by zero")
	for name, tc := range map[string]struct {
		evaluate func() ([]byte, error)
		// held is how many bytes of the budget the response holds, and err what the call returns.
		held int64
		err  string
		code string
	}{
		"Small":    {body(64 << 10), 0, "", "200"},
		"Large":    {body(limit), limit, "", "200"},
		"TooLarge": {body(limit + 1), 0, "262144", "200"},
		"Failing":  {func() ([]byte, error) { return nil, wrong }, 0, wrong.Error(), "500"},
	} {
		t.Run(name, func(t *testing.T) {
			budget := fairqueue.Bytes(4 * limit)
			l := newLocal(t, name, func(c *webhook.Config) { c.ResponseBudget, c.MaxResponseBytes = budget, limit })
			response, err := l.Call(t.Context(), nil, tc.evaluate)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if used, _ := budget.Used(); used != tc.held {
				t.Errorf("%d bytes of the budget are held, want %d", used, tc.held)
			}
			response.Release()
			if used, _ := budget.Used(); used != 0 {
				t.Errorf("%d bytes of the budget are held after the response", used)
			}
			want := map[string]float64{"code=" + tc.code + " controller_name=fleet controller_type=CompositeController method=inline ": 1}
			if diff := cmp.Diff(want, series(t, "metacontroller_sync_requests_total", name)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

// atOnce is how many hooks are evaluated at the same time.
func atOnce() int { return max(2, runtime.GOMAXPROCS(0)) }

// occupied is a hook that uses all turns: each of its calls goes on until one is ended.
type occupied struct {
	hook *webhook.Local
	// ends ends one call, and running counts those that began.
	ends    chan struct{}
	running chan struct{}
	results chan error
}

func (o *occupied) call(ctx context.Context) {
	response, err := o.hook.Call(ctx, nil, func() ([]byte, error) {
		o.running <- struct{}{}
		<-o.ends
		return nil, nil
	})
	response.Release()
	o.results <- err
}

// occupy begins calls of a hook, and returns when as many are evaluated as ever are at the same time.
func occupy(t *testing.T, calls int) *occupied {
	t.Helper()
	o := &occupied{newLocal(t, "occupied"), make(chan struct{}), make(chan struct{}, calls), make(chan error, calls)}
	if _, err := o.hook.Call(t.Context(), nil, body(1)); err != nil {
		t.Fatal(err)
	}
	for range calls {
		go o.call(t.Context())
	}
	for range atOnce() {
		<-o.running
	}
	return o
}

// finish ends a number of calls, and waits for them.
func (o *occupied) finish(t *testing.T, calls int) {
	t.Helper()
	for ended, left := 0, calls; left > 0; {
		ends := o.ends
		if ended == calls {
			ends = nil
		}
		select {
		case ends <- struct{}{}:
			ended++
		case <-o.running:
		case err := <-o.results:
			if left--; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestALocalHookHasItsTurnBesideOneThatUsesAll has a hook called by a hundred callers, each of which calls it again at once. The calls of another
// hook are evaluated all the same.
func TestALocalHookHasItsTurnBesideOneThatUsesAll(t *testing.T) {
	const callers, wanted = 100, 50
	o := occupy(t, callers)
	healthy, evaluated := newLocal(t, "healthy"), make(chan error)
	go func() {
		for range wanted {
			response, err := healthy.Call(t.Context(), nil, body(1))
			response.Release()
			evaluated <- err
		}
	}()
	for done := 0; done < wanted; {
		select {
		case err := <-evaluated:
			if done++; err != nil {
				t.Error(err)
			}
		case o.ends <- struct{}{}:
			if err := <-o.results; err != nil {
				t.Error(err)
			}
			go o.call(t.Context())
		case <-o.running:
		}
	}
	o.finish(t, callers)
}

// TestALocalHookIsEvaluatedBesideThoseThatAreNew has more hooks called for the first time, each of which takes long, than are evaluated at the same time.
func TestALocalHookIsEvaluatedBesideThoseThatAreNew(t *testing.T) {
	healthy, running, ends := newLocal(t, "healthy"), make(chan struct{}, 2*atOnce()), make(chan struct{})
	call := func() {
		response, err := healthy.Call(t.Context(), nil, body(1))
		if err != nil {
			t.Error(err)
		}
		response.Release()
	}
	call()
	var calls sync.WaitGroup
	for i := range cap(running) {
		l := newLocal(t, fmt.Sprintf("new-%d", i))
		calls.Go(func() {
			_, _ = l.Call(t.Context(), nil, func() ([]byte, error) { running <- struct{}{}; <-ends; return nil, nil })
		})
	}
	for range atOnce() - 1 {
		<-running
	}
	for range 1000 {
		call()
	}
	close(ends)
	calls.Wait()
}

func TestALocalCallThatIsCancelledIsNotEvaluated(t *testing.T) {
	o := occupy(t, atOnce())
	for name, l := range map[string]*webhook.Local{"of the same hook": o.hook, "of another hook": newLocal(t, "other")} {
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error)
		go func() {
			_, err := l.Call(ctx, nil, func() ([]byte, error) { panic("it is evaluated") })
			cancelled <- err
		}()
		cancel()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	o.finish(t, atOnce())
	// No turn is lost.
	o = occupy(t, atOnce())
	o.finish(t, atOnce())
}

func TestALocalCallThatPanicsEndsItsTurn(t *testing.T) {
	l := newLocal(t, "panics")
	for range 3 * atOnce() {
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Call(t.Context(), nil, func() ([]byte, error) { panic("a defect") })
		}()
	}
	o := occupy(t, atOnce())
	o.finish(t, atOnce())
}

func TestALocalResponseWaitsForRoom(t *testing.T) {
	const limit = 256 << 10
	budget := fairqueue.Bytes(limit)
	shared := func(c *webhook.Config) { c.ResponseBudget, c.MaxResponseBytes = budget, limit }
	first, then := newLocal(t, "first", shared), newLocal(t, "then", shared)
	held, err := first.Call(t.Context(), nil, body(limit))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	evaluated, cancelled := make(chan struct{}), make(chan error)
	go func() {
		_, err := then.Call(ctx, nil, func() ([]byte, error) { close(evaluated); return body(limit)() })
		cancelled <- err
	}()
	<-evaluated
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that was stopped while it waited returned %v", err)
	}
	waiting := make(chan error)
	go func() {
		response, err := then.Call(t.Context(), nil, body(limit))
		response.Release()
		waiting <- err
	}()
	held.Release()
	if err := <-waiting; err != nil {
		t.Errorf("the call that waited until there was room: %v", err)
	}
	if used, _ := budget.Used(); used != 0 {
		t.Errorf("%d bytes are held in the end", used)
	}
}

// TestALocalHookIsEvaluatedWhileOthersWaitForRoom has a hook whose large responses wait for room, and hold the memory of their bodies.
func TestALocalHookIsEvaluatedWhileOthersWaitForRoom(t *testing.T) {
	const limit, calls = 256 << 10, 20
	budget := fairqueue.Bytes(limit)
	shared := func(c *webhook.Config) { c.ResponseBudget, c.MaxResponseBytes = budget, limit }
	large, healthy := newLocal(t, "large", shared), newLocal(t, "healthy", shared)
	held, err := large.Call(t.Context(), nil, body(limit))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	evaluated, ended := make(chan struct{}, calls), make(chan error, calls)
	for range calls {
		go func() {
			_, err := large.Call(ctx, nil, func() ([]byte, error) { evaluated <- struct{}{}; return body(limit)() })
			ended <- err
		}()
	}
	<-evaluated
	for range 50 {
		response, err := healthy.Call(t.Context(), nil, body(1))
		if err != nil {
			t.Fatal(err)
		}
		response.Release()
	}
	if len(ended) > 0 {
		t.Errorf("the hook was evaluated when %d calls that waited had ended", len(ended))
	}
	cancel()
	for range calls {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was stopped while it waited returned %v", err)
		}
	}
	held.Release()
}

// TestALocalHookIsReplacedWhileItIsEvaluated has a controller edited: its new hook is called, and its old one ended, during a call.
func TestALocalHookIsReplacedWhileItIsEvaluated(t *testing.T) {
	const bytes = 256 << 10
	budget := fairqueue.Bytes(4 * bytes)
	shared := func(c *webhook.Config) { c.ResponseBudget = budget }
	former, later := newLocal(t, "edited", shared), newLocal(t, "edited", shared)
	response, err := former.Call(t.Context(), nil, body(1))
	if err != nil {
		t.Fatal(err)
	}
	response.Release()
	begun, ends, result := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		response, err := former.Call(t.Context(), nil, func() ([]byte, error) {
			close(begun)
			<-ends
			return body(bytes)()
		})
		if len(response.Body) != bytes {
			t.Errorf("the call of the former hook returned %d bytes", len(response.Body))
		}
		response.Release()
		result <- err
	}()
	<-begun
	former.Close()
	response, err = later.Call(t.Context(), nil, body(bytes))
	if err != nil {
		t.Errorf("the new hook, while the former one is evaluated: %v", err)
	}
	response.Release()
	close(ends)
	if err := <-result; err != nil {
		t.Errorf("the former hook: %v", err)
	}
	if used, _ := budget.Used(); used != 0 {
		t.Errorf("%d bytes are held in the end", used)
	}
	later.Close()
	if left := series(t, "metacontroller_sync_requests_total", "edited"); len(left) > 0 {
		t.Errorf("metrics of hooks that are gone: %v", left)
	}
}
