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

package report

import (
	"strings"
	"testing"
)

const page = "# Title\n\n" + Begin + "\nthe former table\n" + End + "\n\nrest\n"

func TestTheTableHasTheLastFiguresOfLongForms(t *testing.T) {
	written, err := Write([]byte(page), strings.NewReader(strings.Join([]string{
		`{"row":"malformed","test":"TestMalformed","long":true,"said":["1 request"]}`,
		`{"row":"malformed","test":"TestMalformed","long":true,"said":["10,000 requests","0 of them with 5xx | none"]}`,
		`{"row":"disk-full","test":"TestDisk","long":false,"said":["short"]}`,
		`{"row":"replicas","test":"TestB","long":true,"failed":true,"said":["9 s"]}`,
		`{"row":"replicas","test":"TestA","long":true,"said":["8 s"]}`,
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	text := string(written)
	for _, want := range []string{
		"# Title\n\n" + Begin + "\n| Fault | Promise | Measured |\n",
		"| 4xx, never 5xx, no panic, memory is flat | 10,000 requests; 0 of them with 5xx \\| none |\n",
		"| a clear error, recovers, nothing is corrupt | not measured |\n",
		"| 8 s. **broken**, see TestB; 9 s |\n",
		End + "\n\nrest\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document lacks %q:\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"the former table", "short", "| 1 request"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the document has %q:\n%s", unwanted, text)
		}
	}
	if again, err := Write(written, strings.NewReader("")); err != nil || strings.Count(string(again), unmeasured) != len(descriptions) {
		t.Errorf("without figures: %v\n%s", err, again)
	}
}

func TestWrongFiguresAndDocumentsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ document, figures, want string }{
		"no place for the table": {"# Title\n" + Begin, "", "no place for the table"},
		"no JSON":                {page, "x", "reading the figure"},
		"a row that is unknown":  {page, `{"row":"x","test":"TestX","long":true}`, `a row "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Write([]byte(c.document), strings.NewReader(c.figures)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
