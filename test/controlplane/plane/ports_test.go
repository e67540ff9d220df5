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

package plane

import (
	"errors"
	"fmt"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/process"
)

func TestPortsDifferAndAreInRange(t *testing.T) {
	p, err := freePorts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range []int{p.etcdClient, p.etcdPeer, p.apiServer, p.controllerManager, p.scheduler} {
		if port < firstPort || port >= firstPort+portCount || seen[port] {
			t.Errorf("port %d is out of range or taken twice: %+v", port, p)
		}
		seen[port] = true
	}
}

func TestPortTakenIsToldFromOtherErrors(t *testing.T) {
	taken := &process.EndedError{Name: "etcd", Tail: "listen tcp 127.0.0.1:20001: bind: address already in use"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a program that found its port taken":    {fmt.Errorf("waiting: %w", taken), true},
		"a program that ended for other reasons": {&process.EndedError{Name: "etcd", Tail: "no space left on device"}, false},
		"no program":                             {errors.New("address already in use"), false},
	} {
		if got := portTaken(test.err); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
