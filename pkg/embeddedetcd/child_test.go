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
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// The tests start this test binary again as a child process, because a killed, locked out or crashed server cannot be had in
// the process of the test. These variables tell the child what to do.
const (
	childRoleVariable = "EMBEDDEDETCD_TEST_ROLE"
	childDirVariable  = "EMBEDDEDETCD_TEST_DIR"

	// roleWrite starts etcd and prints each key after it was acknowledged, until it is killed.
	roleWrite = "write"
	// roleStore starts etcd, writes one key into the database file, prints it, and waits until it is killed.
	roleStore = "store"
	// roleRead starts etcd, and prints all keys and values.
	roleRead = "read"
	// roleFill starts etcd, forbids itself to extend files, and writes until etcd ends.
	roleFill = "fill"
	// roleFull forbids itself to make files of some size, and starts etcd.
	roleFull = "full"
	// roleJudge has what our verification accepts verified by etcd's own.
	roleJudge = "judge"
)

func TestMain(m *testing.M) {
	role := os.Getenv(childRoleVariable)
	if role == "" {
		goleak.VerifyTestMain(m)
	}
	if err := child(role, os.Getenv(childDirVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func child(role, dir string) error {
	klog.LogToStderr(true)
	if role == roleJudge {
		return judge(dir)
	}
	if role == roleFull {
		if err := limitFiles(); err != nil {
			return err
		}
	}
	server, err := Start(context.Background(), Options{Dir: dir}) //nolint:forbidigo // This is the main of the child.
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		return err
	}
	switch role {
	case roleWrite:
		return writeForEver(client)
	case roleStore:
		return storeOne(client, server)
	case roleFill:
		if err := limitFiles(); err != nil {
			return err
		}
		go func() { _ = writeForEver(client) }()
		<-server.Done()
		return server.Err()
	default:
		return printAll(client, server)
	}
}

// limitFiles makes the kernel refuse to write beyond the first MiB of any file: as near to a full disk as an unprivileged
// process can get.
func limitFiles() error {
	signal.Ignore(syscall.SIGXFSZ)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20})
}

func writeForEver(client *clientv3.Client) error {
	filling := strings.Repeat("x", 2000)
	for n := 0; ; n++ {
		key := fmt.Sprintf("/test/%06d", n)
		if _, err := client.Put(context.Background(), key, filling); err != nil { //nolint:forbidigo // See child.
			return err
		}
		fmt.Println("acknowledged", key)
	}
}

// storeOne has a key in the database file while the log on disk does not say yet that the key was committed: etcd writes that out
// together with the next entry (raft.MustSync).
func storeOne(client *clientv3.Client, server *Server) error {
	const key = "/test/000000"
	if _, err := client.Put(context.Background(), key, "x"); err != nil { //nolint:forbidigo // See child.
		return err
	}
	if _, err := client.Defragment(context.Background(), server.Endpoint()); err != nil { //nolint:forbidigo // See child.
		return err
	}
	fmt.Println("acknowledged", key)
	<-server.Done()
	return server.Err()
}

func printAll(client *clientv3.Client, server *Server) error {
	response, err := client.Get(context.Background(), "/", clientv3.WithPrefix()) //nolint:forbidigo // See child.
	if err != nil {
		return err
	}
	for _, kv := range response.Kvs {
		fmt.Println("found", string(kv.Key), len(kv.Value))
	}
	return errors.Join(client.Close(), server.Close())
}

// childCommand returns the command for a child process, which is killed when it is still there after more than it takes on a busy machine.
func childCommand(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, os.Args[0])
	// The race detector waits a second at each exit for reports of other threads; a child has no use for that.
	command.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", childRoleVariable+"="+role, childDirVariable+"="+dir)
	return command
}

// writeAndKill runs a child that writes, kills it after some writes, and returns what was acknowledged.
func writeAndKill(t *testing.T, dir string, writes int) []string {
	t.Helper()
	return runAndKill(t, roleWrite, dir, writes)
}

// runAndKill is writeAndKill with the role of the child.
func runAndKill(t *testing.T, role, dir string, writes int) []string {
	t.Helper()
	command := childCommand(t, role, dir)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if key, found := strings.CutPrefix(lines.Text(), "acknowledged "); found {
			keys = append(keys, key)
		}
		if len(keys) == writes {
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := command.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v, want to have killed it", err)
	}
	if len(keys) < writes {
		t.Fatalf("child acknowledged %d writes, want at least %d", len(keys), writes)
	}
	return keys
}

// foundKeys returns the keys that a child with roleRead printed.
func foundKeys(output string) map[string]string {
	keys := map[string]string{}
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "found" {
			keys[fields[1]] = fields[2]
		}
	}
	return maps.Clone(keys)
}
