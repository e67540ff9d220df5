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
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/process"
)

// Ports are taken from a range below the one from which kernels take the ports of outgoing connections (32768 and above
// on Linux, 49152 and above elsewhere): one of those could come between finding a free port and listening on it.
const (
	firstPort = 20000
	portCount = 10000
)

// ports are the loopback ports of one control plane.
type ports struct {
	etcdClient, etcdPeer, apiServer, controllerManager, scheduler int
}

// freePorts returns ports that nobody listens on. Another process may take one before its program does; the program then
// ends with an error for which portTaken is true.
func freePorts(ctx context.Context) (ports, error) {
	var p ports
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for _, port := range []*int{&p.etcdClient, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
		found, listener, err := freePort(ctx)
		if err != nil {
			return ports{}, err
		}
		// Kept open until all are found, so that no port is found twice.
		open = append(open, listener)
		*port = found
	}
	return p, nil
}

func freePort(ctx context.Context) (int, net.Listener, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(portCount)
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener, nil
		}
		last = err
	}
	return 0, nil, fmt.Errorf("finding a free port from %d to %d: %w", firstPort, firstPort+portCount-1, last)
}

// portTaken tells whether a program ended because another one listens on its port.
func portTaken(err error) bool {
	ended, ok := errors.AsType[*process.EndedError](err)
	return ok && strings.Contains(ended.Tail, "address already in use")
}

func (p ports) etcdServers() string { return fmt.Sprintf("http://127.0.0.1:%d", p.etcdClient) }

func (p ports) server() string { return loopback(p.apiServer) }

func loopback(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }
