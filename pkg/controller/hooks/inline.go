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

package hooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// evaluated is the client of an inline hook. Nothing of its responses is remembered, and it reads no credentials.
type evaluated struct {
	*webhook.Local

	compiled *compiled
	name     hook.Name
}

var _ client = (*evaluated)(nil)

func (e *evaluated) Call(ctx context.Context, _ webhook.RootKey, r Request) (webhook.Response, error) {
	return e.Ask(ctx, r)
}

func (e *evaluated) Ask(ctx context.Context, r Request) (webhook.Response, error) {
	program, err := e.compiled.program(ctx, e.name)
	if err != nil {
		return webhook.Response{}, err
	}
	return e.Local.Call(ctx, func() []byte { return r.Encode(r.Request) }, func() ([]byte, error) {
		body, err := program.Call(ctx, r.Request)
		if err != nil {
			err = &evaluationError{err}
		}
		return body, err
	})
}

func (e *evaluated) Check(ctx context.Context) (known bool, err error) {
	e.compiled.check(ctx)
	e.compiled.mu.Lock()
	defer e.compiled.mu.Unlock()
	return true, e.compiled.problem(e.name)
}

func (e *evaluated) ReadsStatus() bool {
	e.compiled.mu.Lock()
	defer e.compiled.mu.Unlock()
	program := e.compiled.programs[e.name]
	return program == nil || program.ReadsStatus()
}

func (*evaluated) References() []webhook.Reference { return nil }

func (*evaluated) Forget(webhook.RootKey) {}

func (*evaluated) Remembered() int { return 0 }

// evaluationError says that an inline hook failed for a request.
type evaluationError struct{ error }

// Unwrap returns the cause.
func (e *evaluationError) Unwrap() error { return e.error }

// FailureReason returns the reason by which metrics count the error.
func (*evaluationError) FailureReason() string { return metrics.ReasonHook }

// A CompileError says that an inline hook does not fit to the kinds as the cluster serves them, or that these could not be read.
type CompileError struct {
	// Err says where the hook is wrong, and what would fit.
	Err error
	// Runs says that the hook goes on as it was compiled before.
	Runs bool
}

// Error returns what is wrong.
func (e *CompileError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CompileError) Unwrap() error { return e.Err }

// FailureReason returns the reason by which metrics count the error.
func (*CompileError) FailureReason() string { return metrics.ReasonHook }

func (e *CompileError) advice() string {
	if e.Runs {
		return "the hook goes on as it was compiled before; correct the controller, or the kind, before the server starts again"
	}
	return "correct the controller, or the kind"
}

// compiled are the inline hooks of a controller. They are compiled together: what the sync hook is shown is up to the customize hook.
type compiled struct {
	definition inline.Definition
	discovery  *discovery.Discovery
	// compiling is that of Kinds.
	compiling chan struct{}

	mu sync.Mutex
	// epochs are those of the kinds for which there are programs and problems, nil if these kinds could not be read, and read stands for what was read.
	epochs []int64
	read   string
	// unsure says that a kind was not served, or had no schema, so that compiling again may find something else.
	unsure bool
	// programs are the last ones that were checked, and problems say why there are no later ones, nil before the first attempt.
	programs map[hook.Name]*inline.Program
	problems map[hook.Name]error
}

// program returns the program of a hook. It is compiled first if that was not tried yet, or if a kind has appeared that it does not know: the
// program would be shown none of its objects. Another attempt is up to those who check from time to time, since calls are many.
func (c *compiled) program(ctx context.Context, name hook.Name) (*inline.Program, error) {
	if c.outdated() {
		c.check(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if program := c.programs[name]; program != nil {
		return program, nil
	}
	return nil, c.problem(name)
}

func (c *compiled) outdated() bool {
	now, _ := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problems == nil || c.unsure && !slices.Equal(now, c.epochs)
}

// problem returns why a hook could not be compiled when that was last tried. It is called with the lock held.
func (c *compiled) problem(name hook.Name) error {
	problem := c.problems[name]
	switch {
	case problem != nil:
		return &CompileError{Err: problem, Runs: c.programs[name] != nil}
	case c.programs[name] == nil:
		return &CompileError{Err: errors.New("it is not compiled yet")}
	}
	return nil
}

// check compiles the hooks if that may have another result than before. A hook that is wrong now keeps its program.
func (c *compiled) check(ctx context.Context) {
	select {
	case c.compiling <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.compiling }()
	now, settled := c.now()
	c.mu.Lock()
	current, before := !c.unsure && settled && slices.Equal(now, c.epochs), c.read
	c.mu.Unlock()
	if current {
		return
	}
	kinds := &inline.Published{
		Kind: func(apiVersion, resource string) (string, error) {
			found, err := c.discovery.Resource(ctx, apiVersion, resource)
			if _, unserved := errors.AsType[*discovery.NotFoundError](err); unserved {
				return "", nil
			}
			return found.Kind, err
		},
		Document: func(version schema.GroupVersion) ([]byte, error) { return c.discovery.OpenAPI(ctx, version) },
	}
	// Most of what counts as a change of a kind, such as a webhook that mutates its objects, leaves its schema as it was.
	read := kinds.Read(c.definition.Resources())
	if read != "" && read == before {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.epochs = now
		return
	}
	programs, warnings, errs := inline.Compile(c.definition, kinds)
	if ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).V(2).Info("Compiled the inline hooks", "errors", errs, "warnings", warnings, "problem", kinds.Err())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epochs, c.read, c.unsure, c.problems = nil, "", false, map[hook.Name]error{}
	if kinds.Err() == nil { // What is compiled against half of the schemas is checked by half.
		c.epochs, c.read, c.unsure = now, read, len(warnings) > 0
		maps.Copy(c.programs, programs)
	}
	for _, name := range []hook.Name{hook.Sync, hook.Finalize, hook.Customize} {
		c.problems[name] = of(errs, name)
		if kinds.Err() != nil {
			c.problems[name] = kinds.Err() // What is wrong may be so because of that.
		}
	}
}

// of returns the errors of one hook, nil if there are none.
func of(errs field.ErrorList, name hook.Name) error {
	var own field.ErrorList
	for _, err := range errs {
		if strings.HasPrefix(err.Field, fmt.Sprintf("spec.hooks.%s.", name)) {
			own = append(own, err)
		}
	}
	return own.ToAggregate()
}

// now returns numbers that grow when the kinds of the definition change, and whether all API servers can be expected to follow the last change.
func (c *compiled) now() (epochs []int64, settled bool) {
	settled = true
	for _, rule := range c.definition.Resources() {
		if version, err := schema.ParseGroupVersion(rule.APIVersion); err == nil {
			resource := version.WithResource(rule.Resource).GroupResource()
			epoch := c.discovery.Epoch(resource)
			epochs, settled = append(epochs, epoch), settled && epoch == c.discovery.Followed(resource)
		}
	}
	return epochs, settled
}
