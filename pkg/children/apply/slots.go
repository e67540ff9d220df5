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

package apply

import "context"

// slots bound the writes of all parents together.
type slots struct {
	all chan struct{}
	// few are a part of all, and needed as well while behind says so.
	few    chan struct{}
	behind func() bool
}

func newSlots(writes int, behind func() bool) *slots {
	if behind == nil {
		behind = func() bool { return false }
	}
	return &slots{all: make(chan struct{}, writes), few: make(chan struct{}, max(1, writes/4)), behind: behind}
}

// take waits for a slot. release gives it back. The error is that of ctx.
func (s *slots) take(ctx context.Context) (release func(), err error) {
	if err := enter(ctx, s.all); err != nil {
		return nil, err
	}
	if !s.behind() {
		return func() { <-s.all }, nil
	}
	if err := enter(ctx, s.few); err != nil {
		<-s.all
		return nil, err
	}
	return func() { <-s.few; <-s.all }, nil
}

func enter(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // The caller says what was to be written.
	}
}
