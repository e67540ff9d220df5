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

package apiserver

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestWatchesOfAnotherStoreListAgain(t *testing.T) {
	at := func(version uint64, err error) currentVersion {
		return func(context.Context) (uint64, error) { return version, err }
	}
	for name, tc := range map[string]struct {
		version string
		current currentVersion
		want    bool
	}{
		"a version that was reached":             {version: "24", current: at(24, nil)},
		"a version that was not":                 {version: "368", current: at(24, nil), want: true},
		"no version":                             {version: "", current: at(24, nil)},
		"any version":                            {version: "0", current: at(24, nil)},
		"no version at all, which is not for us": {version: "x", current: at(24, nil)},
		"etcd does not respond":                  {version: "368", current: at(0, errors.New("late"))},
	} {
		t.Run(name, func(t *testing.T) {
			err := ofOtherStore(t.Context(), tc.version, tc.current)
			if apierrors.IsResourceExpired(err) != tc.want || (err != nil) != tc.want {
				t.Errorf("the watch ends with %v", err)
			}
		})
	}
}
