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

package app

import (
	"errors"
	"testing"
	"time"
)

// lost is a storage that has ended.
type lost struct{ done chan struct{} }

func (l lost) Done() <-chan struct{} { return l.done }

func (lost) Err() error { return errBroken }

func TestALostStorageEndsTheServer(t *testing.T) {
	gone := lost{make(chan struct{})}
	close(gone.done)
	t.Run("that ends when told", func(t *testing.T) {
		server := make(chan error, 1)
		var failed error
		err := await(server, gone, func(err error) {
			failed = err
			server <- nil
		}, time.Hour)
		if err != nil || !errors.Is(failed, errBroken) {
			t.Errorf("got %v, and the failure %v", err, failed)
		}
	})
	t.Run("that does not", func(t *testing.T) {
		var failed error
		if err := await(nil, gone, func(err error) { failed = err }, time.Millisecond); err != nil || !errors.Is(failed, errBroken) {
			t.Errorf("got %v, and the failure %v", err, failed)
		}
	})
	t.Run("but not when the server ended before", func(t *testing.T) {
		server := make(chan error, 1)
		server <- errBroken
		err := await(server, lost{make(chan struct{})}, func(err error) { t.Errorf("it failed: %v", err) }, time.Hour)
		if !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	})
}
