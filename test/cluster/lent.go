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

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
)

// lentVariable is the environment variable with a folder of control planes that test processes use one after the other, each of which takes
// seconds of processor time to start. Whoever made the folder holds its pipe open for as long as they are to run. Not set: each test process
// starts its own.
const lentVariable = "METACONTROLLER_CONTROL_PLANES"

// heldPipe is the pipe in the folder: it is the standard input of the control planes, which end when nobody can write to it any more.
const heldPipe = "held"

// pristineFile has, beside each control plane, what it had at its start.
const pristineFile = "pristine.json"

// pristine is what a control plane has when nobody has used it yet.
type pristine struct {
	// Keys are those of its etcd.
	Keys []string `json:"keys"`
	// Groups are the API groups that it serves.
	Groups []string `json:"groups"`
}

// borrow returns a control plane of a folder that no other process uses, as it was at its start. It starts one if there is none.
func borrow(folder string) (*Cluster, error) {
	for i := 0; ; i++ {
		own := filepath.Join(folder, strconv.Itoa(i))
		lock, err := lockFolder(own)
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		c, err := lentIn(own)
		if errors.Is(err, fs.ErrNotExist) {
			c, err = startIn(own, filepath.Join(folder, heldPipe))
		}
		if err != nil {
			// Who comes next starts another.
			return nil, errors.Join(fmt.Errorf("using the control plane in %s: %w", own, err), os.RemoveAll(filepath.Join(own, pristineFile)))
		}
		c.lock = lock
		return c, nil
	}
}

// lockFolder locks a folder until the process ends. It returns nil if another process has locked it.
func lockFolder(folder string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for a control plane: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of a control plane: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil //nolint:nilnil // See above.
	}
	return nil, fmt.Errorf("locking a control plane: %w", err)
}

// lentIn returns the control plane that runs in a folder, without what its former users have left in it. The error is [fs.ErrNotExist] if there is
// none.
func lentIn(folder string) (*Cluster, error) {
	text, err := os.ReadFile(filepath.Join(folder, pristineFile))
	if err != nil {
		return nil, fmt.Errorf("reading what a control plane has: %w", err)
	}
	var before pristine
	if err := json.Unmarshal(text, &before); err != nil {
		return nil, fmt.Errorf("reading what a control plane has: %w", err)
	}
	info, err := os.ReadFile(filepath.Join(folder, "info"))
	if err != nil {
		return nil, fmt.Errorf("reading how to use a control plane: %w", err)
	}
	c := new(Cluster)
	if err := c.use(info); err != nil {
		return nil, err
	}
	if err := c.renew(before); err != nil {
		return nil, err
	}
	return c, nil
}

// startIn starts a control plane that stays when this process ends.
func startIn(folder, held string) (*Cluster, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	input, err := os.Open(held)
	if err != nil {
		return nil, fmt.Errorf("holding the control plane: %w", err)
	}
	defer input.Close()                                     //nolint:errcheck // The control plane has it.
	command := exec.Command(path, startArguments(Audit)...) //nolint:noctx // It outlives this process.
	command.Dir, command.Stdin = module(), input
	info := filepath.Join(folder, "info")
	if command.Stdout, err = os.Create(info); err != nil {
		return nil, fmt.Errorf("making a file for the control plane: %w", err)
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, fmt.Errorf("making a file for the control plane: %w", err)
	}
	command.Stderr = log
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("running the control plane's program: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for {
		text, err := os.ReadFile(info)
		if err != nil {
			return nil, fmt.Errorf("waiting for the control plane: %w", err)
		}
		if bytes.HasSuffix(text, []byte("\n")) {
			return unused(folder, text)
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(log.Name()) // It is for people.
			return nil, fmt.Errorf("waiting for the control plane: %w\n%s", err, said)
		case <-time.After(shortest):
		}
	}
}

// unused returns a control plane that has just started, and notes what it has.
func unused(folder string, info []byte) (*Cluster, error) {
	c := new(Cluster)
	err := c.use(info)
	if err != nil {
		return nil, err
	}
	var now pristine
	if now.Keys, err = c.keys(); err != nil {
		return nil, err
	}
	if now.Groups, err = c.groups(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(now)
	if err != nil {
		return nil, fmt.Errorf("encoding what the control plane has: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, pristineFile), text, 0o600); err != nil {
		return nil, fmt.Errorf("noting what the control plane has: %w", err)
	}
	return c, nil
}

// renew takes out of etcd what was not there at the beginning, and waits until the kube-apiserver serves no more than then. It sees deletions as
// it sees those of other kube-apiservers. Through the API this would take longer than to start another control plane.
func (c *Cluster) renew(before pristine) error {
	if log, err := os.Stat(c.AuditLog()); err == nil {
		c.auditRead = log.Size()
	}
	if err := os.RemoveAll(c.kubectlCache()); err != nil {
		return fmt.Errorf("forgetting what kubectl has discovered: %w", err)
	}
	for end := time.Now().Add(Limit); ; time.Sleep(shortest) { //nolint:forbidigo // There is no test yet that could wait.
		now, err := c.keys()
		if err != nil {
			return err
		}
		// Controllers of the cluster may write until they have seen the deletions.
		added := slices.DeleteFunc(now, func(key string) bool {
			_, there := slices.BinarySearch(before.Keys, key)
			return there || lasting(key)
		})
		if err := c.deleteKeys(added); err != nil {
			return err
		}
		groups, err := c.groups()
		if err == nil && len(added) == 0 && slices.Equal(groups, before.Groups) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the control plane does not become as it was: it serves %q, %w, and has %q", groups, err, added)
		}
	}
}

// lasting reports whether a key is one that a control plane may write some time after its start, and needs from then on.
func lasting(key string) bool {
	return strings.Contains(key, "/serviceaccounts/kube-system/") || strings.Contains(key, "/leases/kube-") ||
		strings.HasSuffix(key, "/kubernetes") || strings.HasSuffix(key, "/10.96.0.1") || key == "compact_rev_key"
}

// groups returns the names of the API groups that are served.
func (c *Cluster) groups() ([]string, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of the discovery: %w", err)
	}
	list, err := client.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("reading which groups are served: %w", err)
	}
	var names []string
	for i := range list.Groups {
		names = append(names, list.Groups[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// keys returns the keys in etcd, sorted.
func (c *Cluster) keys() ([]string, error) {
	var found struct {
		Pairs []struct {
			Key []byte `json:"key"`
		} `json:"kvs"`
	}
	// From the first key to the end.
	if err := c.etcd("range", map[string]any{"key": []byte{0}, "range_end": []byte{0}, "keys_only": true}, &found); err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(found.Pairs))
	for _, pair := range found.Pairs {
		keys = append(keys, string(pair.Key))
	}
	slices.Sort(keys)
	return keys, nil
}

// mostOperations is how many operations etcd takes in one transaction.
const mostOperations = 128

func (c *Cluster) deleteKeys(keys []string) error {
	for chunk := range slices.Chunk(keys, mostOperations) {
		var operations []map[string]any
		for _, key := range chunk {
			operations = append(operations, map[string]any{"request_delete_range": map[string]any{"key": []byte(key)}})
		}
		if err := c.etcd("txn", map[string]any{"success": operations}, nil); err != nil {
			return err
		}
	}
	return nil
}

// etcd makes a request to the JSON gateway of etcd, in which bytes are in base64, as encoding/json has them.
func (c *Cluster) etcd(what string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding a request to etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit) //nolint:forbidigo // There is no test yet.
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdServers+"/v3/kv/"+what, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request to etcd: %w", err)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // It is read.
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answered %s to %s", answer.Status, what)
	}
	if response == nil {
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(response); err != nil {
		return fmt.Errorf("reading what etcd answered: %w", err)
	}
	return nil
}
