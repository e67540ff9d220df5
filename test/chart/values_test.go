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

package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// parse reads values.
func parse(text string) (map[string]any, error) {
	values := map[string]any{}
	err := yaml.Unmarshal([]byte(text), &values)
	return values, err
}

func TestMistakesInValuesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"a word of another chart":     {"replicaCount: 2", "additional properties 'replicaCount' not allowed"},
		"a misspelled field":          {"image: {repo: example.org/server}", "at '/image': additional properties 'repo' not allowed"},
		"an image with a tag":         {"image: {repository: 'example.org/a:v1'}", "at '/image/repository': 'example.org/a:v1' does not match pattern"},
		"an image with a digest":      {"image: {repository: 'example.org/a@sha256:0000'}", "at '/image/repository': 'example.org/a@sha256:0000' does not match pattern"},
		"no image":                    {"image: {repository: ''}", "at '/image/repository': minLength"},
		"another pull policy":         {"image: {pullPolicy: Sometimes}", "at '/image/pullPolicy': value must be one of '', 'Always', 'IfNotPresent', 'Never'"},
		"the image of Metacontroller": {"image: {repository: example.org/metacontroller/metacontroller}", "is the image of Metacontroller itself; name that of metacontroller-apiserver"},
		"another store":               {"store: {type: postgres}", "at '/store/type': value must be one of 'embedded', 'external'"},
		"certificates of no API":      {"store: {type: definitions}\ncertManager: {enabled: true}", "certManager.enabled is for the API server, which there is none of with store.type definitions"},
		"two at once":                 {"store: {type: definitions}\ncommandArgs: [--leader-elect=false]", "with store.type definitions two servers run at once"},
		"no etcd":                     {"store: {type: external}", "at '/store/external/servers': minItems: got 0, want 1"},
		"an etcd without a scheme":    {"store: {type: external, external: {servers: ['etcd:2379']}}", "at '/store/external/servers/0': 'etcd:2379' does not match pattern"},
		"several in one":              {"store: {type: external, external: {servers: ['https://a:1,https://b:1']}}", "does not match pattern"},
		"half of an etcd encrypted": {
			"store: {type: external, external: {servers: ['https://a:2379', 'http://b:2379']}}", "store.external.servers: either all of them begin with https:// or none",
		},
		"a volume of the chart":          {"volumes: [{name: data, emptyDir: {}}]", "volumes: the chart itself has a volume data; give yours another name"},
		"a volume in place of the store": {"volumeMounts: [{name: mine, mountPath: /var/lib/metacontroller-apiserver/}]", "volumeMounts: the chart itself mounts a volume at /var/lib/metacontroller-apiserver"},
		"a volume without a name":        {"volumes: [{emptyDir: {}}]", "at '/volumes/0': missing property 'name'"},
		"a volume for many":              {"store: {embedded: {accessModes: [ReadWriteMany]}}", "value must be one of 'ReadWriteOnce', 'ReadWriteOncePod'"},
		"a size of nothing":              {"store: {embedded: {size: big}}", "at '/store/embedded/size': "},
		"a size without a measure":       {"store: {embedded: {size: 6}}", "at '/store/embedded/size': "},
		"no room for a rollout":          {externalValues + "replicas: 2\nresourceQuota: {pods: 2}", "resourceQuota.pods: 2 are too few: a rollout of 2 replicas brings one more before it takes one away"},
		"roles that nothing selects":     {"clusterRole: {aggregationRule: {clusterRoleSelectors: []}}", "at '/clusterRole/aggregationRule/clusterRoleSelectors': minItems"},
		"two of the embedded etcd":       {"replicas: 2", "replicas: 2 servers need an etcd cluster of yours, with store.type external"},
		"none":                           {"replicas: 0", "at '/replicas': minimum: got 0, want 1"},
		"a privileged port":              {"port: 443", "at '/port': minimum: got 443, want 1,024"},
		"a text for a flag":              {"certManager: {enabled: 'yes'}", "at '/certManager/enabled': got string, want boolean"},
		"a flag of the chart":            {"commandArgs: [--etcd-servers=https://e]", "commandArgs: the chart itself sets --etcd-servers; see its values namespaceOverride, port, store and certManager"},
		"a flag of the chart with _":     {"commandArgs: [--secure_port=1]", "commandArgs: the chart itself sets --secure_port; see its values namespaceOverride, port, store and certManager"},
		"a flag that excludes the chart's": {
			"commandArgs: [--cert-dir=/tmp/certs]", "commandArgs: the chart itself sets --cert-dir; see its values namespaceOverride, port, store and certManager",
		},
		"a namespace for a part":       {"commandArgs: [--namespace=elsewhere]", "commandArgs: the chart itself sets --namespace; see its values namespaceOverride, port,"},
		"a flag that is two arguments": {"commandArgs: ['--workers 10']", "commandArgs: '--workers 10' is one argument with a space in its name; write --workers=10"},
		"a value without its flag":     {"commandArgs: [-v, 4]", "at '/commandArgs/1': got number, want string"},
		"two engines":                  {externalValues + "commandArgs: [--leader-elect=false]", "commandArgs: with store.type external two servers run at once, also while one takes the place of another"},
		"two engines, in Metacontroller's words": {
			externalValues + "replicas: 2\ncommandArgs: ['--leader-election=0']", "leave --leader-election=0 out",
		},
		"two engines by a flag with _": {externalValues + "commandArgs: [--leader_elect=false]", "leave --leader_elect=false out"},
		"a program for a flag":         {"commandArgs: [exec]", "at '/commandArgs/0': 'exec' does not match pattern"},
		"another program":              {"command: /dlv", "command: the image has one program, so that /dlv cannot be run; flags go into commandArgs"},
		"values of former versions":    {"cacheFlushInterval: 30m", "cacheFlushInterval: this value is gone; use the flag --cache-flush-interval in commandArgs"},
		"logging of former versions":   {"zap: {logLevel: 4}", "zap: this value is gone; use the flag -v and --logging-format in commandArgs"},
		"two budgets":                  {externalValues + "replicas: 2\npodDisruptionBudget: {minAvailable: 1, maxUnavailable: 1}", "set minAvailable or maxUnavailable, not both"},
		"two budgets, of which one is zero": {
			externalValues + "replicas: 2\npodDisruptionBudget: {minAvailable: 0, maxUnavailable: 1}", "set minAvailable or maxUnavailable, not both",
		},
		"a budget of words": {"podDisruptionBudget: {minAvailable: some}", "at '/podDisruptionBudget/minAvailable'"},
		"rights of two kinds": {
			"rbac: {leastPrivilege: true}\nclusterRole: {aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}",
			"rbac.leastPrivilege and clusterRole.aggregationRule exclude each other",
		},
		"rights of two kinds, by rules": {
			"rbac: {leastPrivilege: true}\nclusterRole: {rules: [{apiGroups: [apps], resources: [deployments], verbs: ['*']}]}",
			"rbac.leastPrivilege and clusterRole.rules exclude each other",
		},
		"few rights in no role": {"rbac: {leastPrivilege: true, create: false}", "rbac.leastPrivilege needs rbac.create: the rights of the server are in roles of yours"},
		"rights of two kinds, by credentials": {
			"rbac: {leastPrivilege: true}\nclusterRole: {credentials: false}",
			"rbac.leastPrivilege and clusterRole.credentials exclude each other",
		},
		"rules for a role of yours": {
			"rbac: {create: false}\nclusterRole: {rules: [{apiGroups: [apps], resources: [deployments], verbs: ['*']}]}",
			"clusterRole.rules needs rbac.create: the roles are yours",
		},
		"labels for a role of yours": {
			"rbac: {create: false}\nclusterRole: {aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}",
			"clusterRole.aggregationRule needs rbac.create: the roles are yours",
		},
		"credentials in a role of yours": {
			"rbac: {create: false}\nclusterRole: {credentials: false}", "clusterRole.credentials needs rbac.create: the roles are yours",
		},
		"a rule without verbs":            {"clusterRole: {rules: [{resources: [pods]}]}", "at '/clusterRole/rules/0': missing property 'verbs'"},
		"a name in capitals":              {"fullnameOverride: Server", "at '/fullnameOverride': 'Server' does not match pattern"},
		"a name that no Service may have": {"fullnameOverride: 1st-server", "at '/fullnameOverride': '1st-server' does not match pattern"},
		"a name that would be cut":        {"fullnameOverride: " + strings.Repeat("a", 53), "at '/fullnameOverride': "},
		"all rights for every Pod":        {"serviceAccount: {create: false}", "serviceAccount.create is false: name the account in serviceAccount.name"},
		"a label of the chart":            {"podLabels: {app.kubernetes.io/name: server}", "podLabels: the chart itself sets app.kubernetes.io/name, by which it finds its Pods; see its value nameOverride"},
		"a limit of no measure":           {"resources: {limits: {memory: 1GB}}", "at '/resources/limits/memory'"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(t.Context(), test.values, "metacontroller")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestBudgetsOfDisruption(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"nothing":         {"{}", "maxUnavailable: 1"},
		"a number":        {"{minAvailable: 2}", "minAvailable: 2"},
		"a share":         {"{maxUnavailable: 50%}", "maxUnavailable: 50%"},
		"none may go":     {"{maxUnavailable: 0}", "maxUnavailable: 0"},
		"all may go":      {"{minAvailable: 0}", "minAvailable: 0"},
		"a share of none": {"{maxUnavailable: 0%}", "maxUnavailable: 0%"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Render(t.Context(), imageValues+externalValues+"replicas: 2\npodDisruptionBudget: "+test.values, "metacontroller")
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"minAvailable:", "maxUnavailable:"} {
				if want := strings.HasPrefix(test.want, line); strings.Contains(r.Text, "\n  "+line) != want || want && !strings.Contains(r.Text, "\n  "+test.want+"\n") {
					t.Errorf("there is no %q alone", test.want)
				}
			}
		})
	}
}

// metacontrollers is a values file of Metacontroller's chart with all that it has, but for its image.
const metacontrollers = `
rbac: {create: true}
image: {repository: example.org/metacontroller-apiserver, pullPolicy: IfNotPresent, tag: v0.1.0}
imagePullSecrets: [{name: registry}]
nameOverride: ""
namespaceOverride: "controllers"
fullnameOverride: "server"
serviceAccount: {create: true, annotations: {example.org/role: server}, name: ""}
podAnnotations: {example.org/team: platform}
podSecurityContext: {fsGroup: 2000}
securityContext: {}
resources: {limits: {cpu: 100m}}
nodeSelector: {disk: ssd}
tolerations: [{key: infra, operator: Exists}]
affinity: {}
env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
command: /usr/bin/metacontroller
commandArgs: [--zap-log-level=4, --discovery-interval=20s, --cache-flush-interval=30m, "--health-probe-bind-address=:8081"]
probes: {port: 8081}
priorityClassName: ""
clusterRole:
  aggregationRule: {clusterRoleSelectors: [{matchLabels: {example.org/controllers: "true"}}]}
  rules: []
replicas: 1
podDisruptionBudget: {}
service: {enabled: false, ports: []}
`

func TestValuesOfMetacontrollersChartAreTaken(t *testing.T) {
	r, err := Render(t.Context(), metacontrollers, "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"image: \"example.org/metacontroller-apiserver:v0.1.0\"", "imagePullPolicy: IfNotPresent", "- name: registry", "namespace: \"controllers\"", "name: \"server\"\n",
		"example.org/role: server", "example.org/team: platform", "fsGroup: 2000", "runAsNonRoot: true", "readOnlyRootFilesystem: true", "cpu: 100m", "memory: 1Gi",
		"disk: ssd", "key: infra", "name: HTTPS_PROXY", `- "--cache-flush-interval=30m"`, "example.org/controllers: \"true\"", "name: metacontroller-engine",
		"--register-service=server", "--register-owner=server",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	for _, unwanted := range []string{"priorityClassName", "PodDisruptionBudget", "/usr/bin/metacontroller", "ResourceQuota"} {
		if strings.Contains(r.Text, unwanted) {
			t.Errorf("there is %q", unwanted)
		}
	}
	for _, want := range []string{"command has no effect", "probes has no effect", "service has no effect", "--namespace controllers --service server"} {
		if !strings.Contains(r.Notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, r.Notes)
		}
	}
}

func TestNotesSayWhatIsNext(t *testing.T) {
	r, err := Render(t.Context(), "rbac: {leastPrivilege: true}", "metacontroller")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kubectl wait --for=create --timeout=5m apiservice/v1alpha1.metacontroller.k8s.io\n",
		"metacontroller-apiserver preflight --service-account metacontroller/metacontroller-apiserver\n",
		"spec.serviceAccountRef",
	} {
		if !strings.Contains(r.Notes, want) {
			t.Errorf("there is no %q in\n%s", want, r.Notes)
		}
	}
	if strings.Contains(r.Notes, "no effect") {
		t.Errorf("values that nobody set have no effect:\n%s", r.Notes)
	}
}

// What is to be done before the release goes is told in the order in which it has to be done.
func TestNotesSayHowToUninstall(t *testing.T) {
	const controllers, server, apiService = "delete the controllers first", "Uninstalling takes the server out of the cluster", "kubectl delete apiservice"
	for name, test := range map[string]struct {
		values         string
		want, unwanted []string
	}{
		"as it is":          {"", []string{controllers, server, "Its volume stays."}, []string{apiService, "your etcd"}},
		"an etcd of yours":  {externalValues, []string{controllers, server, "What it stored stays in your etcd."}, []string{apiService, "volume"}},
		"roles of your own": {"rbac: {create: false}", []string{controllers, apiService, "Its volume stays."}, []string{server}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Render(t.Context(), test.values, "metacontroller")
			if err != nil {
				t.Fatal(err)
			}
			rest := r.Notes
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("there is no %q in its place in\n%s", want, r.Notes)
				}
				rest = after
			}
			for _, unwanted := range test.unwanted {
				if strings.Contains(r.Notes, unwanted) {
					t.Errorf("there is %q in\n%s", unwanted, r.Notes)
				}
			}
		})
	}
}

// Nobody but this flag takes a server that runs out of the cluster for a time, and the last of two flags counts.
func TestTheRegistrationCanBeSwitchedOff(t *testing.T) {
	r, err := Render(t.Context(), "commandArgs: [--register=false]", "metacontroller")
	if err != nil {
		t.Fatal(err)
	}
	if on, off := strings.Index(r.Text, "- --register\n"), strings.Index(r.Text, `"--register=false"`); on < 0 || off < on {
		t.Errorf("--register is at %d, and --register=false at %d of\n%s", on, off, r.Text)
	}
}

// The bindings give the account all rights, and the names of accounts may have dots.
func TestTheAccountIsTheSameEverywhere(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"the name of the objects":  {"fullnameOverride: server", "server"},
		"a name of its own":        {"serviceAccount: {name: controllers.example}", "controllers.example"},
		"one that is there":        {"serviceAccount: {create: false, name: controllers}", "controllers"},
		"the one that all may use": {"serviceAccount: {create: false, name: default}", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Render(t.Context(), externalValues+test.values, "elsewhere")
			if err != nil {
				t.Fatal(err)
			}
			subjects := 0
			for _, o := range r.Objects {
				list, _, err := unstructured.NestedSlice(o.Object, "subjects")
				if err != nil {
					t.Fatal(err)
				}
				for _, subject := range list {
					subjects++
					if want := map[string]any{"kind": "ServiceAccount", "name": test.want, "namespace": "elsewhere"}; !reflect.DeepEqual(subject, want) {
						t.Errorf("%s has the subject %v", identify(o), subject)
					}
				}
				account, _, err := unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
				if err != nil {
					t.Fatal(err)
				}
				if o.GetKind() == "Deployment" && account != test.want || o.GetKind() == "ServiceAccount" && o.GetName() != test.want {
					t.Errorf("%s has another account: %s", identify(o), account)
				}
			}
			if subjects < 5 {
				t.Errorf("there are %d subjects, too few to say anything", subjects)
			}
			if want := "--service-account elsewhere/" + test.want + " "; !strings.Contains(r.Notes, want) {
				t.Errorf("there is no %q in\n%s", want, r.Notes)
			}
		})
	}
}

// TestValuesForAPartOfAnotherChart: Helm passes what that chart's condition reads, and what it shares, on to this one.
func TestValuesForAPartOfAnotherChart(t *testing.T) {
	alone, err := Render(t.Context(), "", "metacontroller")
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []string{"enabled: true", "enabled: true\nglobal: {imageRegistry: example.org}", "enabled: false"} {
		r, err := Render(t.Context(), values, "metacontroller")
		if err != nil {
			t.Errorf("%s: %v", values, err)
		} else if r.Text != alone.Text {
			t.Errorf("%s: it changes the objects", values)
		}
	}
	if _, err := Render(t.Context(), "enabled: 'yes'", "metacontroller"); err == nil || !strings.Contains(err.Error(), "at '/enabled': got string, want boolean") {
		t.Errorf("a text in place of a boolean: %v", err)
	}
}

func TestRolesMayBeThoseOfOthers(t *testing.T) {
	r, err := Render(t.Context(), "rbac: {create: false}\nserviceMonitor: {enabled: true}", "metacontroller")
	if err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{"kind: ClusterRole\n", "kind: ClusterRoleBinding\n", "kind: RoleBinding\n", "--register-owner"} {
		if strings.Contains(r.Text, unwanted) {
			t.Errorf("there is %q", unwanted)
		}
	}
	if !strings.Contains(r.Notes, "kubectl delete apiservice v1alpha1.metacontroller.k8s.io") {
		t.Errorf("nobody says that the registration stays:\n%s", r.Notes)
	}
	if !strings.Contains(r.Notes, "kubectl create clusterrole metacontroller-metrics-reader --verb=get --non-resource-url=/metrics\n") {
		t.Errorf("nobody says which role Prometheus needs:\n%s", r.Notes)
	}
}

// TestReadsOfSecretsMayBeLeftOut: hooks then need Roles that name theirs.
func TestReadsOfSecretsMayBeLeftOut(t *testing.T) {
	const rule = "  resources: [configmaps, secrets]\n"
	for name, test := range map[string]struct {
		values string
		want   int
	}{
		"all are read":       {"{rules: []}", 1},
		"none are read":      {"{credentials: false, rules: []}", 0},
		"by roles":           {"{aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}", 1},
		"by roles, and none": {"{credentials: false, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Render(t.Context(), imageValues+"clusterRole: "+test.values, "metacontroller")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(r.Text, rule); got != test.want {
				t.Errorf("%d rules read Secrets, want %d", got, test.want)
			}
			if !strings.Contains(r.Text, "  resources: [serviceaccounts]\n") {
				t.Error("other rules are gone")
			}
		})
	}
}

// Flags name files of Secrets and ConfigMaps: keys of encryption, policies of audit.
func TestFilesOfYoursAreMounted(t *testing.T) {
	for _, store := range []string{"", externalValues, externalValues + "certManager: {enabled: true}\n"} {
		r, err := Render(t.Context(), store+`
volumes: [{name: encryption, secret: {secretName: keys}}]
volumeMounts: [{name: encryption, mountPath: /etc/metacontroller/encryption, readOnly: true}]
`, "metacontroller")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"      - name: encryption\n        secret:\n          secretName: keys\n",
			"        - mountPath: /etc/metacontroller/encryption\n          name: encryption\n          readOnly: true\n",
		} {
			if !strings.Contains(r.Text, want) {
				t.Errorf("%s: there is no\n%s", store, want)
			}
		}
	}
}

// known returns the names of the values in a document, those of objects below others joined by dots.
func known(prefix string, values map[string]any, into map[string]bool) {
	for name, value := range values {
		into[prefix+name] = true
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			known(prefix+name+".", below, into)
		}
	}
}

// described returns the same of a schema, those alone that have single properties.
func described(prefix string, schema map[string]any, into map[string]bool) {
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		into[prefix+name] = true
		if below, ok := property.(map[string]any); ok {
			described(prefix+name+".", below, into)
		}
	}
}

func TestEveryValueIsInTheSchema(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(folder(), name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	values, err := parse(string(read("values.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(read("values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	inValues, inSchema := map[string]bool{}, map[string]bool{}
	known("", values, inValues)
	described("", schema, inSchema)
	// As in a Pod, whose fields the schema does not repeat.
	free := regexp.MustCompile(`^(podSecurityContext|securityContext|resources\.\w+)\.`)
	for _, name := range slices.Sorted(maps.Keys(inValues)) {
		if !inSchema[name] && !free.MatchString(name) {
			t.Errorf("the schema does not have %s", name)
		}
	}
	// Those of Metacontroller's chart that have no effect here, and what is empty by default.
	others := []string{
		"cacheFlushInterval", "clusterRole.aggregationRule.clusterRoleSelectors", "command", "discoveryInterval", "enabled", "global", "podDisruptionBudget.maxUnavailable",
		"podDisruptionBudget.minAvailable", "probes", "resources.claims", "service", "zap", "zapLogLevel",
	}
	for _, name := range slices.Sorted(maps.Keys(inSchema)) {
		if !inValues[name] && !slices.Contains(others, name) {
			t.Errorf("values.yaml does not have %s", name)
		}
	}
}

func TestValuesOfThePageAreRight(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(cluster.Root(), "docs", "operations", "configure.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "kind: Kustomization") {
			continue
		}
		found++
		if _, err := Render(t.Context(), block[1], "metacontroller"); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
		}
	}
	if found == 0 {
		t.Error("the page shows no values")
	}
}
