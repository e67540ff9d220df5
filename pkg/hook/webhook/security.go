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
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Reference names a Secret or ConfigMap that a client reads.
type Reference struct {
	// Kind is Secret or ConfigMap.
	Kind string
	// Namespace and Name of the object.
	Namespace, Name string
}

// String returns kind, namespace and name.
func (r Reference) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// security reads the credentials of one webhook.
type security struct {
	settings    v1alpha1.WebhookSecurity
	credentials Credentials
}

// references returns all objects that a call reads.
func (s *security) references() []Reference {
	var refs []Reference
	s.settings.EachReference(func(_, _, kind, namespace, name string, _ ...string) {
		refs = append(refs, Reference{kind, namespace, name})
	})
	return refs
}

// snapshot is the credentials as they are now.
type snapshot struct {
	// tlsVersion changes when one of the fields below it does. Empty: no TLS settings.
	tlsVersion string
	// ca is nil when there is no caBundle.
	ca     []byte
	caFrom Reference
	// cert and key are nil when there is no clientTLS.
	cert, key []byte
	certFrom  Reference
	// authorization is the value of the header, or empty.
	authorization string
	// hidden is what of it no message may show.
	hidden hidden
}

func (s *security) read(ctx context.Context) (snapshot, error) {
	var now snapshot
	if b := s.settings.CABundle; b != nil && b.Inline != nil {
		now.ca, now.tlsVersion = []byte(*b.Inline), "inline"
	}
	var failed error
	s.settings.EachReference(func(use, _, kind, namespace, name string, keys ...string) {
		if failed == nil {
			failed = s.readReference(ctx, &now, use, Reference{kind, namespace, name}, keys)
		}
	})
	if failed != nil {
		return snapshot{}, failed
	}
	return now, nil
}

// readReference adds what one object has to the snapshot.
func (s *security) readReference(ctx context.Context, now *snapshot, use string, from Reference, keys []string) error {
	version, data, err := s.get(ctx, use, from)
	if err != nil {
		return err
	}
	unusable := func(format string, key string) error {
		return &CredentialsError{Use: use, Reference: from, Err: fmt.Errorf(format, key)}
	}
	values := make([][]byte, len(keys))
	for i, key := range keys {
		value, ok := data[key]
		if !ok {
			return unusable("it has no key %s", key)
		}
		if value == nil { // An empty entry is not a missing one.
			value = []byte{}
		}
		values[i] = value
	}
	switch use {
	case "caBundle":
		now.ca, now.caFrom, now.tlsVersion = values[0], from, from.String()+"@"+version
	case "clientTLS":
		now.cert, now.key, now.certFrom = values[0], values[1], from
		now.tlsVersion += ";" + from.String() + "@" + version
	case "authorization":
		value := strings.TrimSpace(string(values[0]))
		if !isHeaderValue(value) {
			return unusable("key %s holds characters that no header may hold, such as a line break", keys[0])
		}
		now.authorization = authorizationType(s.settings.Authorization) + " " + value
		now.hidden = now.hidden.with(value)
	case "basicAuth":
		user, word := strings.TrimSpace(string(values[0])), strings.TrimSpace(string(values[1]))
		if strings.Contains(user, ":") {
			return unusable("the user name in key %s holds a colon (RFC 7617 §2)", keys[0])
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(user + ":" + word))
		now.authorization = "Basic " + encoded
		now.hidden = now.hidden.with(encoded, word)
	}
	return nil
}

func authorizationType(a *v1alpha1.WebhookAuthorization) string {
	return cmp.Or(strings.TrimSpace(ptr.Deref(a.Type, "")), "Bearer")
}

// isHeaderValue reports whether a text may be sent as the value of a header (RFC 9110 §5.5). A line break would begin another header.
func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func (s *security) get(ctx context.Context, use string, r Reference) (version string, data map[string][]byte, err error) {
	switch {
	case s.credentials == nil:
		err = errors.New("this server does not read credentials")
	case r.Kind == "ConfigMap":
		version, data, err = s.credentials.ConfigMap(ctx, r.Namespace, r.Name)
	default:
		version, data, err = s.credentials.Secret(ctx, r.Namespace, r.Name)
	}
	if err != nil {
		return "", nil, &CredentialsError{Use: use, Reference: r, Err: err}
	}
	return version, data, nil
}

// tlsConfig returns the TLS settings of the snapshot.
func (now *snapshot) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if now.ca != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(now.ca) {
			return nil, &CredentialsError{Use: "caBundle", Reference: now.caFrom, Err: errors.New("it holds no PEM certificate")}
		}
		c.RootCAs = pool
	}
	if now.cert != nil {
		pair, err := tls.X509KeyPair(now.cert, now.key)
		if err != nil {
			return nil, &CredentialsError{Use: "clientTLS", Reference: now.certFrom, Err: fmt.Errorf("certificate and key cannot be used: %w", err)}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// hidden is what no message may show: credentials, and what of a URL may be some. Hooks may return what they were sent.
type hidden []string

const (
	// minHidden is the size below which nothing is hidden: such a text says nothing, and is in too many others.
	minHidden = 6
	// hiddenText is what messages show in its place.
	hiddenText = "(hidden)"
)

// with adds texts.
func (h hidden) with(texts ...string) hidden {
	return append(h, slices.DeleteFunc(texts, func(text string) bool { return len(text) < minHidden })...)
}

// hiddenOf returns what of a URL no message may show: its password, or its user if there is none, and its query.
func hiddenOf(u *url.URL) hidden {
	var h hidden
	if u.User != nil {
		user := u.User.Username()
		password, _ := u.User.Password()
		h = h.with(base64.StdEncoding.EncodeToString([]byte(user+":"+password)), password)
		if password == "" {
			h = h.with(user)
		}
	}
	h = h.with(u.RawQuery)
	for _, values := range u.Query() {
		h = h.with(values...)
	}
	return h
}

// forms returns what is hidden in all ways in which a hook or an error may write it.
func (h hidden) forms() []string {
	var forms hidden
	for _, text := range h {
		forms = forms.with(text)
		if decoded, err := url.QueryUnescape(text); err == nil {
			forms = forms.with(decoded)
		}
		if decoded, err := url.PathUnescape(text); err == nil {
			forms = forms.with(decoded)
		}
	}
	for _, text := range slices.Clone(forms) {
		path := url.URL{Path: "/" + text}
		forms = forms.with(url.QueryEscape(text), url.PathEscape(text), url.User(text).String(), path.EscapedPath()[1:], html.EscapeString(text))
		for _, escaped := range escapes(text) {
			forms = forms.with(escaped).with(escapes(escaped)...)
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// escapes returns a text as it is within quotes of JSON and Go, without the quotes.
func escapes(text string) []string {
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)        //nolint:errchkjson // It never fails for a string.
	inHTML, _ := json.Marshal(text) //nolint:errchkjson // as above
	list := []string{strings.TrimSpace(plain.String()), string(inHTML), strconv.Quote(text), strconv.QuoteToASCII(text)}
	for i, quoted := range list {
		list[i] = quoted[1 : len(quoted)-1]
	}
	return append(list, inASCII(list[0]), inASCII(list[1]))
}

// inASCII returns a JSON text as encoders write it that escape all other characters.
func inASCII(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// text returns a text without what is hidden, in any form, whole or cut short.
func (h hidden) text(text string) string {
	return without(h.forms(), text)
}

// without returns a text without forms of what is hidden.
func without(forms []string, text string) string {
	if len(forms) == 0 {
		return text
	}
	var shown strings.Builder
	for at := 0; at < len(text); {
		end := endOfHidden(text, at, forms)
		if end == at {
			shown.WriteByte(text[at])
			at++
			continue
		}
		shown.WriteString(hiddenText)
		at = end
	}
	return shown.String()
}

// endOfHidden returns where the longest of the forms that begins in a text at a byte ends: there, if none does. What begins as a form
// and goes on in another way, as one that is escaped twice, goes on to the next space or quote.
func endOfHidden(text string, at int, forms []string) int {
	longest, whole := 0, false
	for _, form := range forms {
		n := 0
		for n < len(form) && at+n < len(text) && form[n] == text[at+n] {
			n++
		}
		if n > longest || n == longest && n < len(form) {
			longest, whole = n, n == len(form)
		}
	}
	end := at + longest
	if longest < minHidden {
		return at
	}
	for !whole && end < len(text) && (!strings.ContainsRune(" \t\r\n\"'`", rune(text[end])) || text[end-1] == '\\') {
		end++
	}
	return end
}

// json returns a JSON text without what is hidden. It is looked for in what strings mean, since they can be written in several ways.
func (h hidden) json(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	return json.Marshal(valueWithout(h.forms(), content))
}

// valueWithout returns a decoded JSON value without forms of what is hidden.
func valueWithout(forms []string, v any) any {
	switch v := v.(type) {
	case string:
		return without(forms, v)
	case json.Number:
		if shown := without(forms, v.String()); shown != v.String() {
			return shown
		}
	case []any:
		for i := range v {
			v[i] = valueWithout(forms, v[i])
		}
	case map[string]any:
		shown := make(map[string]any, len(v))
		for key, value := range v {
			shown[without(forms, key)] = valueWithout(forms, value)
		}
		return shown
	}
	return v
}

// from returns an error whose text does not show what is hidden. Nil stays nil.
func (h hidden) from(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if shown := h.text(text); shown != text {
		return &shownError{text: shown, err: err}
	}
	return err
}

// shownError is an error with another text.
type shownError struct {
	text string
	err  error
}

// Error implements error.
func (e *shownError) Error() string { return e.text }

// Unwrap returns the error, whose text must not be shown.
func (e *shownError) Unwrap() error { return e.err }
