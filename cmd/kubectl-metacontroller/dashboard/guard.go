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

package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy lets a page load its own style, script and updates, and nothing else from anywhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// headers are those of every response. Without a referrer for its own pages, a browser would not name the origin of their forms either.
var headers = map[string]string{
	"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
	"Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
}

// guard lets those requests pass which the user's own browser makes for a page of this server.
type guard struct {
	// hosts are the names under which a browser may have reached it: a name that an attacker points at 127.0.0.1 is none of them.
	hosts []string
	// token is in the address that is printed, session in the cookie for which it is exchanged.
	token, session string
	// cookie has the port in its name: cookies of all ports of a host are sent to each.
	cookie string
}

func newGuard(address string) guard {
	_, port, _ := strings.Cut(address, ":")
	return guard{hosts: []string{address, "localhost:" + port}, token: rand.Text(), session: rand.Text(), cookie: "metacontroller-dashboard-" + port}
}

// protect answers what does not pass with 403 and no more than how to get in.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		switch {
		case !g.here(r):
			http.Error(w, "This is not the address of the dashboard.", http.StatusForbidden)
		case g.invited(r):
			g.exchange(w, r)
		case !g.known(r):
			http.Error(w, "Open the address that 'kubectl metacontroller dashboard' has printed.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// here reports whether a request was made to one of the hosts, and by no page of another origin. What writes has to name its origin.
func (g *guard) here(r *http.Request) bool {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case !slices.Contains(g.hosts, r.Host) || origin != "" && origin != "http://"+r.Host:
		return false
	case r.Method != http.MethodGet && r.Method != http.MethodHead && origin == "":
		return false
	}
	// An address that is opened from a page elsewhere has its token; anything else from there has no business here.
	return site == "" || site == "same-origin" || site == "none" || g.invited(r)
}

// invited reports whether a request has the token.
func (g *guard) invited(r *http.Request) bool {
	return r.Method == http.MethodGet && same(r.URL.Query().Get("token"), g.token)
}

// known reports whether a request has the cookie.
func (g *guard) known(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookie)
	return err == nil && same(cookie.Value, g.session)
}

// exchange gives the cookie for the token, and leads to the address without it, so that it is in no bookmark.
func (g *guard) exchange(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // There is no TLS on 127.0.0.1, which browsers ask for with Secure.
	query := r.URL.Query()
	query.Del("token")
	// The path alone: one that begins with two slashes would be another host.
	to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/\\"), RawQuery: query.Encode()}
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}

func same(given, secret string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(secret)) == 1
}
