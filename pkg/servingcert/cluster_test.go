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

package servingcert

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	secretName = "authority"
	// serviceName is the name that the aggregation layer expects in a certificate.
	serviceName = "metacontroller-apiserver.metacontroller.svc"
)

// A cluster is the Secret and the registration in memory, both with versions as an API server has them. What the API server makes of
// the same requests is tested in test/integration/certificates.
type cluster struct {
	corev1client.SecretInterface

	mu      sync.Mutex
	version int
	secret  *corev1.Secret
	// trusted has the bundles since the beginning, the present one last. It is empty as long as there is no registration.
	trusted    []publication
	registered bool
	clock      *clocktesting.FakeClock
	// fail is asked before each request, and may be nil.
	fail func(request string) error
}

// A publication is what was trusted from a moment on.
type publication struct {
	since   time.Time
	version int
	bundle  []byte
}

func newCluster() *cluster {
	return &cluster{registered: true, clock: clocktesting.NewFakeClock(time.Now())}
}

func (c *cluster) begin(request string) error {
	c.mu.Lock()
	if c.fail == nil {
		return nil
	}
	return c.fail(request)
}

func (c *cluster) resource() schema.GroupResource { return schema.GroupResource{Resource: "secrets"} }

// Get implements corev1client.SecretInterface.
func (c *cluster) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	defer c.mu.Unlock()
	if err := c.begin("get"); err != nil {
		return nil, err
	}
	if c.secret == nil {
		return nil, apierrors.NewNotFound(c.resource(), name)
	}
	return c.secret.DeepCopy(), nil
}

// Create implements corev1client.SecretInterface.
func (c *cluster) Create(_ context.Context, secret *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	defer c.mu.Unlock()
	if err := c.begin("create"); err != nil {
		return nil, err
	}
	if c.secret != nil {
		return nil, apierrors.NewAlreadyExists(c.resource(), secret.Name)
	}
	return c.write(secret), nil
}

// Update implements corev1client.SecretInterface.
func (c *cluster) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	defer c.mu.Unlock()
	if err := c.begin("update"); err != nil {
		return nil, err
	}
	if c.secret == nil || c.secret.ResourceVersion != secret.ResourceVersion {
		return nil, apierrors.NewConflict(c.resource(), secret.Name, errors.New("another version"))
	}
	return c.write(secret), nil
}

func (c *cluster) write(secret *corev1.Secret) *corev1.Secret {
	c.version++
	c.secret = secret.DeepCopy()
	c.secret.ResourceVersion = strconv.Itoa(c.version)
	return c.secret.DeepCopy()
}

// Trusted implements Registration.
func (c *cluster) Trusted(context.Context) (bundle []byte, version string, err error) {
	defer c.mu.Unlock()
	if err := c.begin("trusted"); err != nil {
		return nil, "", err
	}
	if !c.registered {
		return nil, "", ErrNotRegistered
	}
	if len(c.trusted) == 0 {
		return nil, "0", nil
	}
	last := c.trusted[len(c.trusted)-1]
	return last.bundle, strconv.Itoa(last.version), nil
}

// Trust implements Registration.
func (c *cluster) Trust(_ context.Context, bundle []byte, version string) error {
	defer c.mu.Unlock()
	if err := c.begin("trust"); err != nil {
		return err
	}
	current := "0"
	if len(c.trusted) > 0 {
		current = strconv.Itoa(c.trusted[len(c.trusted)-1].version)
	}
	if version != current {
		return apierrors.NewConflict(schema.GroupResource{Resource: "apiservices"}, "ours", errors.New("another version"))
	}
	c.version++
	c.trusted = append(c.trusted, publication{since: c.clock.Now(), version: c.version, bundle: bundle})
	return nil
}

// views returns the bundles that a kube-apiserver may see that learns of changes within a time.
func (c *cluster) views(late time.Duration) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var views [][]byte
	for i, p := range c.trusted {
		if i+1 == len(c.trusted) || c.trusted[i+1].since.After(c.clock.Now().Add(-late)) {
			views = append(views, p.bundle)
		}
	}
	return views
}
