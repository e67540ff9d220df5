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

package webhook

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
)

func service(name, namespace string) *v1alpha1.ServiceReference {
	return &v1alpha1.ServiceReference{Name: name, Namespace: namespace}
}

func TestAddress(t *testing.T) {
	withPort := service("hook", "shop")
	withPort.Port, withPort.Protocol = new(int32(8443)), new("https")
	ftp := service("hook", "shop")
	ftp.Protocol = new("ftp")
	cases := map[string]struct {
		reason  string
		webhook v1alpha1.Webhook
		want    string
		wantErr string
	}{
		"URL":             {"A URL is used as written.", v1alpha1.Webhook{URL: new("http://hello-controller.hello/sync?x=1")}, "http://hello-controller.hello/sync?x=1", ""},
		"URLWins":         {"A URL wins over a service.", v1alpha1.Webhook{URL: new("https://a/b"), Service: service("hook", "shop"), Path: new("/sync")}, "https://a/b", ""},
		"Service":         {"Port 80 and http are the defaults, the port is always written, and there is no .svc.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("/sync")}, "http://hook.shop:80/sync", ""},
		"ServicePort":     {"Port and protocol are taken over.", v1alpha1.Webhook{Service: withPort, Path: new("/sync")}, "https://hook.shop:8443/sync", ""},
		"EmptyPath":       {"An empty path is a path.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("")}, "http://hook.shop:80", ""},
		"Nothing":         {"There must be an address.", v1alpha1.Webhook{}, "", "the webhook must have either url, or both service and path"},
		"PathOnly":        {"A path alone is no address.", v1alpha1.Webhook{Path: new("/sync")}, "", "the webhook must have either url, or both service and path"},
		"ServiceOnly":     {"A service alone is no address.", v1alpha1.Webhook{Service: service("hook", "shop")}, "", "the webhook must have either url, or both service and path"},
		"NoNamespace":     {"A service has a namespace.", v1alpha1.Webhook{Service: service("hook", ""), Path: new("/")}, "", "the webhook's service must have a name and a namespace"},
		"NoName":          {"A service has a name.", v1alpha1.Webhook{Service: service("", "shop"), Path: new("/")}, "", "the webhook's service must have a name and a namespace"},
		"Protocol":        {"Only HTTP can be spoken.", v1alpha1.Webhook{Service: ftp, Path: new("/")}, "", `the webhook's URL has the scheme "ftp", want http or https`},
		"NoHost":          {"A URL needs a host.", v1alpha1.Webhook{URL: new("http:///sync")}, "", "the webhook's URL has no host"},
		"RelativeURL":     {"A URL is absolute.", v1alpha1.Webhook{URL: new("/sync")}, "", `the webhook's URL has the scheme "", want http or https`},
		"UnparseableURL":  {"What cannot be parsed is not repeated: it may hold a password.", v1alpha1.Webhook{URL: new("http://u:secret@h:port/")}, "", `the webhook's URL cannot be parsed: invalid port ":port" after host`},
		"PathWithoutRoot": {"Nothing is put between port and path, so a path without a slash breaks the port.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("sync")}, "", `the webhook's URL cannot be parsed: invalid port ":80sync" after host`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, gotErr := "", ""
			u, err := address(&tc.webhook)
			if err != nil {
				gotErr = err.Error()
			} else {
				got = u.String()
			}
			if got != tc.want || gotErr != tc.wantErr {
				t.Errorf("%s\ngot %q, %q\nwant %q, %q", tc.reason, got, gotErr, tc.want, tc.wantErr)
			}
		})
	}
}

func TestDisplayLeavesOutWhatMayBeSecret(t *testing.T) {
	u, err := url.Parse("https://user:secret@hook.shop:8443/sync?token=secret#secret")
	if err != nil {
		t.Fatal(err)
	}
	if got := display(u); got != "https://hook.shop:8443/sync" {
		t.Errorf("got %q", got)
	}
}

// TestHostMatches is the matrix of docs/reference/contract.md#s2.4.
func TestHostMatches(t *testing.T) {
	cases := []struct {
		entry, url string
		want       bool
	}{
		{"hook.shop", "http://hook.shop/sync", true},
		{"HOOK.shop", "http://hook.SHOP/sync", true},
		{"hook.shop:80", "http://hook.shop/sync", true},
		{"hook.shop:443", "https://hook.shop/sync", true},
		{"hook.shop", "http://hook.shop:80/sync", true},
		{"hook.shop", "https://hook.shop:443/sync", true},
		{"hook.shop:8080", "http://hook.shop:8080/sync", true},
		{"[::1]", "https://[::1]:443/sync", true},
		{"[::1]:443", "https://[::1]/sync", true},
		{"hook.shop:443", "http://hook.shop/sync", false},
		{"hook.shop:80", "https://hook.shop/sync", false},
		{"hook.shop", "http://hook.shop:443/sync", false},
		{"hook.shop", "https://hook.shop:80/sync", false},
		{"hook.shop", "http://hook.shop:8080/sync", false},
		{"hook.shop:8080", "http://hook.shop/sync", false},
		{"hook", "http://hook.shop/sync", false},
		{"hook.shop", "http://hook.shop.svc/sync", false},
		{"*.shop", "http://hook.shop/sync", false},
		{"", "http://hook.shop/sync", false},
		{"http://hook.shop", "http://hook.shop/sync", false},
	}
	for _, tc := range cases {
		u, err := url.Parse(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := v1alpha1.EndpointMatches(tc.entry, u); got != tc.want {
			t.Errorf("entry %q, URL %s: got %v, want %v", tc.entry, tc.url, got, tc.want)
		}
	}
}

func TestEffectiveSecurity(t *testing.T) {
	bundle := func(pem string) v1alpha1.WebhookSecurity {
		return v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: &pem}}
	}
	basic := v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{}}
	endpoints := []v1alpha1.EndpointConfig{
		{Host: "other.shop", WebhookSecurity: bundle("other")},
		{Host: "hook.shop", WebhookSecurity: bundle("first")},
		{Host: "hook.shop:80", WebhookSecurity: bundle("second")},
	}
	cases := map[string]struct {
		reason  string
		webhook v1alpha1.Webhook
		want    v1alpha1.WebhookSecurity
		wantAt  string
	}{
		"FirstMatch": {"The first entry that matches is taken.", v1alpha1.Webhook{URL: new("http://hook.shop/sync")}, bundle("first"), "endpointConfigs[1]"},
		"Service":    {"A service on the default port matches the bare name.", v1alpha1.Webhook{Service: service("hook", "shop"), Path: new("/sync")}, bundle("first"), "endpointConfigs[1]"},
		"OwnWins":    {"One setting of its own keeps all endpoint configs out; nothing is merged.", v1alpha1.Webhook{URL: new("http://hook.shop/sync"), WebhookSecurity: basic}, basic, "webhook"},
		"NoMatch":    {"Without a match there are no settings.", v1alpha1.Webhook{URL: new("http://third.shop/sync")}, v1alpha1.WebhookSecurity{}, "webhook"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u, err := address(&tc.webhook)
			if err != nil {
				t.Fatal(err)
			}
			got, at := effectiveSecurity(&tc.webhook, endpoints, u)
			if diff := cmp.Diff(tc.want, got); diff != "" || at != tc.wantAt {
				t.Errorf("%s\n(-want +got):\n%s\nat %s, want %s", tc.reason, diff, at, tc.wantAt)
			}
		})
	}
}

// TestPlacesAreCheckedWhereNoProxyIs is about an environment with a proxy for http and none for https.
func TestPlacesAreCheckedWhereNoProxyIs(t *testing.T) {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "http", Host: "hook.shop"}})
	if err != nil || proxy == nil {
		t.Fatal(proxy, err)
	}
	inPod, err := destination.New(destination.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for hook, tc := range map[string]struct{ proxied, direct bool }{
		"http://hook.shop/sync":      {proxied: true},
		"http://hook.shop:80/sync":   {proxied: true},
		"http://hook.shop:8080/sync": {proxied: true, direct: true}, // No redirect leads from there to https.
		"https://hook.shop/sync":     {},
	} {
		u, err := url.Parse(hook)
		if err != nil {
			t.Fatal(err)
		}
		dial := (&Client{config: Config{Destinations: inPod}, url: u}).dial()
		connection, err := dial(t.Context(), "tcp", proxy.Host)
		if err == nil {
			err = connection.Close()
		}
		if _, refused := errors.AsType[*destination.RefusedError](err); refused == tc.proxied || !refused && err != nil {
			t.Errorf("%s: connecting to the proxy: %v, want a refusal: %t", hook, err, !tc.proxied)
		}
		connection, err = dial(t.Context(), "tcp", "127.0.0.1:1") // Nothing listens there.
		if err == nil {
			t.Error(connection.Close())
		}
		if _, refused := errors.AsType[*destination.RefusedError](err); refused == tc.direct {
			t.Errorf("%s: connecting to the hook: %v, want a refusal: %t", hook, err, !tc.direct)
		}
	}
}

func TestValidateSecurity(t *testing.T) {
	cases := map[string]struct {
		security v1alpha1.WebhookSecurity
		want     string
	}{
		"Nothing":   {v1alpha1.WebhookSecurity{}, ""},
		"BothAuths": {v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{}, BasicAuth: &v1alpha1.WebhookBasicAuth{}}, "authorization and basicAuth exclude each other"},
		"BasicType": {v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{Type: new(" bAsIc ")}}, "use basicAuth"},
		"NoSource":  {v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{}}, "exactly one of inline, secretRef and configMapRef, has 0"},
		"TwoSources": {
			v1alpha1.WebhookSecurity{CABundle: &v1alpha1.CABundle{Inline: new(""), SecretRef: &v1alpha1.CABundleReference{}}},
			"exactly one of inline, secretRef and configMapRef, has 2",
		},
	}
	for name, tc := range cases {
		err := validateSecurity(&tc.security)
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	between := clocktesting.NewFakePassiveClock(now.Now().Add(-300 * time.Millisecond))
	cases := map[string]struct {
		header string
		clock  *clocktesting.FakePassiveClock
		want   time.Duration
	}{
		"Missing":       {"", now, 0},
		"Seconds":       {"120", now, 2 * time.Minute},
		"SpacedSeconds": {" 3 ", now, 3 * time.Second},
		"Zero":          {"0", now, 0},
		"Negative":      {"-5", now, 0},
		"Fraction":      {"1.5", now, 0},
		"Words":         {"soon", now, 0},
		"Huge":          {"9223372036854775807", now, hook.MaxDelay},
		"TooHuge":       {"92233720368547758070", now, hook.MaxDelay},
		"Years":         {"99999999999", now, hook.MaxDelay},
		"TooNegative":   {"-92233720368547758070", now, 0},
		"Date":          {"Sun, 01 Mar 2026 12:00:30 GMT", now, 30 * time.Second},
		"DateRoundsUp":  {"Sun, 01 Mar 2026 12:00:30 GMT", between, 31 * time.Second},
		"OldDateFormat": {"Sunday, 01-Mar-26 12:01:00 GMT", now, time.Minute},
		"PastDate":      {"Sun, 01 Mar 2026 11:59:30 GMT", now, 0},
		"FarDate":       {"Sun, 01 Mar 9026 11:59:30 GMT", now, hook.MaxDelay},
	}
	for name, tc := range cases {
		if got := retryAfter(tc.header, tc.clock); got != tc.want {
			t.Errorf("%s: retryAfter(%q) = %v, want %v", name, tc.header, got, tc.want)
		}
	}
}

func TestPortsThatSpeakTLSAreKnownByWhatTheyReturn(t *testing.T) {
	const advice = "; the port speaks TLS: use https in the URL, and set caBundle"
	for _, test := range []struct {
		name string
		code int
		body string
		want bool
	}{
		{"Go", 400, "Client sent an HTTP request to an HTTPS server.\n", true},
		{"nginx", 400, "<center>The plain HTTP request was sent to HTTPS port</center>", true},
		{"Apache", 400, "You're speaking plain HTTP to an SSL-enabled server port.", true},
		{"another mistake", 400, "spec.size is missing", false},
		{"another status", 500, "Client sent an HTTP request to an HTTPS server.", false},
	} {
		if got := strings.HasSuffix(statusError(test.code, "text/html", []byte(test.body), nil).Error(), advice); got != test.want {
			t.Errorf("%s: told to use TLS: %t", test.name, got)
		}
	}
	// Others close the connection with an alert, which an HTTP client cannot read.
	if cause, _ := diagnose(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x15\x03\x01\x00\x02\x02"`)); !strings.Contains(cause, "TLS") {
		t.Errorf("an alert is %q", cause)
	}
}

func TestNamesThatAreNotKnownOutsideOfTheCluster(t *testing.T) {
	t.Setenv(insideVariable, "10.0.0.1")
	if _, advice := diagnose(&net.DNSError{Name: "hook", Err: "no such host", IsNotFound: true}); !strings.Contains(advice, "write hook.NAMESPACE") {
		t.Errorf("of a name without a namespace it advises %q", advice)
	}
	unknown := &net.DNSError{Name: "hook.shop", Err: "no such host", IsNotFound: true}
	for inside, want := range map[string]string{
		"":         "this server runs outside of the cluster",
		"10.0.0.1": "check the name and namespace of the Service in the URL",
	} {
		t.Setenv(insideVariable, inside)
		if cause, advice := diagnose(unknown); cause != "no such host hook.shop" || !strings.Contains(advice, want) {
			t.Errorf("with %q: %s; %s", inside, cause, advice)
		}
	}
}

func TestStatusErrorShowsTheBeginningOfTheBody(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"Empty":     {"", "unsupported status code: 500 body:"},
		"Text":      {"no such key\n", "unsupported status code: 500 body: no such key"},
		"Lines":     {"a\n\tb", "unsupported status code: 500 body: a\n\tb"},
		"Long":      {strings.Repeat("x", maxErrorBody+1), "unsupported status code: 500 body: " + strings.Repeat("x", maxErrorBody) + "…"},
		"Binary":    {"a\x00\x1b[31mb\xff", "unsupported status code: 500 body: a  [31mb"},
		"CutInRune": {strings.Repeat("é", maxErrorBody), "unsupported status code: 500 body: " + strings.Repeat("é", maxErrorBody/2) + "…"},
	}
	for name, tc := range cases {
		got := strings.TrimSpace(statusError(500, "text/plain", []byte(tc.body), nil).Error())
		if got != tc.want || !utf8.ValidString(got) {
			t.Errorf("%s: got %.80q, want %.80q", name, got, tc.want)
		}
	}
}

func key(name string) RootKey {
	return RootKey{Group: "example.com", Kind: "Fleet", Namespace: "shop", Name: name}
}

func TestEtagEntriesBelongToTheirObject(t *testing.T) {
	c := newEtagCache(1<<20, nil, 0, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	c.put(key("a"), "1", []byte("A"), "text/plain")
	other := key("a")
	other.Namespace = "base"
	for _, missing := range []RootKey{key("b"), other} {
		if got := c.get(missing); got != nil {
			t.Errorf("%v has the entry of another object: %v", missing, got)
		}
	}
	c.put(key("a"), "2", []byte("AA"), "")
	if got := c.get(key("a")); got == nil || got.tag != "2" || string(got.body) != "AA" {
		t.Errorf("got %v, want the second response", got)
	}
	c.forget(key("a"))
	c.forget(key("a"))
	if got := c.get(key("a")); got != nil || c.bytes != 0 || c.used.Len() != 0 {
		t.Errorf("a forgotten entry is still there: %v, %d bytes, %d entries", got, c.bytes, c.used.Len())
	}
}

func TestEtagEntriesExpire(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	c := newEtagCache(1<<20, nil, time.Minute, clock)
	c.put(key("a"), "1", []byte("A"), "")
	c.put(key("b"), "1", []byte("B"), "")
	clock.SetTime(time.Unix(59, 0))
	if c.get(key("a")) == nil {
		t.Error("the entry expired early")
	}
	clock.SetTime(time.Unix(60, 0))
	if c.get(key("a")) != nil {
		t.Error("the entry did not expire")
	}
	c.put(key("c"), "1", []byte("C"), "")
	if len(c.entries) != 1 || c.used.Len() != 1 {
		t.Errorf("%d entries are left, want 1: expired ones that are not used again are dropped with the next response", len(c.entries))
	}
}

func TestEtagEntriesWithoutLifetimeStay(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	c := newEtagCache(1<<20, nil, 0, clock)
	c.put(key("a"), "1", []byte("A"), "")
	clock.SetTime(time.Unix(0, 0).Add(1000 * 24 * time.Hour))
	if c.get(key("a")) == nil {
		t.Error("the entry expired without a lifetime")
	}
}

func TestEtagCacheIsBounded(t *testing.T) {
	body := make([]byte, 1000)
	perEntry := int64(len(body)) + entryOverhead
	c := newEtagCache(3*perEntry, nil, 0, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for i := range 3 {
		c.put(key(strconv.Itoa(i)), "1", body, "")
	}
	c.get(key("0")) // used again, so that 1 is the oldest
	c.put(key("3"), "1", body, "")
	if c.get(key("1")) != nil {
		t.Error("the least recently used entry is still there")
	}
	for _, name := range []string{"0", "2", "3"} {
		if c.get(key(name)) == nil {
			t.Errorf("entry %s is gone", name)
		}
	}
	c.put(key("2"), "2", make([]byte, 10*perEntry), "")
	if c.get(key("2")) != nil {
		t.Error("a response over the bound was remembered, or the old one was kept in its place")
	}
	if c.bytes > c.maxBytes {
		t.Errorf("%d bytes, more than %d", c.bytes, c.maxBytes)
	}
}

// TestAnEtagCacheKeepsWhatItHasWhenOthersHoldTheRest fills the budget from one cache, and has another one of the same budget.
func TestAnEtagCacheKeepsWhatItHasWhenOthersHoldTheRest(t *testing.T) {
	perEntry := int64(1000) + entryOverhead
	for name, tc := range map[string]struct {
		reason string
		size   int64
		want   []string
	}{
		"AsLargeAsAnother": {"The least recently used one of this cache makes room.", perEntry, []string{"b", "c"}},
		"AsLargeAsAll":     {"All of this cache make room.", 2 * perEntry, []string{"c"}},
		"Larger":           {"There is no room even without them, and they stay.", 2*perEntry + 1, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			budget := fairqueue.Bytes(4 * perEntry)
			others, own := newEtagCache(10*perEntry, budget, 0, clock), newEtagCache(10*perEntry, budget, 0, clock)
			for _, name := range []string{"x", "y"} {
				others.put(key(name), "1", make([]byte, 1000), "")
			}
			for _, name := range []string{"a", "b"} {
				own.put(key(name), "1", make([]byte, 1000), "")
			}
			own.put(key("c"), "1", make([]byte, tc.size-entryOverhead), "")
			var kept []string
			for _, name := range []string{"a", "b", "c"} {
				if entry := own.get(key(name)); entry != nil {
					kept = append(kept, name)
					entry.release()
				}
			}
			if !slices.Equal(kept, tc.want) || others.len() != 2 {
				t.Errorf("%s\nkept %v, want %v; the other cache has %d", tc.reason, kept, tc.want, others.len())
			}
		})
	}
}

func TestEtagCacheIsSafeForConcurrentUse(t *testing.T) {
	c := newEtagCache(10*entryOverhead, nil, time.Minute, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 200 {
				k := key(strconv.Itoa((i * worker) % 20))
				c.put(k, "1", []byte("x"), "")
				c.get(k)
				c.forget(k)
			}
		})
	}
	wg.Wait()
	if len(c.entries) != c.used.Len() {
		t.Errorf("%d entries in the map, %d in the list", len(c.entries), c.used.Len())
	}
}
