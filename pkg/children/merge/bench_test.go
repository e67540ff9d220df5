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

package merge_test

import (
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
)

const observedPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","labels":{"app":"a"},"uid":"1","resourceVersion":"2"},
"spec":{"containers":[{"name":"main","image":"nginx","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"ports":[{"containerPort":80,
"protocol":"TCP"}],"resources":{"limits":{"cpu":"1"}},"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"Always"}],
"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","tolerations":[{"key":"a","operator":"Exists"}]},
"status":{"phase":"Running"}}`

const desiredPod = `{"kind":"Pod","metadata":{"name":"a","namespace":"b","labels":{"app":"a"}},
"spec":{"containers":[{"name":"main","image":"nginx","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"ports":[{"containerPort":80}],
"resources":{"limits":{"cpu":"1"}}}]}}`

func BenchmarkMergeOfEqual(b *testing.B) {
	observed, desired := decode(b, observedPod), decode(b, desiredPod)
	b.ReportAllocs()
	for b.Loop() {
		result, err := objects(observed, desired, desired, nil, nil)
		if err != nil || len(result.Changed) > 0 {
			b.Fatal(result.Changed, err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	desired := decode(b, desiredPod)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := merge.Encode(desired); err != nil {
			b.Fatal(err)
		}
	}
}
