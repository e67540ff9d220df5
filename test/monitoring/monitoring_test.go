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

package monitoring

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write metrics.json and artifacts/monitoring/prometheusrule.yaml")

const (
	server        = "metacontroller-apiserver"
	kubeAPIServer = "kube-apiserver"
)

var (
	expressions = parser.NewParser(parser.Options{})
	// elsewhere are the metrics that this server does not serve, and who does.
	elsewhere = map[string]string{"up": "prometheus", "aggregator_unavailable_apiservice": kubeAPIServer}
)

// alerts returns the rules of alerts.yaml as Prometheus reads them.
func alerts(t *testing.T) (rules []rulefmt.Rule) {
	t.Helper()
	text, err := read("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, expressions, slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	for _, group := range groups.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) < 10 {
		t.Fatalf("there are %d alerts only", len(rules))
	}
	return rules
}

func TestAlertsSayHowBadAndWhatToDo(t *testing.T) {
	severities := []string{"critical", "warning", "info"}
	names := map[string]bool{}
	for _, rule := range alerts(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			if names[rule.Alert] {
				t.Error("there are two of this name")
			}
			names[rule.Alert] = true
			if !strings.HasPrefix(rule.Alert, "Metacontroller") {
				t.Error("its name does not say that it is about Metacontroller")
			}
			if !slices.Contains(severities, rule.Labels["severity"]) {
				t.Errorf("the severity %q is none of %v", rule.Labels["severity"], severities)
			}
			for _, name := range []string{"summary", "description"} {
				if !strings.HasSuffix(rule.Annotations[name], ".") {
					t.Errorf("%s is no sentence: %q", name, rule.Annotations[name])
				}
			}
			page := "https://github.com/metacontroller/metacontroller-apiserver/blob/main/docs/operations/alerts.md#" + strings.ToLower(rule.Alert)
			if rule.Annotations["runbook_url"] != page {
				t.Errorf("the runbook is %q, not %q", rule.Annotations["runbook_url"], page)
			}
		})
	}
}

// A section of the runbooks is a heading with the name of an alert, and three paragraphs that begin with these words.
var parts = []string{"**Meaning.**", "**Look at.**", "**Do.**"}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	page, err := os.ReadFile(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n### ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		sections[name] = text
	}
	for _, rule := range alerts(t) {
		text, ok := sections[rule.Alert]
		if !ok {
			t.Errorf("%s has no section %q", runbooks, rule.Alert)
			continue
		}
		delete(sections, rule.Alert)
		at := 0
		for _, part := range parts {
			found := strings.Index(text[at:], "\n"+part+" ")
			if found < 0 {
				t.Errorf("%s: %s has no paragraph %s in its place", runbooks, rule.Alert, part)
				break
			}
			at += found
		}
		if !regexp.MustCompile("kubectl|curl").MatchString(text) {
			t.Errorf("%s: %s names no command to look with", runbooks, rule.Alert)
		}
	}
	for name := range sections {
		t.Errorf("%s: there is no alert %s", runbooks, name)
	}
}

// tests is alerts_test.yaml, as far as it is used. What is not here is an error: it would not be tested.
type tests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []struct {
		Name        string         `yaml:"name"`
		Interval    model.Duration `yaml:"interval"`
		InputSeries []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		AlertRuleTest []struct {
			EvalTime  model.Duration `yaml:"eval_time"`
			Alertname string         `yaml:"alertname"`
			Expected  []Alert        `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	text, err := read("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file tests
	if err := strictYAML(text, &file); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(file.RuleFiles, []string{"alerts.yaml"}) {
		t.Fatalf("alerts_test.yaml tests %v", file.RuleFiles)
	}
	rules := map[string]rulefmt.Rule{}
	for _, rule := range alerts(t) {
		rules[rule.Alert] = rule
	}
	quiet, loud := map[string]bool{}, map[string]bool{}
	engine := newEngine(expressions)
	for _, test := range file.Tests {
		t.Run(test.Name, func(t *testing.T) {
			var data memory
			for _, s := range test.InputSeries {
				series, values, err := expressions.ParseSeriesDesc(s.Series + " " + s.Values)
				if err != nil {
					t.Fatal(err)
				}
				data.load(series, values, time.Duration(test.Interval))
			}
			for _, row := range test.AlertRuleTest {
				got, err := firing(t.Context(), engine, &data, rules[row.Alertname], time.Duration(file.EvaluationInterval), time.Duration(row.EvalTime))
				if err != nil {
					t.Fatal(err)
				}
				sortAlerts(got)
				sortAlerts(row.Expected)
				if len(got)+len(row.Expected) > 0 && !reflect.DeepEqual(got, row.Expected) {
					t.Errorf("%s after %s: %s", row.Alertname, row.EvalTime, difference(got, row.Expected))
				}
				quiet[row.Alertname] = quiet[row.Alertname] || len(got) == 0
				loud[row.Alertname] = loud[row.Alertname] || len(got) > 0
			}
		})
	}
	for name := range rules {
		if !quiet[name] || !loud[name] {
			t.Errorf("%s is not tested for both: that it fires, and that it does not", name)
		}
	}
}

func sortAlerts(list []Alert) {
	slices.SortFunc(list, func(a, b Alert) int { return strings.Compare(fmt.Sprint(a.Labels), fmt.Sprint(b.Labels)) })
}

func difference(got, expected []Alert) string {
	text := func(list []Alert) string {
		encoded, err := yaml.Marshal(list)
		if err != nil {
			return err.Error()
		}
		return string(encoded)
	}
	return "\n" + text(got) + "is not\n" + text(expected)
}

// The variables of Grafana that stand for durations are no PromQL.
var grafana = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")

func TestMetricsAreListed(t *testing.T) {
	all := map[string]*Use{}
	for _, rule := range alerts(t) {
		if err := uses(expressions, rule.Expr, all); err != nil {
			t.Error(err)
		}
	}
	d, err := readDashboard()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if err := uses(expressions, grafana.Replace(target.Expr), all); err != nil {
				t.Errorf("panel %s: %v", p.Title, err)
			}
		}
	}
	for name, use := range all {
		want, ok := elsewhere[name]
		if !ok && use.Job != server {
			t.Errorf(`%s is selected without {job="%s"}`, name, server)
		}
		if ok {
			use.Job = want
		}
	}
	if len(all) < 20 {
		t.Errorf("only %d metrics are used", len(all))
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	same(t, listFile, append(text, '\n'))
}

// same compares a file with what it should be, or writes it.
func same(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not up to date (%v); run: (cd test/monitoring && go test . -update)", path, err)
	}
}

func TestDashboardIsWhole(t *testing.T) {
	d, err := readDashboard()
	if err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) < 10 {
		t.Errorf("the dashboard %q has the identifier %q and %d panels", d.Title, d.UID, len(d.Panels))
	}
	variables := map[string]bool{"__rate_interval": true, "__range": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	variable := regexp.MustCompile(`\$\{?([A-Za-z_]+)`)
	seen, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if seen[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q has the identifier %d, which is none or another one's", p.Title, p.ID)
		}
		seen[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, name := range variable.FindAllStringSubmatch(target.Expr, -1) {
				if !variables[name[1]] {
					t.Errorf("panel %q: there is no variable %s", p.Title, name[1])
				}
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("panel %q is out of the grid or covers %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestPrometheusRule: users of the Prometheus operator have the same alerts.
func TestPrometheusRule(t *testing.T) {
	text, err := read("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, groups, found := strings.Cut(string(text), "\ngroups:\n")
	if !found {
		t.Fatal("alerts.yaml has no groups")
	}
	var want strings.Builder
	want.WriteString("# Written from alerts.yaml by the tests of test/monitoring; edit that one.\napiVersion: monitoring.coreos.com/v1\n" +
		"kind: PrometheusRule\nmetadata:\n  name: metacontroller-apiserver\n  namespace: metacontroller\n  labels:\n" +
		"    app.kubernetes.io/name: metacontroller-apiserver\nspec:\n  groups:\n")
	for line := range strings.Lines(groups) {
		want.WriteString("  " + line)
	}
	same(t, filepath.Join(artifacts, "prometheusrule.yaml"), []byte(want.String()))
	var object, file map[string]any
	if err := yaml.Unmarshal([]byte(want.String()), &object); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if spec, _ := object["spec"].(map[string]any); !maps.EqualFunc(spec, file, reflect.DeepEqual) {
		t.Error("the PrometheusRule has other alerts than alerts.yaml")
	}
}
