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
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
)

// elect has the runner wait for the Lease that the options name, if they want an election. Alone says that no other process uses the data
// directory, as where the storage is embedded.
func (h *engineRunner) elect(o options.Completed, cluster *rest.Config, alone bool) error {
	election := o.LeaderElection
	if !election.LeaderElect {
		return nil
	}
	// Renewals wait neither for the engine's limit nor for its requests.
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(unlimited(cluster), "leader-election"))
	if err != nil {
		return fmt.Errorf("creating a client for the leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the name of this host: %w", err)
	}
	config := leaderelection.Config{
		Client:    client.CoordinationV1(),
		Namespace: election.ResourceNamespace, Name: election.ResourceName,
		Identity:      host + "_" + string(uuid.NewUUID()),
		LeaseDuration: election.LeaseDuration.Duration, RenewDeadline: election.RenewDeadline.Duration, RetryPeriod: election.RetryPeriod.Duration,
		CreateNamespace: func(ctx context.Context) error {
			return createNamespace(ctx, client.CoreV1(), election.ResourceNamespace)
		},
	}
	if alone {
		last := leaderFile{path: filepath.Join(o.Storage.DataDir, "leader"), host: host}
		if config.Former, err = last.read(); err != nil {
			return err
		}
		h.leads = func(ctx context.Context) {
			if err := last.write(config.Identity); err != nil {
				klog.FromContext(ctx).Error(err, "After a crash, the next start has to wait for the Lease")
			}
		}
	}
	elector, err := leaderelection.New(config)
	if err != nil {
		return err
	}
	h.elector = elector
	h.config.Inspection.Explain(func() (string, bool) {
		return absence(elector.Holder(), config.Identity, elector.Failure()), elector.Vacant() < vacancy
	})
	return nil
}

// vacancy is how long nobody holds the Lease until the statuses of controllers count as outdated. It is longer than a hand-over.
const vacancy = 10 * time.Second

// absence says which server runs controllers. Failure is why this one cannot take the Lease, if that is so.
func absence(holder, own string, failure error) string {
	switch holder {
	case "":
		if apierrors.IsForbidden(failure) {
			return fmt.Sprintf("this server cannot run controllers, because it may not take the Lease: %v. See rights-leader-election in what "+
				"'metacontroller-apiserver preflight' prints", failure)
		}
		if failure != nil {
			return fmt.Sprintf("this server cannot take the Lease, and so does not run controllers: %v", failure)
		}
		return "no server runs controllers at present. One is about to: try again"
	case own:
		return "this server is about to run controllers: try again"
	default:
		return fmt.Sprintf("controllers are run by another server, %s, which answers this. The first part is the name of its Pod or host", holder)
	}
}

// createNamespace creates the namespace of the Lease where nobody has: a server outside of the cluster may start before it is registered.
func createNamespace(ctx context.Context, client typedcorev1.NamespacesGetter, name string) error {
	_, err := client.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the namespace of the Lease: %w", err)
	}
	return nil
}

// leaderFile has the identity of the process that led with this data directory last. Since one process at a time uses the directory, a
// process that reads another's identity in it knows that the other one has ended, and need not wait for its Lease.
type leaderFile struct {
	path string
	// host is the name of this host. What another one wrote does not count: the directory may be a copy. Nor does what stands in another file
	// than the one that was written, as in a copy on the same host.
	host string
}

// read returns the identity, empty if there is none that counts.
func (f leaderFile) read() (string, error) {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading which process led last: %w", err)
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return "", fmt.Errorf("reading which process led last: %w", err)
	}
	identity, inode, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	if !strings.HasPrefix(identity, f.host+"_") || inode != inodeOf(info) {
		return "", nil
	}
	return identity, nil
}

// inodeOf returns the number of a file, which a copy of it does not have. It stays when the file is renamed.
func inodeOf(info fs.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(stat.Ino, 10)
	}
	return ""
}

func (f leaderFile) write(identity string) error {
	next := f.path + ".new"
	err := writeWithInode(next, identity)
	if err == nil {
		err = os.Rename(next, f.path)
	}
	if err != nil {
		return fmt.Errorf("writing which process leads: %w", err)
	}
	return nil
}

func writeWithInode(path, identity string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = fmt.Fprintln(file, identity, inodeOf(info))
	}
	return errors.Join(err, file.Close())
}
