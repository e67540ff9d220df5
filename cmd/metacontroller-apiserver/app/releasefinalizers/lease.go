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

package releasefinalizers

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

const (
	// leaseInterval is the pause between two looks at a Lease: servers renew it as often, unless --leader-elect-retry-period says otherwise.
	leaseInterval = 2 * time.Second
	// leaseDuration is for Leases that do not say after which time another server may take them.
	leaseDuration = 15 * time.Second
)

// renewing returns who renews a Lease, empty if nobody does. It does not compare clocks: a Lease that somebody holds is renewed if it changes within
// the time after which another server may take it. Waits is told when that has to be waited for. A Lease that is not there is an error: its server
// may be gone with its namespace, or have another Lease.
func renewing(
	ctx context.Context, leases coordinationclient.LeaseInterface, name string, waits func(holder string, limit time.Duration),
) (string, error) {
	read := func() (*coordinationv1.LeaseSpec, error) {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading Lease %s: %w", name, err)
		}
		return &lease.Spec, nil
	}
	first, err := read()
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no Lease %s; --lease names that of the server", name)
	}
	if err != nil || ptr.Deref(first.HolderIdentity, "") == "" {
		return "", err
	}
	limit := leaseDuration
	if seconds := ptr.Deref(first.LeaseDurationSeconds, 0); seconds > 0 {
		limit = time.Duration(seconds) * time.Second
	}
	waits(*first.HolderIdentity, limit)
	// The last look comes after the whole time.
	timeout := time.NewTimer(limit + leaseInterval)
	defer timeout.Stop()
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-timeout.C:
			return "", nil
		case <-ticker.C:
		}
		now, err := read()
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		holder := ptr.Deref(now.HolderIdentity, "")
		if holder == "" || holder != *first.HolderIdentity || !now.RenewTime.Equal(first.RenewTime) {
			return holder, nil
		}
	}
}
