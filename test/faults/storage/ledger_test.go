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

package storage

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	client "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	// writers write at the same time, each to objects of its own.
	writers = 4
	// numberAnnotation holds the number of the last write of an object.
	numberAnnotation = fixture.Group + "/number"
	// fillAnnotation makes objects large.
	fillAnnotation = fixture.Group + "/fill"
	// writesOfEach is how often each object is written before there is another one.
	writesOfEach = 4
)

// A ledger writes controllers, and knows which writes were acknowledged.
type ledger struct {
	t      testing.TB
	name   string
	client client.CompositeControllerInterface
	// fill is how many bytes each write has.
	fill int
	// again says which errors a writer repeats its write after. Nil: none.
	again func(error) bool

	acks, repeated atomic.Int64
	mu             sync.Mutex
	// tried and acked are the numbers of the last writes of each object.
	tried, acked map[string]int
	// next is the number of the next write of each writer.
	next [writers]int
}

func newLedger(test *fixture.Test) *ledger {
	return &ledger{
		t: test.T, name: test.Name, client: test.Versioned.MetacontrollerV1alpha1().CompositeControllers(),
		tried: map[string]int{}, acked: map[string]int{},
	}
}

// acknowledged is how many writes were acknowledged so far.
func (l *ledger) acknowledged() int { return int(l.acks.Load()) }

// write writes until so many writes more were acknowledged, or until a writer fails. It returns the first error of each writer.
func (l *ledger) write(ctx context.Context, writes int) []error {
	var working sync.WaitGroup
	errs := make([]error, writers)
	end := l.acks.Load() + int64(writes)
	for w := range writers {
		working.Go(func() {
			for l.acks.Load() < end && errs[w] == nil && ctx.Err() == nil {
				errs[w] = l.writeOne(ctx, w)
			}
		})
	}
	working.Wait()
	var failed []error
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// writeOne makes the next write of a writer. A write that is not acknowledged may have happened, and its number is not used again.
func (l *ledger) writeOne(ctx context.Context, w int) error {
	l.mu.Lock()
	n := l.next[w]
	l.next[w]++
	name := fmt.Sprintf("%s-%d-%d", l.name, w, n/writesOfEach)
	_, known := l.acked[name]
	l.tried[name] = n
	l.mu.Unlock()
	annotations := map[string]string{numberAnnotation: strconv.Itoa(n), fillAnnotation: strings.Repeat("x", l.fill)}
	err := l.put(ctx, name, annotations, known)
	for began := time.Now(); err != nil && l.again != nil && l.again(err) && time.Since(began) < limit(); err = l.put(ctx, name, annotations, known) {
		l.repeated.Add(1)
		<-time.After(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[name] = n
	l.acks.Add(1)
	return nil
}

func (l *ledger) put(ctx context.Context, name string, annotations map[string]string, known bool) error {
	if !known {
		_, err := l.client.Create(ctx, controller(name, annotations), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`,
		numberAnnotation, annotations[numberAnnotation], fillAnnotation, annotations[fillAnnotation])
	_, err := l.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// controller returns a controller that is not run with the flag stored.
func controller(name string, annotations map[string]string) *v1alpha1.CompositeController {
	return &v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{runLabel: run}},
		Spec: v1alpha1.CompositeControllerSpec{
			ParentResource: v1alpha1.CompositeControllerParentResourceRule{ResourceRule: fixture.Rule(fixture.Things)},
			Hooks:          &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:9/")}}},
		},
	}
}

// check complains of each object that does not have its last acknowledged write, or a later one that was tried.
func (l *ledger) check() {
	l.t.Helper()
	list, err := l.client.List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatalf("listing what was written: %v", err)
	}
	found := map[string]*v1alpha1.CompositeController{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, acked := range l.acked {
		o := found[name]
		if o == nil {
			l.t.Errorf("%s is lost, of which the write %d was acknowledged", name, acked)
			continue
		}
		if n, err := strconv.Atoi(o.Annotations[numberAnnotation]); err != nil || n < acked || n > l.tried[name] {
			l.t.Errorf("%s has the write %q, want one from %d, which was acknowledged, to %d, which was tried", name, o.Annotations[numberAnnotation], acked, l.tried[name])
		}
		if got := len(o.Annotations[fillAnnotation]); got != l.fill {
			l.t.Errorf("%s has %d bytes to fill it, want %d", name, got, l.fill)
		}
	}
}
