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

// Package apiserver tests the API server as a part of a real cluster: whom it lets do what, the cluster's admission
// policies, the garbage collector, servers without rights, other storage, and how it ends.
//
// The verbs of kubectl are tested in test/e2e/kubectl, the server alone in pkg/apiserver.
package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// controller is a CompositeController for kubectl.
func controller(name string) string {
	return fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"%s"},
		"spec":{"parentResource":{"apiVersion":"v1","resource":"configmaps","labelSelector":{"matchLabels":{"test":"%s"}}},
			"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}}}}`, name, name)
}

// afterwards cleans up when the test's context has ended.
func afterwards(t *testing.T, c *cluster.Cluster, input string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	if output, err := c.TryKubectl(ctx, input, args...); err != nil {
		t.Errorf("kubectl %v: %v\n%s", args, err, output)
	}
}

// TestTheClusterHasItsSay has one server for what the cluster does for it and with it.
func TestTheClusterHasItsSay(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	for name, run := range map[string]func(*testing.T, *cluster.Cluster){
		"users have the rights that the cluster gives them":         rightsOfUsers,
		"admission policies hold":                                   admissionPolicies,
		"the garbage collector deletes revisions with their parent": revisionsAreCollected,
		"there are no revisions in namespaces that are not there":   noRevisionsNowhere,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

func rightsOfUsers(t *testing.T, c *cluster.Cluster) {
	output, err := c.TryKubectl(t.Context(), "", "get", "compositecontrollers", "--as=jane")
	if err == nil || !strings.Contains(output, `User "jane" cannot list resource "compositecontrollers" in API group "metacontroller.k8s.io"`) {
		t.Errorf("jane has no rights: %v\n%s", err, output)
	}
	c.Kubectl(t, "create", "clusterrolebinding", "jane-views", "--clusterrole=view", "--user=jane")
	t.Cleanup(func() { afterwards(t, c, "", "delete", "clusterrolebinding", "jane-views") })
	cluster.Eventually(t, limit, "jane to have the rights of view", func(ctx context.Context) (bool, string) {
		output, err := c.TryKubectl(ctx, "", "get", "compositecontrollers", "--as=jane")
		return err == nil, output
	})
	output, err = c.TryKubectl(t.Context(), controller("janes"), "create", "--as=jane", "-f", "-")
	if err == nil || !strings.Contains(output, "cannot create") {
		t.Errorf("jane may only view: %v\n%s", err, output)
	}
}

// The expression needs a CEL library that came with Kubernetes 1.30: a server that took its own version for that of
// Kubernetes would refuse the policy.
const policies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-forbidden-controllers}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [metacontroller.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: [compositecontrollers]}
  validations:
  - expression: "!object.metadata.name.startsWith('forbidden') && ip('127.0.0.1').isLoopback()"
    message: this name is forbidden here
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-forbidden-controllers}
spec: {policyName: no-forbidden-controllers, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label-controllers}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [metacontroller.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: [compositecontrollers]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{metadata: Object.metadata{labels: {'policy': 'seen'}}}"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label-controllers}
spec: {policyName: label-controllers}
`

func admissionPolicies(t *testing.T, c *cluster.Cluster) {
	client := cluster.NewClients(t, c.Config(t)).Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource("compositecontrollers"))
	c.KubectlInput(t, policies, "apply", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, policies, "delete", "-f", "-") })
	create := func(ctx context.Context, name string) (*unstructured.Unstructured, error) {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(controller(name))); err != nil {
			return nil, err
		}
		return client.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	}
	cluster.Eventually(t, limit, "the validating policy to hold", func(ctx context.Context) (bool, string) {
		_, err := create(ctx, "forbidden")
		return err != nil && strings.Contains(err.Error(), "this name is forbidden here"), fmt.Sprint(err)
	})
	// The kube-apiserver publishes the schema of a new group, without which nothing can be mutated, after a minute or more.
	cluster.Eventually(t, 4*limit, "the mutating policy to hold", func(ctx context.Context) (bool, string) {
		created, err := create(ctx, "labeled")
		if err != nil {
			return false, err.Error()
		}
		return created.GetLabels()["policy"] == "seen", fmt.Sprint(created.GetLabels())
	})
}

func revisionsAreCollected(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t)
	c.Kubectl(t, "-n", namespace, "create", "configmap", "parent")
	uid := c.Kubectl(t, "-n", namespace, "get", "configmap", "parent", "-o", "jsonpath={.metadata.uid}")
	c.KubectlInput(t, fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"one",
		"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"parent","uid":"%s","controller":true}]},"parentPatch":{}}`, uid),
		"-n", namespace, "create", "-f", "-")
	c.Kubectl(t, "-n", namespace, "delete", "configmap", "parent")
	// The garbage collector looks for new kinds twice a minute, and lists them then.
	cluster.Eventually(t, 3*limit, "the revision to be gone", func(ctx context.Context) (bool, string) {
		name, err := c.Field(ctx, namespace, "controllerrevisions.metacontroller.k8s.io/one", "{.metadata.name}")
		return apierrors.IsNotFound(err), fmt.Sprintf("%q %v", name, err)
	})
}

func noRevisionsNowhere(t *testing.T, c *cluster.Cluster) {
	output, err := c.TryKubectl(t.Context(), `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision",
		"metadata":{"name":"one"},"parentPatch":{}}`, "-n", "nowhere", "create", "-f", "-")
	if err == nil || !strings.Contains(output, `namespaces "nowhere" not found`) {
		t.Errorf("got %v\n%s", err, output)
	}
}

// TestWhoIsNotAuthenticatedSeesHealthAndVersionOnly asks as a Pod does that reaches the server's port, also with the headers in which the
// kube-apiserver tells of users, and with a token that nobody has issued.
func TestWhoIsNotAuthenticatedSeesHealthAndVersionOnly(t *testing.T) {
	s := server.Start(t, cluster.Shared(t), server.Options{})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	forged := http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	impersonating := http.Header{"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}}
	const ours = "/apis/metacontroller.k8s.io/v1alpha1/"
	for _, row := range []struct {
		method, path string
		header       http.Header
		want         int
	}{
		{http.MethodGet, "/healthz", nil, http.StatusOK},
		{http.MethodGet, "/readyz", nil, http.StatusOK},
		{http.MethodGet, "/version", nil, http.StatusOK},
		{http.MethodGet, "/metrics", nil, http.StatusForbidden},
		{http.MethodGet, "/debug/pprof/", nil, http.StatusForbidden},
		{http.MethodGet, "/openapi/v3", nil, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", nil, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers/web/parents", nil, http.StatusForbidden},
		{http.MethodPost, ours + "compositecontrollers", nil, http.StatusForbidden},
		{http.MethodDelete, ours + "compositecontrollers", nil, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", forged, http.StatusForbidden},
		{http.MethodGet, "/metrics", forged, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", impersonating, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", http.Header{"Authorization": {"Bearer made-up"}}, http.StatusUnauthorized},
	} {
		request, err := http.NewRequestWithContext(t.Context(), row.method, fmt.Sprintf("https://127.0.0.1:%d%s", s.Port(), row.path), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(request.Header, row.header)
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != row.want {
			t.Errorf("%s %s with %v is answered with %s, not %d", row.method, row.path, row.header, response.Status, row.want)
		}
	}
}

// auditEvent is a line of the audit log, as far as the test reads it.
type auditEvent struct {
	Level string `json:"level"`
	Verb  string `json:"verb"`
	URI   string `json:"requestURI"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	Object *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Request  json.RawMessage `json:"requestObject"`
	Response json.RawMessage `json:"responseObject"`
}

// TestAuditPolicyShowsWhoChangedWhat uses the example of artifacts/audit.
func TestAuditPolicyShowsWhoChangedWhat(t *testing.T) {
	c := cluster.Shared(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	server.Start(t, c, server.Options{Args: []string{
		"--audit-policy-file", filepath.Join(cluster.Root(), "artifacts", "audit", "policy.yaml"), "--audit-log-path", log,
	}})
	c.KubectlInput(t, controller("audited"), "create", "-f", "-")
	c.Kubectl(t, "get", "compositecontroller", "audited")
	c.Kubectl(t, "get", "--raw", "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/audited/parents")
	c.Kubectl(t, "delete", "compositecontroller", "audited")
	// It was the last request, so that all others are noted when it is.
	cluster.Eventually(t, limit, "the deletion in the audit log", func(context.Context) (bool, string) {
		events, err := readAudit(log)
		return err == nil && len(named(events, "delete", "")) > 0, fmt.Sprintf("%d events: %v", len(events), err)
	})
	events, err := readAudit(log)
	if err != nil {
		t.Fatal(err)
	}
	created := named(events, "create", "")
	if len(created) != 1 || created[0].Level != "Request" || !strings.Contains(string(created[0].Request), "http://127.0.0.1:1/") || created[0].User.Username == "" {
		t.Errorf("the creation is noted as %+v", created)
	}
	if asked := named(events, "get", "parents"); len(asked) != 1 || asked[0].Level != "Metadata" || len(asked[0].Response) > 0 {
		t.Errorf("who asked for the parents is noted as %+v", asked)
	}
	if seen := named(events, "get", ""); len(seen) > 0 {
		t.Errorf("reading is noted: %+v", seen)
	}
	for _, e := range events {
		if e.User.Username == "system:apiserver" || strings.HasPrefix(e.URI, "/readyz") || strings.HasPrefix(e.URI, "/apis?") {
			t.Errorf("%s %s of %s is noted", e.Verb, e.URI, e.User.Username)
		}
	}
}

func named(events []auditEvent, verb, subresource string) (found []auditEvent) {
	for _, e := range events {
		if e.Verb == verb && e.Object != nil && e.Object.Name == "audited" && e.Object.Subresource == subresource {
			found = append(found, e)
		}
	}
	return found
}

func readAudit(path string) (events []auditEvent, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// What cannot watch what it needs would refuse every write for ever.
func TestWhatTheServerMayNotWatchIsSwitchedOff(t *testing.T) {
	c := cluster.Shared(t)
	kubeconfig := withFewRights(t, c)
	s := server.Start(t, c, server.Options{Kubeconfig: kubeconfig})
	c.KubectlInput(t, controller("few-rights"), "create", "-f", "-")
	log, err := os.ReadFile(s.Log())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"NamespaceLifecycle", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionWebhook", "APIPriorityAndFairness",
	} {
		if want := fmt.Sprintf("\"SWITCHED OFF until the next start\" part=%q reason=\"this server may not list", part); !strings.Contains(string(log), want) {
			t.Errorf("the log does not say %s", want)
		}
	}
	metrics := c.Kubectl(t, "get", "--raw", "/apis/metacontroller.k8s.io/v1alpha1")
	if !strings.Contains(metrics, "compositecontrollers") {
		t.Errorf("the API is not served: %s", metrics)
	}
}

// The documented order for a server that acts as somebody less than an administrator: its rights come first, and then nothing is
// missing when it starts.
func TestAServerThatIsNoAdministratorNeedsNoRestart(t *testing.T) {
	c := cluster.Start(t)
	if output, err := exec.CommandContext(t.Context(), server.Binary(t), "register", "roles", "--kubeconfig", c.Kubeconfig).CombinedOutput(); err != nil {
		t.Fatalf("applying the roles: %v\n%s", err, output)
	}
	s := server.Start(t, c, server.Options{Kubeconfig: withFewRights(t, c, "metacontroller-apiserver", "metacontroller-controllers")})
	c.KubectlInput(t, controller("with-rights"), "create", "-f", "-")
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "compositecontroller", "with-rights")
	c.Kubectl(t, "delete", "compositecontroller", "with-rights")
	log, err := os.ReadFile(s.Log())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "SWITCHED OFF") {
		t.Error("a part of the server is switched off")
	}
}

// withFewRights makes a service account that may do what every aggregated server must, and what the given roles give.
func withFewRights(t *testing.T, c *cluster.Cluster, roles ...string) string {
	t.Helper()
	namespace := c.Namespace(t)
	account := "--serviceaccount=" + namespace + ":few-rights"
	c.Kubectl(t, "-n", namespace, "create", "serviceaccount", "few-rights")
	for _, role := range roles {
		c.Kubectl(t, "create", "clusterrolebinding", namespace+"-"+role, "--clusterrole="+role, account)
		t.Cleanup(func() { afterwards(t, c, "", "delete", "clusterrolebinding", namespace+"-"+role) })
	}
	c.Kubectl(t, "create", "clusterrolebinding", namespace, "--clusterrole=system:auth-delegator", account)
	c.Kubectl(t, "-n", "kube-system", "create", "rolebinding", namespace, "--role=extension-apiserver-authentication-reader", account)
	t.Cleanup(func() {
		afterwards(t, c, "", "delete", "clusterrolebinding", namespace)
		afterwards(t, c, "", "-n", "kube-system", "delete", "rolebinding", namespace)
	})
	token := strings.TrimSpace(c.Kubectl(t, "-n", namespace, "create", "token", "few-rights"))
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTwoServersDoNotShareADataDirectory(t *testing.T) {
	c := cluster.Shared(t)
	s := server.Start(t, c, server.Options{})
	second := exec.CommandContext(t.Context(), server.Binary(t), "--kubeconfig", c.Kubeconfig, "--data-dir", s.DataDir(), "--secure-port", strconv.Itoa(s.Port()))
	second.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	output, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "is in use by process") {
		t.Errorf("the second server ended with %v:\n%s", err, output)
	}
	if status, err := s.Get(t.Context(), "/readyz"); status != http.StatusOK {
		t.Errorf("the first server was disturbed: %d %v", status, err)
	}
}

func TestAnEtcdOfTheOperatorIsUsed(t *testing.T) {
	c := cluster.Shared(t)
	args := []string{"--etcd-servers", c.EtcdServers, "--etcd-prefix", "/test-external"}
	s := server.Start(t, c, server.Options{Args: args})
	c.KubectlInput(t, controller("external"), "create", "-f", "-")
	if _, err := os.Stat(filepath.Join(s.DataDir(), "etcd")); !os.IsNotExist(err) {
		t.Errorf("there is an embedded etcd as well: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	// Another server on another machine sees the same objects.
	server.Start(t, c, server.Options{Args: args})
	c.Kubectl(t, "get", "compositecontroller", "external")
	c.Kubectl(t, "delete", "compositecontroller", "external", "--wait=false")
}

func TestTheServerEndsWhenAsked(t *testing.T) {
	c := cluster.Shared(t)
	s := server.Start(t, c, server.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.KubectlInput(t, controller("listed"), "create", "-f", "-")
	watch := exec.CommandContext(ctx, c.KubectlPath, "--kubeconfig", c.Kubeconfig, "get", "compositecontrollers", "--watch")
	printed, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = watch.Wait()
	}()
	rows := make(chan string, 100)
	go func() {
		defer close(rows)
		for lines := bufio.NewScanner(printed); lines.Scan(); {
			rows <- lines.Text()
		}
	}()
	shows := func(name string) {
		t.Helper()
		cluster.Eventually(t, limit, "the row of "+name, func(context.Context) (bool, string) {
			select {
			case row, open := <-rows:
				if !open {
					t.Fatal("the watch ended before the server was stopped")
				}
				return strings.HasPrefix(row, name+" "), row
			default:
				return false, "there is no row"
			}
		})
	}
	shows("listed")
	// What is created now is shown by a watch that is under way.
	c.KubectlInput(t, controller("watched"), "create", "-f", "-")
	shows("watched")
	if err := s.Stop(); err != nil {
		t.Errorf("the server did not exit with status 0: %v", err)
	}
	log, err := os.ReadFile(s.Log())
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"DATA RACE", "panic:"} {
		if strings.Contains(string(log), bad) {
			t.Errorf("the log holds %q", bad)
		}
	}
}

// TestAuthorsAreToldWhatTheClusterMisses prints what kubectl prints, and creates nothing but the neighbor.
func TestAuthorsAreToldWhatTheClusterMisses(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	namespace := c.Namespace(t)
	c.Kubectl(t, "-n", namespace, "create", "service", "clusterip", "starting", "--tcp=80")
	c.Kubectl(t, "-n", namespace, "create", "secret", "generic", "credentials", "--from-literal=token=x")
	manifest := func(name, rest string) string {
		return strings.NewReplacer("NAMESPACE", namespace, "NAME", name).Replace(
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"NAME"},"spec":{"generateSelector":true,` + rest + `}}`)
	}
	hook := func(webhook string) string {
		return `"parentResource":{"apiVersion":"v1","resource":"pods"},"hooks":{"sync":{"webhook":{` + webhook + `}}}`
	}
	neighbor := manifest("neighbor", `"parentResource":{"apiVersion":"apps/v1","resource":"deployments","labelSelector":{"matchLabels":{"test":"neighbor"}}},`+
		`"childResources":[{"apiVersion":"v1","resource":"pods"}],"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}}`)
	c.KubectlInput(t, neighbor, "create", "-f", "-")
	t.Cleanup(func() { afterwards(t, c, neighbor, "delete", "-f", "-") })

	const reachable = `"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}}`
	for name, test := range map[string]struct {
		rest string
		want []string
	}{
		"all-is-well": {rest: `"parentResource":{"apiVersion":"v1","resource":"pods"},"childResources":[{"apiVersion":"v1","resource":"configmaps"}],` + reachable},
		"kinds": {
			`"parentResource":{"apiVersion":"v1","resource":"deployment"},"childResources":[{"apiVersion":"v1","resource":"configmap"}],` + reachable,
			[]string{
				"spec.parentResource: the cluster does not serve deployment in v1; the controller starts when it does; did you mean deployments in apps/v1?",
				"spec.childResources[0]: the cluster does not serve configmap in v1; the controller goes without it until it does; did you mean configmaps?",
			},
		},
		"scope": {
			`"parentResource":{"apiVersion":"v1","resource":"configmaps"},"childResources":[{"apiVersion":"v1","resource":"nodes"}],` + reachable,
			[]string{
				"spec.parentResource: configmaps have no status subresource",
				"spec.childResources[0]: nodes are cluster-scoped and configmaps are namespaced",
			},
		},
		"service-missing":   {hook(`"service":{"name":"hook","namespace":"NAMESPACE"},"path":"/"`), []string{"Service " + namespace + "/hook does not exist"}},
		"service-unready":   {hook(`"service":{"name":"starting","namespace":"NAMESPACE"},"path":"/"`), []string{"Service " + namespace + "/starting has no ready endpoints"}},
		"service-port":      {hook(`"url":"http://starting.NAMESPACE.svc:81/"`), []string{"spec.hooks.sync.webhook.url: Service " + namespace + "/starting has no port 81"}},
		"secret-key":        {hook(`"url":"https://127.0.0.1:1/","authorization":{"secretRef":{"name":"credentials","namespace":"NAMESPACE","key":"tokn"}}`), []string{`Secret ` + namespace + `/credentials has no key "tokn"`}},
		"config-map":        {hook(`"url":"https://127.0.0.1:1/","caBundle":{"configMapRef":{"name":"authority","namespace":"NAMESPACE"}}`), []string{"ConfigMap " + namespace + "/authority does not exist"}},
		"the-same-parents":  {`"parentResource":{"apiVersion":"apps/v1","resource":"deployments"},` + reachable, []string{"spec.parentResource: CompositeController neighbor handles deployments.apps too"}},
		"a-circle-over-two": {`"parentResource":{"apiVersion":"v1","resource":"pods"},"childResources":[{"apiVersion":"apps/v1","resource":"deployments"}],` + reachable, []string{"CompositeController neighbor makes pods of deployments.apps, which this controller handles"}},
	} {
		t.Run(name, func(t *testing.T) {
			// An answer has no warning whose lookup takes too long.
			cluster.Eventually(t, cluster.Limit, fmt.Sprintf("kubectl to say %q", test.want), func(context.Context) (bool, string) {
				output := c.KubectlInput(t, manifest(name, test.rest), "create", "--dry-run=server", "-f", "-")
				quiet := len(test.want) > 0 || !strings.Contains(output, "Warning")
				return quiet && !slices.ContainsFunc(test.want, func(want string) bool { return !strings.Contains(output, want) }), output
			})
		})
	}
}
