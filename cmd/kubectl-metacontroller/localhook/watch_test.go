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

package localhook

import "testing"

func TestWhatIsIgnored(t *testing.T) {
	for path, want := range map[string]bool{
		".": false, "manifests": false, "a/../manifests": false, "dist/manifests": false,
		".k8s": true, ".k8s/base": true, "base/.k8s": true, "vendor": true, "a/vendor/b": true, "a.tmp": true,
	} {
		if got := Ignores(path); got != want {
			t.Errorf("%s: it is ignored: %t, want %t", path, got, want)
		}
	}
}
