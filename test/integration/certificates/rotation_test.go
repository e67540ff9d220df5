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

package certificates

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/tcpproxy"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// TestReplicasReplaceTheirAuthorityUnderLoad has two replicas at one port, one with HTTP/2 and one without, whose certificates are
// replaced every two seconds and whose authority every fifteen. They are valid for much longer, so that a slow machine is no reason to fail.
func TestReplicasReplaceTheirAuthorityUnderLoad(t *testing.T) {
	c := cluster.Shared(t)
	const secret = "authority"
	namespace := c.Namespace(t)
	args := []string{
		"--etcd-servers", c.EtcdServers, "--etcd-prefix", "/test-certificates", "--permit-port-sharing",
		"--serving-cert-secret", namespace + "/" + secret,
		"--serving-cert-duration=1h", "--serving-cert-renew-before=59m58s",
		"--serving-ca-duration=100h", "--serving-ca-renew-before=99h59m55s", "--serving-ca-propagation=10s",
	}
	authority := []string{"--ca-secret", namespace + "/" + secret}
	first := server.Start(t, c, server.Options{Args: args, Authority: authority})
	server.Start(t, c, server.Options{Args: append([]string{"--disable-http2-serving"}, args...), Authority: authority, Port: first.Port()})
	p := tcpproxy.Start(t, fmt.Sprintf("127.0.0.1:%d", first.Port()))
	stored, err := cluster.NewClients(t, c.Config(t)).Kube.CoreV1().Secrets(namespace).Get(t.Context(), secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	register(t, c, p.Port(), stored.Data[servingcert.AuthoritiesKey])

	l := begin(t, c, first.Port())
	wanted := report.Pick(2, 12)
	cluster.Eventually(t, limit*4, fmt.Sprintf("%d authorities to be replaced, and certificates of one of them", wanted),
		func(context.Context) (bool, string) {
			certificates, authorities, most := l.seen()
			// There are two replicas: with three certificates one of them has renewed its own.
			return authorities > wanted && most > 2, fmt.Sprintf("%d certificates, %d authorities, %d of one", certificates, authorities, most)
		})
	l.judge(t, p.Opened())
	page, err := first.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const metric = "metacontroller_serving_certificate_expiration_timestamp_seconds"
	if end, ok := page.Value(metric); !ok {
		t.Errorf("%s is not served", metric)
	} else {
		t.Logf("%s is %s", metric, strconv.FormatFloat(end, 'f', 0, 64))
	}
}
