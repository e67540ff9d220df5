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

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// call calls a sync hook in the way in which the engine does.
func call(t *testing.T, f CompositeFunc, timeout time.Duration, request string) (string, error) {
	t.Helper()
	client, err := webhook.New(webhook.Config{
		Hook: hook.Sync, ControllerKind: v1alpha1.KindComposite, ControllerName: "a", Transport: functions{"/compositecontroller/a/sync": functionOf(f)},
		Webhook: &v1alpha1.Webhook{URL: new("http://function.invalid/compositecontroller/a/sync"), Timeout: &metav1.Duration{Duration: timeout}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	body := []byte(request)
	response, err := client.Ask(t.Context(), body)
	if string(body) != request {
		t.Errorf("the function changed what the engine keeps: %s", body)
	}
	defer response.Release()
	return string(response.Body), err
}

const parent = `{"parent":{"apiVersion":"example.com/v1","kind":"Website","metadata":{"name":"a"},"spec":{"replicas":3,"tags":["x"]}},"children":{}}`

func TestAFunctionIsCalled(t *testing.T) {
	for name, tc := range map[string]struct {
		f          CompositeFunc
		timeout    time.Duration
		want, fail string
	}{
		"its response is that of the hook": {
			f: func(_ context.Context, r *CompositeRequest) (*CompositeResponse, error) {
				return &CompositeResponse{Status: map[string]any{"name": r.Parent.GetName()}}, nil
			},
			want: `{"status":{"name":"a"},"children":null}`,
		},
		"it may change its request": {
			f: func(_ context.Context, r *CompositeRequest) (*CompositeResponse, error) {
				r.Parent.SetName("b")
				r.Parent.Object["spec"].(map[string]any)["tags"].([]any)[0] = "y"
				return &CompositeResponse{Children: []*Object{r.Parent}}, nil
			},
			want: `{"children":[{"apiVersion":"example.com/v1","kind":"Website","metadata":{"name":"b"},"spec":{"replicas":3,"tags":["y"]}}]}`,
		},
		"its error is that of the hook": {
			f: func(context.Context, *CompositeRequest) (*CompositeResponse, error) {
				return nil, errors.New("no quota")
			},
			fail: "no quota",
		},
		"a panic is an error": {
			f:    func(context.Context, *CompositeRequest) (*CompositeResponse, error) { panic("oh no") },
			fail: "panic while running the function: oh no; the log says where",
		},
		"nothing is an error": {
			f:    func(context.Context, *CompositeRequest) (*CompositeResponse, error) { return nil, nil },
			fail: "the function returned neither a response nor an error",
		},
		"what is not JSON is an error": {
			f: func(context.Context, *CompositeRequest) (*CompositeResponse, error) {
				return &CompositeResponse{Status: map[string]any{"f": func() {}}}, nil
			},
			fail: "encoding the response: ",
		},
		"its context has the timeout": {
			f: func(ctx context.Context, _ *CompositeRequest) (*CompositeResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			timeout: time.Millisecond,
			fail:    "the function did not return within its timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := call(t, tc.f, tc.timeout, parent)
			if tc.fail != "" {
				if e, ok := errors.AsType[*webhook.FunctionError](err); !ok || !strings.HasPrefix(e.Error(), tc.fail) {
					t.Errorf("got %v, want an error that begins with %q", err, tc.fail)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestAPanicIsCounted(t *testing.T) {
	before := recovery.Count()
	_, err := call(t, func(context.Context, *CompositeRequest) (*CompositeResponse, error) { panic("oh no") }, 0, parent)
	if _, ok := errors.AsType[*recovery.PanicError](err); !ok || recovery.Count() != before+1 {
		t.Errorf("got %v, and %d panics", err, recovery.Count()-before)
	}
}

func TestTheStackOfAPanicIsLoggedOnce(t *testing.T) {
	type panicking struct {
		in   func(text string)
		text string
	}
	here := func(text string) { panic(text) }
	there := func(text string) { panic(text) }
	for name, tc := range map[string]struct {
		calls []panicking
		// want says of each call whether its stack is logged.
		want []bool
	}{
		"the same panic":               {[]panicking{{here, "a"}, {here, "a"}, {here, "a"}}, []bool{true, false, false}},
		"another text, as of a parent": {[]panicking{{here, "a"}, {here, "b"}}, []bool{true, false}},
		"another place":                {[]panicking{{here, "a"}, {there, "a"}, {here, "a"}}, []bool{true, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
			next := 0
			f := recovered(func(context.Context, []byte) ([]byte, error) {
				tc.calls[next].in(tc.calls[next].text)
				return nil, nil
			})
			for next = range tc.calls {
				if _, err := f(ctx, nil); err == nil {
					t.Error("a panic is no error")
				}
			}
			var got []bool
			for _, line := range lines {
				got = append(got, strings.Contains(line, "functions_test.go"))
				if strings.Contains(line, "Recovered from a panic as before") == got[len(got)-1] {
					t.Errorf("logged %s", line)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("stacks are logged otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTypedHooks(t *testing.T) {
	type website struct {
		metav1.ObjectMeta `json:"metadata"`

		Spec struct {
			Replicas int32 `json:"replicas"`
		} `json:"spec"`
	}
	type status struct {
		Ready bool  `json:"ready"`
		Large int64 `json:"large"`
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	custom := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Page", "metadata": map[string]any{"name": "a"}}}
	f := Typed(func(_ context.Context, w *website, r *CompositeRequest) (*Desired[status], error) {
		if w.Name != "a" || w.Spec.Replicas != 3 || r.Parent.GetName() != "a" {
			t.Errorf("the parent is %+v", w)
		}
		return &Desired[status]{
			Status: status{Ready: true, Large: 1<<53 + 1}, Children: []runtime.Object{configMap, custom}, ResyncAfter: 1500 * time.Millisecond, Finalized: true,
		}, nil
	})
	got, err := call(t, f, 0, parent)
	want := `{"status":{"large":9007199254740993,"ready":true},"children":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},` +
		`{"apiVersion":"example.com/v1","kind":"Page","metadata":{"name":"a"}}],"resyncAfterSeconds":1.5,"finalized":true}`
	if err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if configMap.Kind != "" {
		t.Errorf("the object of the program changed: %+v", configMap)
	}
}

func TestTypedHooksSayWhatDoesNotFit(t *testing.T) {
	type website struct {
		Spec struct {
			Replicas bool `json:"replicas"`
		} `json:"spec"`
	}
	for name, tc := range map[string]struct {
		f    CompositeFunc
		want string
	}{
		"a parent of another type": {
			Typed(func(context.Context, *website, *CompositeRequest) (*Desired[struct{}], error) {
				return &Desired[struct{}]{}, nil
			}),
			"reading the Website a as a engine.website: ",
		},
		"a status that is no object": {
			Typed(func(context.Context, *Object, *CompositeRequest) (*Desired[int], error) { return &Desired[int]{}, nil }),
			"the status, a int, is not an object: ",
		},
		"a child without a kind": {
			Typed(func(context.Context, *Object, *CompositeRequest) (*Desired[struct{}], error) {
				return &Desired[struct{}]{Children: []runtime.Object{&unstructured.Unstructured{Object: map[string]any{}}}}, nil
			}),
			"children[0]: the object has no apiVersion or no kind",
		},
		"no child": {
			Typed(func(context.Context, *Object, *CompositeRequest) (*Desired[struct{}], error) {
				return &Desired[struct{}]{Children: []runtime.Object{nil}}, nil
			}),
			"children[0]: there is no object to convert",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := call(t, tc.f, 0, parent); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestAs(t *testing.T) {
	var o Object
	if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`), &o); err != nil {
		t.Fatal(err)
	}
	got, err := As[corev1.ConfigMap](&o)
	want := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v\n%s", err, diff)
	}
	if got, err := As[corev1.ConfigMap](nil); got != nil || err != nil {
		t.Errorf("got %v, %v of nothing", got, err)
	}
}
