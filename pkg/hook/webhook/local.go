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

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// Local stands for a client where the server evaluates a hook itself: what is called has the metrics, the limits and the budget of a webhook.
type Local struct {
	client *Client
	// turns are the evaluations of this hook that wait in the process. Few of each hook do, so that all hooks have their turns.
	turns chan struct{}
	// heavy is how many light evaluations must follow until the hook counts as light. It is untried at first, with one turn.
	heavy atomic.Int32
	tried sync.Once
}

// Evaluator is what a [Config.Transport] implements that decides when hooks are evaluated, as that of a simulation does. With others
// they are when it is their turn.
type Evaluator interface {
	// Evaluate returns what evaluate returns, or an error without having called it.
	Evaluate(ctx context.Context, e Evaluation) (Response, error)
}

// Evaluation is a hook that is to be evaluated.
type Evaluation struct {
	// ControllerKind and ControllerName name the controller, and Hook is the name of the hook.
	ControllerKind, ControllerName string
	Hook                           hook.Name
	// Body returns the request as a webhook would get it.
	Body func() []byte
	// Evaluate evaluates the hook, and returns the response.
	Evaluate func() (Response, error)
}

const (
	// heavyAfter is how long a light evaluation takes at most.
	heavyAfter = 50 * time.Millisecond
	// heavyFor is how many light evaluations make a hook light.
	heavyFor = 100
	// untried stands for that number until the first evaluation of a hook has ended.
	untried = -1
)

// localMethod is the label of the method in metrics of hooks that the server evaluates itself.
const localMethod = "inline"

// evaluations are the hooks that the process evaluates at the same time. More would not be faster, and each may need much memory. Those
// that take long, or wait for room for a large response, leave one place to the others. So do those of which nothing is known: many controllers
// may be created at once, and any of them may be heavy.
var (
	evaluations      = make(chan struct{}, max(2, runtime.GOMAXPROCS(0))) //nolint:gochecknoglobals // It bounds the process.
	heavyEvaluations = make(chan struct{}, cap(evaluations)-1)            //nolint:gochecknoglobals // It bounds the process.
	firstEvaluations = make(chan struct{}, cap(evaluations)-1)            //nolint:gochecknoglobals // It bounds the process.
)

// NewLocal returns a stand-in for the client of a hook, which has no webhook. The endpoint is what messages and metrics call it.
func NewLocal(config Config, endpoint string) (*Local, error) {
	config.setDefaults()
	config.Webhook = &v1alpha1.Webhook{} // It has the default of the timeout.
	vectors, ok := hookMetrics[config.Hook]
	if !ok {
		return nil, fmt.Errorf("unknown hook %q", config.Hook)
	}
	metrics.Register()
	c := &Client{config: config, endpoint: endpoint, controller: config.ControllerKind + "-" + config.ControllerName}
	c.leave = []func(){config.ResponseBudget.Join(c.controller)}
	c.series = vectors.acquire(seriesKey{url: endpoint, controllerName: config.ControllerName, controllerType: config.ControllerKind})
	l := &Local{client: c, turns: make(chan struct{}, cap(evaluations))}
	l.heavy.Store(untried)
	for range cap(l.turns) - 1 {
		l.turns <- struct{}{}
	}
	return l, nil
}

// Call evaluates the hook when it is its turn, and returns the body that evaluate returns, to be released by the caller. Waiting for room is
// limited as a webhook's call is. An [Evaluator] is shown the body that request returns.
func (l *Local) Call(ctx context.Context, request func() []byte, evaluate func() ([]byte, error)) (Response, error) {
	now := func() (Response, error) { return l.evaluate(ctx, evaluate) }
	c := &l.client.config
	if e, ok := c.Transport.(Evaluator); ok {
		return e.Evaluate(ctx, Evaluation{ControllerKind: c.ControllerKind, ControllerName: c.ControllerName, Hook: c.Hook, Body: request, Evaluate: now})
	}
	return now()
}

func (l *Local) evaluate(ctx context.Context, evaluate func() ([]byte, error)) (Response, error) {
	end, err := l.turn(ctx)
	if err != nil {
		return Response{}, l.client.failure(ctx, ctx, queued, err, nil)
	}
	defer end() // When there is room, too: else the bodies that wait for it would be beyond all limits.
	began := time.Now()
	body, err := l.measured(evaluate)
	l.weigh(time.Since(began), len(body))
	if err != nil {
		return Response{}, err
	}
	c := l.client
	response := Response{Body: body, ContentType: "application/json"}
	switch size := int64(len(body)); {
	case size > c.config.MaxResponseBytes:
		return Response{}, tooLarge(c.config.MaxResponseBytes)
	case size > freeBytes:
		limited, cancel := context.WithTimeout(ctx, c.config.timeout())
		defer cancel()
		if response.held, err = reserve(limited, c.config.ResponseBudget, c.controller, size); err != nil {
			return Response{}, c.failure(ctx, limited, crowded, err, nil)
		}
	}
	return response, nil
}

// turn waits until the hook may be evaluated, which is over with end.
func (l *Local) turn(ctx context.Context) (end func(), err error) {
	places := []chan struct{}{l.turns, evaluations}
	switch heavy := l.heavy.Load(); {
	case heavy == untried:
		places = []chan struct{}{l.turns, firstEvaluations, evaluations}
	case heavy > 0:
		places = []chan struct{}{l.turns, heavyEvaluations, evaluations}
	}
	for i, place := range places {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			leave(places[:i])
			return nil, ctx.Err()
		}
	}
	return func() { leave(places) }, nil
}

func leave(places []chan struct{}) {
	for _, place := range places {
		<-place
	}
}

// weigh notes whether an evaluation was light. After the first one the hook has all of its turns.
func (l *Local) weigh(took time.Duration, bytes int) {
	defer l.tried.Do(func() {
		for range cap(l.turns) - 1 {
			<-l.turns
		}
	})
	l.heavy.CompareAndSwap(untried, 0)
	if took > heavyAfter || bytes > freeBytes {
		l.heavy.Store(heavyFor)
	} else if left := l.heavy.Load(); left > 0 {
		l.heavy.CompareAndSwap(left, left-1)
	}
}

// measured evaluates the hook, and counts that.
func (l *Local) measured(evaluate func() ([]byte, error)) (body []byte, err error) {
	series, began, code := l.client.series, time.Now(), http.StatusInternalServerError // If it panics.
	series.inFlight(1)
	defer func() {
		series.inFlight(-1)
		series.returned(code, localMethod, time.Since(began))
	}()
	if body, err = evaluate(); err == nil {
		code = http.StatusOK
	}
	return body, err
}

// Endpoint returns what messages call the hook.
func (l *Local) Endpoint() string { return l.client.endpoint }

// Close removes the hook's series from the metrics. Closing twice does nothing.
func (l *Local) Close() { l.client.Close() }
