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

package install_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// fuzzers returns the functions that fill types of this group with random content that survives a round trip: with every default set, and
// with JSON where JSON is kept.
func fuzzers(serializer.CodecFactory) []any {
	return []any{
		func(h *v1alpha1.Hook, c randfill.Continue) {
			c.FillNoCustom(h)
			setDefault(&h.Version, v1alpha1.HookVersionV1)
		},
		func(r *v1alpha1.CABundleReference, c randfill.Continue) {
			c.FillNoCustom(r)
			setDefault(&r.Key, "ca.crt")
		},
		func(t *v1alpha1.ClientTLS, c randfill.Continue) {
			c.FillNoCustom(t)
			setDefault(&t.CertKey, "tls.crt")
			setDefault(&t.PrivateKeyKey, "tls.key")
		},
		func(a *v1alpha1.WebhookAuthorization, c randfill.Continue) {
			c.FillNoCustom(a)
			setDefault(&a.Type, "Bearer")
		},
		func(a *v1alpha1.WebhookBasicAuth, c randfill.Continue) {
			c.FillNoCustom(a)
			setDefault(&a.UsernameKey, "username")
			setDefault(&a.PasswordKey, "password")
		},
		func(d *metav1.Duration, c randfill.Continue) {
			d.Duration = time.Duration(c.Int63())
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			*v = intstr.FromInt32(c.Int31())
			if c.Bool() {
				*v = intstr.FromString(fmt.Sprintf("%d%%", c.Intn(100)+1))
			}
		},
		func(r *runtime.RawExtension, c randfill.Continue) {
			r.Raw = fmt.Appendf(nil, `{"spec":{"paused":%t,"replicas":%d}}`, c.Bool(), c.Int31())
			r.Object = nil
		},
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = new(value)
	}
}
