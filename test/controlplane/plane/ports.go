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
	"fmt"
	"net"
)

// ports are the loopback ports of one control plane.
type ports struct {
	etcdClient, etcdPeer, apiServer, controllerManager, scheduler int
}

// freePorts returns ports that nobody listens on. Another process may take one before we do; then its program ends, and
// says so in its log.
func freePorts() (ports, error) {
	var p ports
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for _, port := range []*int{&p.etcdClient, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports{}, fmt.Errorf("finding a free port: %w", err)
		}
		// Kept open until all are found, so that no port is found twice.
		open = append(open, l)
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

func (p ports) server() string      { return fmt.Sprintf("https://127.0.0.1:%d", p.apiServer) }
func (p ports) etcdServers() string { return fmt.Sprintf("http://127.0.0.1:%d", p.etcdClient) }
