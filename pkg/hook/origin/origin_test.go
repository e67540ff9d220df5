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

package origin

import (
	"net/url"
	"testing"
)

func TestARedirectStaysWithTheHook(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		want     bool
	}{
		"AnotherPath":                  {"http://hooks.example.com/sync", "http://hooks.example.com/other?a=b", true},
		"ThePortOfTheScheme":           {"http://hooks.example.com/sync", "http://hooks.example.com:80/sync", true},
		"AHostInCapitals":              {"http://hooks.example.com/sync", "http://HOOKS.example.com/sync", true},
		"AnotherHost":                  {"http://hooks.example.com/sync", "http://other.example.com/sync", false},
		"AHostBelowIt":                 {"http://hooks.example.com/sync", "http://a.hooks.example.com/sync", false},
		"AnotherPort":                  {"http://hooks.example.com/sync", "http://hooks.example.com:8080/sync", false},
		"ToHTTPS":                      {"http://hooks.example.com/sync", "https://hooks.example.com/sync", true},
		"ToHTTPSAtPortsThatAreNamed":   {"http://hooks.example.com:80/sync", "https://hooks.example.com:443/sync", true},
		"ToHTTPSFromAPortOfItsOwn":     {"http://hooks.example.com:8080/sync", "https://hooks.example.com/sync", false},
		"ToHTTPSAtAPortOfItsOwn":       {"http://hooks.example.com/sync", "https://hooks.example.com:8443/sync", false},
		"ToHTTPSOfAnotherHost":         {"http://hooks.example.com/sync", "https://other.example.com/sync", false},
		"BackToHTTP":                   {"https://hooks.example.com/sync", "http://hooks.example.com/sync", false},
		"BackToHTTPAtThePortOfHTTPS":   {"https://hooks.example.com/sync", "http://hooks.example.com:443/sync", false},
		"AnAddressOfIPv6":              {"http://[::1]:9000/sync", "http://[::1]:9000/other", true},
		"AnAddressOfIPv6ToHTTPS":       {"http://[::1]/sync", "https://[::1]/sync", true},
		"AnotherScheme":                {"http://hooks.example.com/sync", "ftp://hooks.example.com:80/sync", false},
		"ARedirectWithTheNameOfAUser":  {"http://hooks.example.com/sync", "http://user@hooks.example.com/sync", true},
		"AHostThatIsTheNameOfAUser":    {"http://hooks.example.com/sync", "http://hooks.example.com@other.example.com/sync", false},
		"TheSameAddressWithAnEmptyEnd": {"http://hooks.example.com", "http://hooks.example.com/", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Keeps(parse(t, tc.from), parse(t, tc.to)); got != tc.want {
				t.Errorf("%s to %s: %t, want %t", tc.from, tc.to, got, tc.want)
			}
		})
	}
}

func TestPortAndAddress(t *testing.T) {
	if got := Address(parse(t, "https://[::1]/x")); got != "[::1]:443" {
		t.Errorf("the address is %s", got)
	}
	for address, want := range map[string]string{
		"http://a/": "80", "https://a/": "443", "socks5://a": "1080", "socks5h://a": "1080", "http://a:9/": "9", "http://[::1]:9/": "9",
	} {
		if got := Port(parse(t, address)); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestUpgraded(t *testing.T) {
	for address, want := range map[string]string{
		"http://a.example.com/x?y": "https://a.example.com:443/", "http://a.example.com:80": "https://a.example.com:443/", "http://[::1]/": "https://[::1]:443/",
	} {
		if got := Upgraded(parse(t, address)); got == nil || got.String() != want {
			t.Errorf("%s: %v, want %s", address, got, want)
		}
	}
	for _, address := range []string{"https://a/", "http://a:8080/"} {
		if got := Upgraded(parse(t, address)); got != nil {
			t.Errorf("%s: %v, want none", address, got)
		}
	}
}

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
