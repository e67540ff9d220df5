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

package registration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// pods are servers that register themselves, each with an authority of its own.
type pods struct {
	*testing.T

	cluster *objects
	clock   *clocktesting.FakeClock
	config  *rest.Config
	// keepers and authorities are by the letters of the servers.
	keepers     map[rune]*keeper
	authorities map[rune]string
}

func newPods(t *testing.T) *pods {
	cluster := &objects{}
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	return &pods{
		T: t, cluster: cluster, clock: clocktesting.NewFakeClock(time.Now()), config: &rest.Config{Host: server.URL},
		keepers: map[rune]*keeper{}, authorities: map[rune]string{},
	}
}

// look has servers look at the registration, one after the other.
func (p *pods) look(servers string) {
	p.Helper()
	for _, name := range servers {
		if p.keepers[name] == nil {
			files, err := servingcert.Ensure(p.Context(), p.TempDir())
			if err != nil {
				p.Fatal(err)
			}
			text, err := os.ReadFile(files.CAFile)
			if err != nil {
				p.Fatal(err)
			}
			p.authorities[name] = string(decodeAll(text)[0])
			p.keepers[name] = &keeper{Self: &Self{
				Config: p.config, ServiceNamespace: "ns", ServiceName: "self", Clock: p.clock, Authority: func(context.Context) ([]byte, error) { return text, nil },
			}}
		}
		p.keepers[name].look(p.Context())
	}
}

// trusted returns whose authorities the registration has.
func (p *pods) trusted() string {
	p.Helper()
	var object unstructured.Unstructured
	if err := json.Unmarshal(p.cluster.apiService, &object.Object); err != nil {
		p.Fatal(err)
	}
	bundle, err := bundleOf(&object)
	if err != nil {
		p.Fatal(err)
	}
	var names []rune
	for _, certificate := range decodeAll(bundle) {
		for name, authority := range p.authorities {
			if string(certificate) == authority {
				names = append(names, name)
			}
		}
	}
	return string(names)
}

func TestOnlyAnAPIServiceOfAServerHasATrustedAuthority(t *testing.T) {
	for name, test := range map[string]struct {
		apiService string
		want       error
	}{
		"none":           {"", servingcert.ErrNotRegistered},
		"of definitions": {`{"metadata":{"resourceVersion":"7","labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}}}`, servingcert.ErrNotRegistered},
		"of a server":    {`{"metadata":{"resourceVersion":"7"},"spec":{"service":{"namespace":"ns","name":"self"},"caBundle":"eA=="}}`, nil},
		"of another one": {`{"metadata":{"resourceVersion":"7"},"spec":{"service":{"namespace":"ns","name":"other"},"caBundle":"eA=="}}`, servingcert.ErrNotRegistered},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPods(t)
			if test.apiService != "" {
				p.cluster.apiService = []byte(strings.Replace(test.apiService, "{", `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService",`, 1))
			}
			trust, err := NewTrust(p.config, types.NamespacedName{Namespace: "ns", Name: "self"})
			if err != nil {
				t.Fatal(err)
			}
			bundle, version, err := trust.Trusted(t.Context())
			if !errors.Is(err, test.want) || err == nil && (string(bundle) != "x" || version != "7") {
				t.Errorf("bundle %q, version %q, error %v", bundle, version, err)
			}
		})
	}
}

func TestServersTrustEachOthersAuthorities(t *testing.T) {
	const years = 24 * 365 * time.Hour
	for name, test := range map[string]struct {
		reason string
		// first look in this order, and then those that go on, again and again, after a while.
		first, goOn string
		after       time.Duration
		want        string
	}{
		"one":                    {"", "a", "a", 0, "a"},
		"two during a rollout":   {"The former one serves until the next one is available.", "ab", "ab", 0, "ba"},
		"one after a rollout":    {"It does not know that the other one is gone.", "ab", "b", 0, "ba"},
		"as many as may be":      {"", "abcdefgh", "hgfedcba", 0, "hgfedcba"},
		"many rollouts":          {"Those that are gone longest make room.", "abcdefghijkl", "l", 0, "lkjihgfe"},
		"one that outlives many": {"It adds its own again, and the others who are there keep theirs.", "abcdefghi", "ai", 0, "aihgfedc"},
		"expired ones":           {"Nothing that they signed is valid.", "abc", "c", 11 * years, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPods(t)
			p.look(test.first)
			p.clock.Step(test.after)
			p.look(test.goOn)
			writes := p.cluster.writes
			p.look(test.goOn)
			p.look(test.goOn)
			if p.cluster.writes != writes {
				t.Errorf("%d more writes when all are known", p.cluster.writes-writes)
			}
			if got := p.trusted(); got != test.want {
				t.Errorf("%s trusted are %q, want %q", test.reason, got, test.want)
			}
		})
	}
}

// What an operator takes out, because its key may be known, stays away, and what a rotation puts beside stays there.
func TestAServerAddsNothingButItsOwnAuthority(t *testing.T) {
	p := newPods(t)
	p.look("a")
	alone := p.cluster.apiService
	p.look("b")
	both := p.cluster.apiService
	for _, stored := range [][]byte{alone, both} {
		p.cluster.apiService = stored
		writes := p.cluster.writes
		p.look("a")
		if p.cluster.writes != writes {
			t.Errorf("it was written: %s", p.trusted())
		}
	}
	p.cluster.points(t, "other")
	former := slices.Clone(p.cluster.apiService)
	p.look("abc")
	if !bytes.Equal(p.cluster.apiService, former) || strings.Contains(p.trusted(), "c") {
		t.Errorf("the registration of another server trusts %s", p.trusted())
	}
}
