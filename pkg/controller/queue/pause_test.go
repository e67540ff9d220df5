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

package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

func TestAPauseCutsSyncsShortAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Int64
		block := make(chan struct{})
		p, reported := run(t, queue.Config{Sync: func(ctx context.Context, _ parent.Key, _ history.Begun) (queue.Result, error) {
			begun.Add(1)
			select {
			case <-block:
				ended.Add(1)
				return queue.Result{}, nil
			case <-ctx.Done():
				<-time.After(time.Second) // A request is under way.
				return queue.Result{}, errors.New("cut short")
			}
		}})
		for _, name := range []string{"a", "b", "c"} {
			p.Add(key(name), queue.Live)
		}
		synctest.Wait()
		p.Pause()
		synctest.Wait()
		if p.UnderWay() != 2 {
			t.Errorf("%d syncs are under way, want 2", p.UnderWay())
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if p.UnderWay() != 0 || begun.Load() != 2 || p.Pending() != 3 {
			t.Errorf("%d syncs are under way and %d began; %d keys wait; want 0, 2 and 3", p.UnderWay(), begun.Load(), p.Pending())
		}
		p.Add(key("d"), queue.Resync)
		p.Forget(key("b"))
		close(block)
		p.Resume()
		synctest.Wait()
		if ended.Load() != 3 || p.Failing() != 0 || p.Counters.Failed.Load() != 0 {
			t.Errorf("%d syncs ended well, %d parents fail; want 3 and 0", ended.Load(), p.Failing())
		}
		reported.Range(func(k, err any) bool {
			t.Errorf("the error of %v is reported: %v", k, err)
			return true
		})
	})
}

func TestAQueueThatBeginsPausedSyncsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced atomic.Int64
		p, _ := build(queue.Config{Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
			synced.Add(1)
			return queue.Result{ResyncAfter: time.Minute}, nil
		}})
		p.Pause()
		stop := start(t, p)
		p.Add(key("a"), queue.Live)
		<-time.After(time.Hour)
		if synced.Load() != 0 {
			t.Error("a key is synced during a pause")
		}
		p.Resume()
		<-time.After(time.Second)
		if synced.Load() != 1 {
			t.Errorf("%d syncs after the pause, want 1", synced.Load())
		}
		p.Pause()
		<-time.After(time.Hour)
		p.Resume()
		<-time.After(time.Second)
		if synced.Load() != 2 {
			t.Errorf("%d syncs, want 2: a time that came during the pause counts once", synced.Load())
		}
		stop()
	})
}

func TestASyncThatEndsWellDuringAPauseIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced atomic.Int64
		p, _ := run(t, queue.Config{Sync: func(context.Context, parent.Key, history.Begun) (queue.Result, error) {
			<-time.After(time.Second)
			synced.Add(1)
			return queue.Result{}, nil
		}})
		p.Add(key("a"), queue.Live)
		synctest.Wait()
		p.Pause()
		<-time.After(time.Minute)
		p.Resume()
		<-time.After(time.Minute)
		if synced.Load() != 1 {
			t.Errorf("%d syncs, want 1", synced.Load())
		}
	})
}

func TestTheParentThatFailsLongestStaysTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy atomic.Value
		healthy.Store("")
		p, _ := run(t, queue.Config{Workers: 1, Sync: func(_ context.Context, k parent.Key, _ history.Begun) (queue.Result, error) {
			if healthy.Load() == k.Name {
				return queue.Result{}, nil
			}
			return queue.Result{}, errors.New(k.Name + " is broken")
		}})
		want := func(name string) {
			t.Helper()
			synctest.Wait()
			first, _ := p.LongestFailing(func(queue.Failed) bool { return false })
			if first.Key.Name != name || first.Err != nil && first.Err.Error() != name+" is broken" {
				t.Errorf("%v fails longest with %v, want %q", first.Key, first.Err, name)
			}
		}
		want("")
		for _, name := range []string{"a", "b", "c"} {
			p.Add(key(name), queue.Live)
			<-time.After(time.Second)
		}
		for range 20 { // Retries, of which each is the latest once.
			want("a")
			<-time.After(time.Second)
		}
		healthy.Store("a")
		p.Add(key("a"), queue.Live)
		<-time.After(time.Second)
		want("b")
		healthy.Store("")
		p.Add(key("a"), queue.Live)
		<-time.After(time.Second)
		want("b")
		p.Forget(key("b"))
		want("c")
	})
}
