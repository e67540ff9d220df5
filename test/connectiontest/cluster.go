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

package connectiontest

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
)

// Namespace is that of the kubeconfig.
const Namespace = "shop"

// limit is after which time a command is ended that does not end by itself.
const limit = time.Minute

// Documents is a cluster that answers with JSON by the path of the request, whatever the request is. What it does not have, it does not find.
type Documents map[string]string

func (d Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := d[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body)) // Who does not wait for it asks again.
}

// New returns a connection to a cluster, of commands that read and write the streams.
func New(t *testing.T, cluster http.Handler, streams genericiooptions.IOStreams) *connection.Connection {
	t.Helper()
	c := connection.New(streams)
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(set)
	if err := set.Parse(Arguments(t, cluster)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Run runs a command with arguments at a cluster, and returns what it printed on both outputs, and the error with which it ended.
func Run(t *testing.T, command func(*connection.Connection) *cobra.Command, cluster http.Handler, args ...string) (printed string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command(New(t, cluster, genericiooptions.IOStreams{Out: &out, ErrOut: &out}))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err = cmd.ExecuteContext(ctx)
	return out.String(), err
}

// Arguments are the flags by which a command reaches a cluster.
func Arguments(t *testing.T, cluster http.Handler) []string {
	t.Helper()
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u, namespace: " + Namespace + "}}]\n" +
		"users: [{name: u}]\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--kubeconfig", config, "--cache-dir", t.TempDir()}
}
