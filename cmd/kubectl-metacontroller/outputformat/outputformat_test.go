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

package outputformat

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

func forObjects(cmd *cobra.Command) *Flags { return ForObjects(cmd) }

func forLists(cmd *cobra.Command) *Flags { return ForList(cmd, Wide) }

// Formats of kubectl are printed as by kubectl; those of the command itself are left to it.
func TestFormatsThatAreAskedFor(t *testing.T) {
	web := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	for what, tc := range map[string]struct {
		add     func(*cobra.Command) *Flags
		args    []string
		printed string
		err     string
	}{
		"none":                           {add: forObjects},
		"one of the command itself":      {add: forLists, args: []string{"-o", "wide"}},
		"names of objects":               {add: forObjects, args: []string{"-o", "name"}, printed: "compositecontroller.metacontroller.k8s.io/web\n"},
		"names of what is no object":     {add: forLists, args: []string{"-o", "name"}, err: `--output: "name" is not known: use one of wide, json, yaml, kyaml, go-template`},
		"one of another command":         {add: forObjects, args: []string{"-o", "wide"}, err: `--output: "wide" is not known: use one of json, yaml, kyaml, name, go-template`},
		"JSON":                           {add: forLists, args: []string{"-o", "json"}, printed: "{\n    \"kind\": \"CompositeController\""},
		"a path":                         {add: forLists, args: []string{"-o", "jsonpath={.metadata.name}"}, printed: "web"},
		"a path that is none":            {add: forLists, args: []string{"-o", "jsonpath={.metadata"}, err: "--output: error parsing jsonpath"},
		"a template":                     {add: forLists, args: []string{"-o", "go-template", "--template", "{{.metadata.name}}"}, printed: "web"},
		"a template alone":               {add: forObjects, args: []string{"--template", "{{.metadata.name}}"}, printed: "web"},
		"a template alone, of a list":    {add: forLists, args: []string{"--template", "{{.metadata.name}}"}, printed: "web"},
		"a template and an empty format": {add: forObjects, args: []string{"-o", "", "--template", "{{.metadata.name}}"}, printed: "web"},
		"a template beside a format":     {add: forObjects, args: []string{"-o", "name", "--template", "{{.metadata.name}}"}, printed: "compositecontroller.metacontroller.k8s.io/web\n"},
	} {
		t.Run(what, func(t *testing.T) {
			cmd := &cobra.Command{}
			flags := tc.add(cmd)
			if err := cmd.ParseFlags(tc.args); err != nil {
				t.Fatal(err)
			}
			printer, err := flags.Printer()
			if (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Fatalf("the error is %v, want %q", err, tc.err)
			}
			if (printer != nil) != (tc.printed != "") {
				t.Fatalf("the printer is %v", printer)
			}
			if printer == nil {
				return
			}
			var out bytes.Buffer
			if err := printer.PrintObj(web, &out); err != nil || !strings.HasPrefix(out.String(), tc.printed) {
				t.Errorf("printed %q, error %v", out.String(), err)
			}
		})
	}
}

func TestHelpNamesTheFormats(t *testing.T) {
	cmd := &cobra.Command{}
	forLists(cmd)
	usage := cmd.Flag("output").Usage
	if !strings.HasPrefix(usage, "output format: one of wide, json, yaml, ") || strings.Contains(usage, "name") {
		t.Errorf("it is %q", usage)
	}
}

func TestATableKeepsItsColumnsAndItsWidth(t *testing.T) {
	var out bytes.Buffer
	table := &Table{Out: &out}
	long := "sync hook failed: " + strings.Repeat("x", 200) + ": the reason"
	for _, rows := range [][][]string{{{"NAME", "STATE", "MESSAGE"}, {"a-long-name", "Failing", long}}, {{"b", "Synced", "-"}}} {
		if err := table.Print(rows...); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(out.String(), "\n")
	if want := "NAME          STATE     MESSAGE"; lines[0] != want {
		t.Errorf("got %q, want %q", lines[0], want)
	}
	if n := utf8.RuneCountInString(lines[1]); n != Columns || !strings.HasSuffix(lines[1], ": the reason") || !strings.Contains(lines[1], "Failing   sync hook failed: x") {
		t.Errorf("got %d characters in %q", n, lines[1])
	}
	if want := "b             Synced    -"; lines[2] != want {
		t.Errorf("got %q, want %q", lines[2], want)
	}
	out.Reset()
	if err := (&Table{Out: &out, Wide: true}).Print([]string{"a", long}); err != nil || out.String() != "a   "+long+"\n" {
		t.Errorf("wide: got %q, error %v", out.String(), err)
	}
}

func TestWhatIsCutKeepsItsWords(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short",
		"sync hook failed (version=v2): unsupported status code: 500 body: TypeError: does it lack a return?":                                             "sync hook … does it lack a return?",
		`metadata.name: Invalid value: "A": must start with a letter (e.g. 'my-name', or 'a', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`: "metadata.name: … \"A\": must start with a letter",
		strings.Repeat("x", 60): strings.Repeat("x", 16) + "…" + strings.Repeat("x", 33),
	} {
		if got := Middle(text, 50); got != want || utf8.RuneCountInString(got) > 50 {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
