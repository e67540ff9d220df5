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
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

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
