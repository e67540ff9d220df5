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

package reconciler

import (
	"fmt"
	"slices"
	"testing"
)

func TestALostFieldIsToldOnce(t *testing.T) {
	var f lostFields
	if got := f.news([]string{"status.a", "status.b[].c", "status.b[].c"}); !slices.Equal(got, []string{"status.a", "status.b[].c"}) {
		t.Errorf("at first %q", got)
	}
	if got := f.news([]string{"status.a", "status.d"}); !slices.Equal(got, []string{"status.d"}) {
		t.Errorf("then %q", got)
	}
	for i := range 2 * maxLost {
		f.news([]string{fmt.Sprint("status.", i)})
	}
	if len(f.said) != maxLost {
		t.Errorf("%d fields are remembered, want %d", len(f.said), maxLost)
	}
}
