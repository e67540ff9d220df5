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
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aggregated asks for the discovery of all groups at once, as kubectl does.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// AwaitServed waits until the cluster tells kubectl of a version of a group: a kube-apiserver takes over what an aggregated server serves
// some time after it has found that server available.
func (c *Cluster) AwaitServed(t testing.TB, limit time.Duration, version schema.GroupVersion) {
	t.Helper()
	client := NewClients(t, c.Config(t)).Kube.Discovery().RESTClient()
	Eventually(t, limit, fmt.Sprintf("the discovery of %s", version), func(ctx context.Context) (bool, string) {
		text, err := client.Get().AbsPath("/apis").SetHeader("Accept", aggregated).DoRaw(ctx)
		if err != nil {
			return false, err.Error()
		}
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(text, &list); err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			if list.Items[i].Name != version.Group {
				continue
			}
			for _, v := range list.Items[i].Versions {
				if v.Version == version.Version {
					return v.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && len(v.Resources) > 0, fmt.Sprintf("it is %s, with %d resources", v.Freshness, len(v.Resources))
				}
			}
		}
		return false, "it is not listed"
	})
}
