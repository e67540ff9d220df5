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
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAllPartsShareOneLimit holds that the limit is one of the process and not one of each client.
func TestAllPartsShareOneLimit(t *testing.T) {
	config := &rest.Config{QPS: 5, Burst: 10}
	shared := limited(config)
	if shared.RateLimiter == nil || config.RateLimiter != nil {
		t.Errorf("the limiter is %v, that of the caller %v", shared.RateLimiter, config.RateLimiter)
	}
	for _, qps := range []float32{0, -1} {
		if none := limited(&rest.Config{QPS: qps}); none.RateLimiter != nil || none.QPS != -1 {
			t.Errorf("a QPS of %v is limited by %v, %v", qps, none.RateLimiter, none.QPS)
		}
	}
}
