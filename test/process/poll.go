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

package process

import (
	"context"
	"time"
)

// shortest and longest bound the pauses of Poll.
const shortest, longest = 250 * time.Millisecond, time.Second

// Poll asks until it is done or fails, or until ctx ends, and returns why it ended before it was done. To ask takes a program, which is run for a
// fifth of the time, or more where it takes long.
func Poll(ctx context.Context, ask func(ctx context.Context) (done bool, err error)) error {
	for {
		asked := time.Now()
		if done, err := ask(ctx); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(max(4*time.Since(asked), shortest), longest)):
		}
	}
}
