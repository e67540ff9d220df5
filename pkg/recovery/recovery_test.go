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

package recovery_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

func TestCallReturnsWhatTheFunctionReturns(t *testing.T) {
	want := errors.New("some error")
	before := recovery.Count()
	for _, err := range []error{nil, want} {
		if got := recovery.Call(t.Context(), "testing", func() error { return err }); !errors.Is(got, err) {
			t.Errorf("got %v, want %v", got, err)
		}
	}
	if recovery.Count() != before {
		t.Error("a panic was counted where there was none")
	}
}

func TestCallTurnsAPanicIntoAnErrorAndCountsIt(t *testing.T) {
	inner := errors.New("inner")
	for name, value := range map[string]any{"text": "boom", "error": inner} {
		before := recovery.Count()
		err := recovery.Call(t.Context(), "writing children", func() error { panic(value) })
		found, ok := errors.AsType[*recovery.PanicError](err)
		if !ok || found.Value != value || !strings.Contains(err.Error(), "writing children") {
			t.Errorf("%s: got %v", name, err)
		}
		if recovery.Count() != before+1 {
			t.Errorf("%s: counted %d panics, want 1", name, recovery.Count()-before)
		}
	}
	if err := recovery.Call(t.Context(), "testing", func() error { panic(inner) }); !errors.Is(err, inner) {
		t.Errorf("got %v, which does not wrap what the function panicked with", err)
	}
}
