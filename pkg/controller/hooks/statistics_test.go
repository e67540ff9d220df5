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
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// declaredHook returns a hook that is never called.
func declaredHook(t *testing.T) *Hook {
	t.Helper()
	set, err := New(webhook.Config{}, Kinds{}, &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://hook.example.com/sync")}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return set.Sync
}

func TestAHookFailsWhileAllItsCallsFail(t *testing.T) {
	refused := &webhook.CallError{Hook: hook.Sync, Endpoint: "http://h", Cause: "connection refused", Advice: "start the hook"}
	slow := &webhook.CallError{Hook: hook.Sync, Endpoint: "http://h", Cause: "no response within 10s", Connected: true}
	missing := &webhook.CredentialsError{Use: "basicAuth", Reference: webhook.Reference{Kind: "Secret", Namespace: "ns", Name: "s"}, Err: errors.New("not found")}
	invalid := &hook.RejectedError{Field: "children", Detail: "must be a list"}
	fail := func(err error) func(*statistics) {
		return func(s *statistics) { s.called(webhook.RootKey{Name: "p"}, time.Millisecond, err) }
	}
	failFor := func(name string) func(*statistics) {
		return func(s *statistics) {
			s.called(webhook.RootKey{Name: name}, time.Millisecond, &webhook.StatusError{Code: 500, Body: name + " is bad"})
		}
	}
	leave := func(name string) func(*statistics) {
		return func(s *statistics) { s.forget(webhook.RootKey{Name: name}) }
	}
	many := func(each func(string) func(*statistics)) (steps []func(*statistics)) {
		for n := range 100 {
			steps = append(steps, each(fmt.Sprint("parent ", n)))
		}
		return steps
	}
	succeed := func(s *statistics) { s.called(webhook.RootKey{Name: "p"}, time.Millisecond, nil); s.succeeded() }
	reject := func(s *statistics) {
		s.called(webhook.RootKey{Name: "p"}, time.Millisecond, nil)
		s.failed(webhook.RootKey{Name: "p"}, invalid)
	}
	wait := func(d time.Duration) func(*statistics) { return func(*statistics) { <-time.After(d) } }
	for name, tc := range map[string]struct {
		reason string
		steps  []func(*statistics)
		// want are parts of the cause; none: the hook does not fail.
		want                     []string
		unreachable, credentials bool
		since                    time.Duration
	}{
		"NotCalled": {"Nothing is known.", []func(*statistics){wait(time.Hour)}, nil, false, false, 0},
		"OneFailure": {
			"The call may succeed when it is repeated.", []func(*statistics){fail(refused), wait(failingAfter - 1)}, nil, false, false, 0,
		},
		"Refused": {
			"It is known after half a second, since when.",
			[]func(*statistics){wait(time.Minute), fail(refused), wait(time.Second), fail(refused)},
			[]string{"calling http://h: connection refused; start the hook"},
			true, false, time.Minute,
		},
		"Success": {"It ends what was before.", []func(*statistics){fail(refused), wait(time.Hour), succeed, wait(time.Hour)}, nil, false, false, 0},
		"FailureAfterSuccess": {
			"It begins anew.",
			[]func(*statistics){fail(refused), wait(time.Hour), succeed, fail(slow), wait(time.Second)},
			[]string{"no response within 10s"},
			false, false, time.Hour,
		},
		"LatestCause": {
			"The cause is the latest.",
			[]func(*statistics){fail(refused), wait(time.Second), fail(&webhook.StatusError{Code: 500, Body: "boom"})},
			[]string{"calling http://hook.example.com/sync: unsupported status code: 500 body: boom; see the log of the hook"},
			false, false, 0,
		},
		"OneOfManyParents": {
			"The cause stays that of one parent, which fails in the same words each time.",
			[]func(*statistics){
				failFor("a"), failFor("b"), wait(time.Second), failFor("c"), failFor("a"), failFor("b"),
			},
			[]string{"body: a is bad"},
			false, false, 0,
		},
		"TheParentLeaves": {
			"Another one is named when it fails next.",
			[]func(*statistics){
				failFor("a"), failFor("b"), wait(time.Second), leave("a"), failFor("c"), failFor("b"),
			},
			[]string{"body: c is bad"},
			false, false, 0,
		},
		"AllParentsLeave": {
			"Nothing is known of calls for others.",
			[]func(*statistics){failFor("a"), failFor("b"), failFor("a"), wait(time.Second), leave("b"), leave("a")},
			nil, false, false, 0,
		},
		"AParentComesAfterAllHaveLeft": {
			"It fails since its own first call.",
			[]func(*statistics){failFor("a"), leave("a"), wait(time.Minute), failFor("b"), wait(time.Second)},
			[]string{"body: b is bad"},
			false, false, time.Minute,
		},
		"MoreParentsLeaveThanAreRemembered": {
			"It is not known that there is no other one.",
			slices.Concat(many(failFor), []func(*statistics){wait(time.Second)}, many(leave)),
			[]string{"body: parent 0 is bad"},
			false, false, 0,
		},
		"AllParentsLeaveWhileItIsRefused": {
			"The next parent would find it so.",
			[]func(*statistics){fail(refused), wait(time.Second), leave("p")},
			[]string{"connection refused"},
			true, false, 0,
		},
		"AllParentsLeaveAfterItWasRefused": {
			"That was over.",
			[]func(*statistics){fail(refused), wait(time.Second), failFor("a"), leave("p"), leave("a")},
			nil, false, false, 0,
		},
		"OneOfManyParentsThenRefused": {
			"What concerns all calls is named at once.",
			[]func(*statistics){failFor("a"), wait(time.Second), fail(refused)},
			[]string{"connection refused"},
			true, false, 0,
		},
		"RefusedThenOneOfManyParents": {
			"What concerns all calls is over.",
			[]func(*statistics){fail(refused), wait(time.Second), failFor("a"), failFor("b")},
			[]string{"body: a is bad"},
			false, false, 0,
		},
		"AnotherParentAfterSuccess": {
			"What was before is over.",
			[]func(*statistics){failFor("a"), succeed, failFor("b"), wait(time.Second), failFor("a")},
			[]string{"body: b is bad"},
			false, false, 0,
		},
		"Gateway": {
			"So says a proxy for a hook that is not there.",
			[]func(*statistics){fail(&webhook.StatusError{Code: http.StatusBadGateway}), wait(time.Second)},
			[]string{"502"},
			true, false, 0,
		},
		"Rejected": {
			"A response that cannot be used is a failure.",
			[]func(*statistics){reject, wait(time.Second), reject},
			[]string{"children: must be a list", "correct the response"},
			false, false, 0,
		},
		"Patience": {
			"A hook that asks for patience does not fail.",
			[]func(*statistics){fail(&webhook.RetryLaterError{Status: 429}), wait(30 * time.Second)},
			nil, false, false, 0,
		},
		"NoEndOfPatience": {
			"It does when it asks for nothing else.",
			[]func(*statistics){fail(&webhook.RetryLaterError{Status: 429}), wait(time.Minute)},
			[]string{"429", "overloaded"},
			true, false, 0,
		},
		"NoRoom": {
			"A call that other calls left no room is none.",
			[]func(*statistics){fail(&webhook.CallError{Cause: "no room for the request", NoRoom: true}), wait(time.Hour)},
			nil, false, false, 0,
		},
		"Stopped": {
			"The end of the controller is no failure.",
			[]func(*statistics){fail(&webhook.CallError{Err: context.Canceled}), fail(&webhook.CallError{Err: http.ErrServerClosed}), wait(time.Hour)},
			nil, false, false, 0,
		},
		"Credentials": {
			"Object and cure are named.",
			[]func(*statistics){fail(missing), wait(time.Second)},
			[]string{"basicAuth of the hook, Secret ns/s: not found", "as soon as it is there"},
			true, true, 0,
		},
		"CredentialsAreChecked": {
			"No call is needed.",
			[]func(*statistics){func(s *statistics) { s.checked(missing) }, wait(time.Hour), func(s *statistics) { s.checked(missing) }},
			[]string{"Secret ns/s"},
			true, true, 0,
		},
		"CredentialsAreBack": {
			"Neither is one to see that they are back.",
			[]func(*statistics){fail(missing), wait(time.Second), func(s *statistics) { s.checked(nil) }, wait(time.Second)},
			nil, false, false, 0,
		},
		"CredentialsAreBackAndTheHookIsDead": {
			"Then the hook is the cause.",
			[]func(*statistics){fail(missing), wait(time.Second), fail(refused), wait(time.Second)},
			[]string{"connection refused"},
			true, false, 0,
		},
		"LongCause": {
			"What a hook returns does not fill the status.",
			[]func(*statistics){fail(&webhook.StatusError{Code: 500, Body: strings.Repeat("ä", 4000)}), wait(time.Second)},
			[]string{"…"},
			false, false, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := declaredHook(t), time.Now()
				for _, step := range tc.steps {
					step(&h.made)
				}
				got, fails := h.failing(time.Now())
				if fails != (tc.want != nil) {
					t.Fatalf("fails = %v, %+v: %s", fails, got, tc.reason)
				}
				if !fails {
					return
				}
				for _, part := range tc.want {
					if !strings.Contains(got.Cause, part) {
						t.Errorf("the cause is %q, want %q in it: %s", got.Cause, part, tc.reason)
					}
				}
				if got.Unreachable != tc.unreachable || got.Credentials != tc.credentials || got.Since.Sub(began) != tc.since || len(got.Cause) > 2*maxCause {
					t.Errorf("got %+v after %s: %s", got, got.Since.Sub(began), tc.reason)
				}
			})
		})
	}
}

func TestTheCauseOfAFailedFunctionIsWhatItReturned(t *testing.T) {
	if got := declaredHook(t).explain(&webhook.FunctionError{Err: errors.New("the moon\nis down")}); got != "the moon is down" {
		t.Errorf("got %q", got)
	}
}

func TestStatusOfAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began := declaredHook(t), time.Now()
		set := &Set{Sync: h}
		if set.Called() || len(set.Failing()) != 0 {
			t.Error("a hook that was not called is known to work or fail")
		}
		first := set.Statuses()[0]
		if first.Name != "sync" || first.Calls != 0 || first.LastSuccessTime != nil || first.LastFailureTime != nil || first.P50Milliseconds != nil {
			t.Errorf("before the first call: %+v", first)
		}
		for n := range 200 {
			h.made.called(webhook.RootKey{Name: "p"}, time.Duration(n+1)*time.Millisecond, nil)
			h.made.succeeded()
		}
		<-time.After(time.Second)
		h.made.called(webhook.RootKey{Name: "p"}, time.Second, &webhook.StatusError{Code: 500, Body: "boom"})
		s := set.Statuses()[0]
		if !set.Called() || s.Calls != 201 || !s.LastSuccessTime.Time.Equal(began) || s.LastFailureTime.Sub(began) != time.Second ||
			!strings.Contains(s.LastFailure, "500 body: boom") {
			t.Errorf("after the calls: %+v", s)
		}
		if p50, p99 := *s.P50Milliseconds, *s.P99Milliseconds; p50 < 100 || p50 > 128 || p99 < 199 || p99 > 256 {
			t.Errorf("p50 %d ms, p99 %d ms of calls that took 1 to 200 ms", p50, p99)
		}
	})
}

func TestQuantiles(t *testing.T) {
	for _, took := range []time.Duration{0, time.Microsecond, 3 * time.Microsecond, 7 * time.Microsecond, time.Millisecond, 10 * time.Second, time.Hour} {
		t.Run(took.String(), func(t *testing.T) {
			if b := bucket(took); end(b) < took || b > 0 && took > 4*time.Microsecond && end(b-1) > took {
				t.Errorf("bucket %d ends at %s", b, end(b))
			}
		})
	}
	if b := bucket(1000 * time.Hour); b != doublings*steps-1 {
		t.Errorf("a call of weeks is in bucket %d", b)
	}
	var s times
	now := time.Now()
	s.add(now, time.Second)
	s.add(now.Add(period), time.Millisecond)
	if got := *s.quantile(99); got < 1000 || got > 1250 {
		t.Errorf("p99 over two periods is %d ms", got)
	}
	s.add(now.Add(2*period), time.Millisecond)
	if got := *s.quantile(99); got > 2 {
		t.Errorf("p99 is %d ms although the slow call is two periods old", got)
	}
	s.add(now.Add(10*period), time.Minute)
	if got := *s.quantile(50); got < 60000 {
		t.Errorf("p50 is %d ms although the only call of the last periods took a minute", got)
	}
}

func TestCountingACallAllocatesNothing(t *testing.T) {
	h := declaredHook(t)
	if n := testing.AllocsPerRun(1000, func() { h.made.called(webhook.RootKey{Name: "p"}, time.Millisecond, nil); h.made.succeeded() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
