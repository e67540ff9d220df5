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

package trio

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const limit = cluster.Limit

// Members is their number; each has a number from 0 on.
const Members = 3

// A Trio is an etcd of three members. Its methods must not be called at the same time.
type Trio struct {
	t       testing.TB
	program string
	dir     string
	// clients and peers are the ports of the members for the ones and the others.
	clients, peers [Members]int
	members        [Members]*process.Process
	client         *clientv3.Client
}

// New starts the members, which end with the test, and returns when they have a leader. Their program is that of the control plane.
func New(t testing.TB, c *cluster.Cluster) *Trio {
	t.Helper()
	e := &Trio{t: t, program: filepath.Join(filepath.Dir(c.KubectlPath), "etcd"), dir: t.TempDir()}
	for i := range Members {
		e.clients[i], e.peers[i] = freeport.Find(t), freeport.Find(t)
	}
	var err error
	if e.client, err = clientv3.New(clientv3.Config{Endpoints: strings.Split(e.Servers(), ","), Context: t.Context(), Logger: zap.NewNop()}); err != nil {
		t.Fatalf("making a client of etcd: %v", err)
	}
	t.Cleanup(func() {
		_ = e.client.Close() // Its requests have ended.
		for i := range e.members {
			e.Kill(i)
		}
	})
	for i := range e.members {
		e.Start(i)
	}
	e.Await()
	return e
}

func (e *Trio) endpoint(i int) string { return "http://" + freeport.Address(e.clients[i]) }

func (e *Trio) peer(i int) string { return "http://" + freeport.Address(e.peers[i]) }

// Servers are the members for --etcd-servers.
func (e *Trio) Servers() string {
	return strings.Join([]string{e.endpoint(0), e.endpoint(1), e.endpoint(2)}, ",")
}

// Start starts a member, with the data that it had.
func (e *Trio) Start(i int) {
	e.t.Helper()
	name := func(i int) string { return fmt.Sprintf("m%d", i) }
	var initial []string
	for each := range e.members {
		initial = append(initial, name(each)+"="+e.peer(each))
	}
	command := process.Command(e.t.Context(), e.program, "--name="+name(i), "--data-dir="+filepath.Join(e.dir, name(i)),
		"--listen-client-urls="+e.endpoint(i), "--advertise-client-urls="+e.endpoint(i),
		"--listen-peer-urls="+e.peer(i), "--initial-advertise-peer-urls="+e.peer(i),
		"--initial-cluster="+strings.Join(initial, ","), "--unsafe-no-fsync", "--log-level=warn")
	var err error
	e.members[i], err = process.Start(command, process.Options{Name: "etcd " + name(i), Log: filepath.Join(e.dir, name(i)+".log")})
	if err != nil {
		e.t.Fatal(err)
	}
}

// Kill kills a member with SIGKILL.
func (e *Trio) Kill(i int) {
	if e.members[i] != nil {
		e.members[i].Kill()
		e.members[i] = nil
	}
}

// leader returns which member leads.
func (e *Trio) leader(ctx context.Context) (int, error) {
	for i := range e.members {
		if e.members[i] == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		status, err := e.client.Status(ctx, e.endpoint(i))
		cancel()
		if err != nil {
			return 0, fmt.Errorf("asking member %d: %w", i, err)
		}
		if status.Header.GetMemberId() == status.Leader {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no member leads")
}

// Await waits until all members serve and one of them leads, and returns which.
func (e *Trio) Await() int {
	e.t.Helper()
	var leader int
	cluster.Eventually(e.t, limit, "etcd to have a leader and all members", func(ctx context.Context) (bool, string) {
		var err error
		if leader, err = e.leader(ctx); err != nil {
			return false, err.Error()
		}
		for i := range e.members {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			status, err := e.client.Status(ctx, e.endpoint(i))
			cancel()
			if err != nil || status.Leader == 0 {
				return false, fmt.Sprintf("member %d: %v %v", i, status, err)
			}
		}
		return true, ""
	})
	return leader
}
