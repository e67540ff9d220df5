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

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
)

// watch starts the goroutines that look after a running etcd until Close.
func (s *Server) watch(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	s.watchers.Go(func() { s.watchEnd(ctx) })
	s.watchers.Go(func() { s.watchSpace(ctx) })
}

// watchEnd waits for the end of etcd and records it when it was not requested.
func (s *Server) watchEnd(ctx context.Context) {
	var err error
	select {
	case <-ctx.Done():
		return
	case <-s.hook.fired:
		err = s.gaveUp()
	case cause := <-s.etcd.Err():
		if cause == nil {
			cause = errors.New("its listener was closed")
		}
		err = classify(s.options.Dir, fmt.Errorf("embedded etcd on %s stopped: %w", s.options.Dir, cause))
	case <-s.etcd.Server.StopNotify():
		err = fmt.Errorf("embedded etcd on %s stopped by itself", s.options.Dir)
	}
	s.logger.Error(err, "Embedded etcd has ended; nothing can be stored or read any more", "dir", s.options.Dir)
	s.finish(err)
}
