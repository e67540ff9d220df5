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

package command

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestWrongCommandLinesSayWhereToLook(t *testing.T) {
	for name, tc := range map[string]struct {
		args       []string
		want, help string
	}{
		"an unknown command":  {[]string{"bogus"}, `unknown command "bogus"`, "kubectl metacontroller --help"},
		"a misspelt command":  {[]string{"statu"}, "Did you mean this?", "kubectl metacontroller --help"},
		"an unknown flag":     {[]string{"--bogus"}, "unknown flag: --bogus", "kubectl metacontroller --help"},
		"too few arguments":   {[]string{"pause"}, "accepts 1 arg(s), received 0", "kubectl metacontroller pause --help"},
		"too many arguments":  {[]string{"tree", "a", "b", "c"}, "received 3", "kubectl metacontroller tree --help"},
		"one where none is":   {[]string{"version", "now"}, `unknown command "now"`, "kubectl metacontroller version --help"},
		"a flag of a command": {[]string{"init", "--bogus"}, "unknown flag: --bogus", "kubectl metacontroller init --help"},
		"of a comparison":     {[]string{"replay"}, "accepts 1 arg(s), received 0", "kubectl metacontroller replay --help"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := New(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
			root.SetArgs(tc.args)
			err := Execute(t.Context(), root)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasSuffix(err.Error(), ": see '"+tc.help+"'") {
				t.Errorf("got %v, want %q in it, and at its end %q", err, tc.want, tc.help)
			}
			if got := strings.Count(err.Error(), "--help"); got != 1 {
				t.Errorf("%v names --help %d times", err, got)
			}
		})
	}
}
