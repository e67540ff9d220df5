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
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/destination"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/origin"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// A RetryLaterError says that the hook returned 429, or 503 with a Retry-After header: it does not want to be called now.
// Neither the controller nor its objects are at fault.
type RetryLaterError struct {
	// Status is 429 or 503.
	Status int
	// After is the time to wait, at most [hook.MaxDelay]. 0: the hook gives none; back off as after any failure.
	After time.Duration
}

// Error returns the status and the time to wait.
func (e *RetryLaterError) Error() string {
	status := fmt.Sprintf("the hook returned %d %s", e.Status, http.StatusText(e.Status))
	if e.After == 0 {
		return status
	}
	return status + ", retry after " + e.After.String()
}

// RetryAfter returns After, for callers that know only that an error may carry such a time.
func (e *RetryLaterError) RetryAfter() time.Duration { return e.After }

// A StatusError says that the hook returned with a status code that is no response.
type StatusError struct {
	// Code is the HTTP status code.
	Code int
	// Body is the beginning of the body, at most 200 bytes, if it is text or JSON; otherwise it says what it is.
	Body string
	// SpeaksTLS says that the body is what servers that speak TLS return to those that do not.
	SpeaksTLS bool
}

// Error returns the text of docs/reference/contract.md#s2.5.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("unsupported status code: %d body: %s", e.Code, e.Body)
	if e.SpeaksTLS {
		text += "; the port speaks TLS: " + adviceOnTLS
	}
	return text
}

// adviceOnTLS is for a URL that begins with http although the hook speaks TLS.
const adviceOnTLS = "use https in the URL, and set caBundle"

// speaksTLS reports whether a response is what servers that speak TLS return to those that do not.
func speaksTLS(code int, body string) bool {
	if code != http.StatusBadRequest {
		return false
	}
	body = strings.ToLower(body)
	return strings.Contains(body, "http request to an https server") || // Go
		strings.Contains(body, "http request was sent to https port") || // nginx
		strings.Contains(body, "plain http to an ssl-enabled server port") // Apache
}

// FailureReason returns the reason by which metrics count the error.
func (*StatusError) FailureReason() string { return metrics.ReasonHook }

// A CredentialsError says that a Secret or ConfigMap that the webhook refers to cannot be read or used. No call was made.
type CredentialsError struct {
	// Use is the field that refers to it: caBundle, clientTLS, authorization or basicAuth.
	Use string
	// Reference is the object. It is empty for an inline CA bundle.
	Reference Reference
	// Err is the cause.
	Err error
}

// Error names the field and the object, and never what is in it.
func (e *CredentialsError) Error() string {
	if e.Reference.Kind == "" {
		return fmt.Sprintf("%s of the hook: %v", e.Use, e.Err)
	}
	return fmt.Sprintf("%s of the hook, %s: %v", e.Use, e.Reference, e.Err)
}

// Unwrap returns the cause.
func (e *CredentialsError) Unwrap() error { return e.Err }

// FailureReason returns the reason by which metrics count the error.
func (*CredentialsError) FailureReason() string { return metrics.ReasonHook }

// A CallError says that there was no response: the hook could not be reached, or broke off.
type CallError struct {
	// Hook that was called.
	Hook hook.Name
	// Endpoint is the URL without user, query and fragment.
	Endpoint string
	// Cause is the cause without what changes from call to call, such as local ports.
	Cause string
	// Advice says what to do, or is empty.
	Advice string
	// Connected says that there was a connection: the hook may respond to other calls.
	Connected bool
	// NoRoom says that no call was made, for want of room in [Config.RequestBudget]. It says nothing of the hook.
	NoRoom bool
	// Err is the cause as it was. Its text may hold what must not be shown; use it for errors.Is and errors.As only.
	Err error
}

// Error returns endpoint, cause and advice. It begins as docs/reference/contract.md#s2.5 says.
func (e *CallError) Error() string {
	text := "http error: calling " + e.Endpoint + ": " + e.Cause
	if e.Advice != "" {
		text += "; " + e.Advice
	}
	return text
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// FailureReason returns the reason by which metrics count the error.
func (*CallError) FailureReason() string { return metrics.ReasonHook }

// FunctionHost is the host of URLs in place of which a [Config.Transport] calls functions of this program: no host can have the name.
const FunctionHost = "function.invalid"

// A FunctionError says that a [Config.Transport] has called a function of this program in place of a webhook, and that the function failed.
type FunctionError struct {
	// Err is what the function returned.
	Err error
}

// Error returns the cause, of a length that an event can hold.
func (e *FunctionError) Error() string { return Shorten(printable(e.Err.Error()), maxCause) }

// Unwrap returns the cause.
func (e *FunctionError) Unwrap() error { return e.Err }

// FailureReason returns the reason by which metrics count the error.
func (*FunctionError) FailureReason() string { return metrics.ReasonHook }

// Failed says which hook an error is about (docs/reference/contract.md#s18.3). A function has no version.
func Failed(name hook.Name, version v1alpha1.HookVersion, err error) error {
	if _, ok := errors.AsType[*FunctionError](err); ok {
		return fmt.Errorf("%s function: %w", name, err)
	}
	return fmt.Errorf("%s hook failed (version=%s): %w", name, version, err)
}

// Explained returns the text of an error for a sentence that names the hook, if the error says by itself what failed and what to do: that of a
// call without a response, and that of a function.
func Explained(err error) (string, bool) {
	if e, ok := errors.AsType[*FunctionError](err); ok {
		return strings.Join(strings.Fields(e.Error()), " "), true // What a function returned may have many lines.
	}
	_, ok := errors.AsType[*CallError](err)
	return strings.TrimPrefix(err.Error(), "http error: "), ok
}

const (
	// maxErrorBody is how many bytes of the body of an unsupported status are shown.
	maxErrorBody = 200
	// readErrorBody is how many are read to know what it is.
	readErrorBody = 4 << 10
)

// statusError makes an error of a status and the beginning of a body. It does not show what is hidden.
func statusError(code int, contentType string, body []byte, hidden hidden) *StatusError {
	e := &StatusError{Code: code, SpeaksTLS: speaksTLS(code, string(body))}
	switch {
	case len(body) == 0:
	case isText(contentType, body):
		e.Body = Shorten(strings.TrimSpace(printable(hidden.text(string(body)))), maxErrorBody)
	case contentType == "":
		e.Body = "(not shown, since it is not text)"
	default:
		e.Body = fmt.Sprintf("(not shown, since its Content-Type is %q)", Shorten(printable(hidden.text(contentType)), maxErrorBody))
	}
	return e
}

// isText reports whether the body of a response is text or JSON, by its Content-Type or, without one, by itself.
func isText(contentType string, body []byte) bool {
	if contentType == "" {
		contentType = http.DetectContentType(body)
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(media, "text/") || media == "application/json" || strings.HasSuffix(media, "+json"))
}

// printable returns a text without characters that control how it is shown, such as escape sequences of terminals. Lines stay.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

// Shorten returns the beginning of a text that people read, at most limit bytes and whole characters, and an ellipsis if there is more.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// retryAfter reads a Retry-After header (RFC 9110 §10.2.3): a date, or else seconds; at most [hook.MaxDelay]. 0: none, in the
// past, or unreadable.
func retryAfter(header string, now clock.PassiveClock) time.Duration {
	header = strings.TrimSpace(header)
	if date, err := http.ParseTime(header); err == nil {
		wait := min(date.Sub(now.Now()), hook.MaxDelay)
		return max(0, (wait + time.Second - 1).Truncate(time.Second))
	}
	seconds, err := strconv.ParseInt(header, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, int64(hook.MaxDelay/time.Second))) * time.Second
}

// diagnose returns the cause of a failed call, the same text each time, and what to do about it.
func diagnose(err error) (cause, advice string) {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // it repeats the URL, which may hold a password
	}
	for _, chapter := range []func(error) (string, string){diagnoseRefusal, diagnoseTLS, diagnoseNetwork, diagnoseHTTP} {
		if cause, advice := chapter(err); cause != "" {
			return cause, advice
		}
	}
	return stable(err), ""
}

// diagnoseRefusal is about what this server does not do.
func diagnoseRefusal(err error) (cause, advice string) {
	if e, ok := errors.AsType[*destination.RefusedError](err); ok {
		return e.Error(), e.Advice()
	}
	if e, ok := errors.AsType[*redirectError](err); ok {
		return e.cause, e.advice
	}
	return "", ""
}

func diagnoseTLS(err error) (cause, advice string) {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "certificate signed by unknown authority", "set caBundle to the certificate authority of the hook"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return expired(e), "renew the certificate of the hook, and compare the clocks"
		}
		return stable(e), "replace the certificate of the hook"
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return stable(e), "add the host name to the certificate of the hook, or use a name that is in it"
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return stable(e), "the hook does not speak TLS; use http, or give it a certificate"
	}
	// An alert of the other side has no type of its own.
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return "remote error: " + stable(e.Err), adviceOnAlert(e.Err)
	}
	return "", ""
}

// expired says when the certificate is valid. The error's own text holds the time of the call.
func expired(e x509.CertificateInvalidError) string {
	const text = "certificate has expired or is not yet valid"
	if e.Cert == nil {
		return text
	}
	return fmt.Sprintf("%s: it is valid from %s to %s", text,
		e.Cert.NotBefore.UTC().Format(time.RFC3339), e.Cert.NotAfter.UTC().Format(time.RFC3339))
}

func adviceOnAlert(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"):
		return "the hook demands a client certificate that it knows; set clientTLS"
	case strings.Contains(text, "unknown certificate"), strings.Contains(text, "expired certificate"):
		return "the hook does not accept the client certificate; correct the Secret of clientTLS"
	default:
		return "see the log of the hook for the reason"
	}
}

func diagnoseNetwork(err error) (cause, advice string) {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			check := "check the name and namespace of the Service in the URL"
			if !strings.Contains(e.Name, ".") {
				check = "a name without a namespace is looked up in that of this server: write " + e.Name + ".NAMESPACE"
			}
			return "no such host " + e.Name, adviceOnName(check)
		}
		return "looking up " + e.Name + ": " + e.Err, adviceOnName("check the cluster's DNS")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		if e, ok := errors.AsType[*net.OpError](err); ok {
			if at, ok := e.Addr.(*net.TCPAddr); ok && at.IP.IsLoopback() {
				return stable(err), "nothing listens there; start the hook"
			}
		}
		return stable(err), "nothing listens there; check the Pods and the Service of the hook"
	}
	if errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
		return stable(err), "check the network and the NetworkPolicies between the server and the hook"
	}
	if closed(err) {
		return "the hook closed the connection before its response was complete", "see the log of the hook for a crash"
	}
	return "", ""
}

// insideVariable is set by the kubelet in every container of a Pod.
const insideVariable = "KUBERNETES_SERVICE_HOST"

// adviceOnName returns advice on a name that cannot be resolved, which depends on where this server runs.
func adviceOnName(inside string) string {
	if os.Getenv(insideVariable) != "" {
		return inside
	}
	return "this server runs outside of the cluster, where names of Services are not known; set webhook.url to an address that it reaches, " +
		"or run it in the cluster"
}

func diagnoseHTTP(err error) (cause, advice string) {
	switch text := err.Error(); {
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return text, "the hook does not speak TLS; use http, or give it a certificate"
	case strings.Contains(text, `malformed HTTP response "\x15\x03`):
		return "the port speaks TLS, and the URL begins with http", adviceOnTLS
	case strings.Contains(text, "malformed HTTP"):
		return "the response is not HTTP", "check the port, and whether the hook wants https"
	case strings.Contains(text, "failed to parse Location header"):
		return "the hook redirects to what is no URL", "correct the hook's redirects, or use the final address"
	case strings.Contains(text, "malformed MIME header"), strings.Contains(text, "bad Content-Length"), strings.Contains(text, "transfer encoding"):
		return "the headers of the response are malformed", "correct the headers that the hook returns"
	case strings.Contains(text, "server response headers exceeded"), strings.Contains(text, "response header list larger than"):
		return fmt.Sprintf("the headers of the response exceed %d bytes", maxHeaderBytes), "let the hook return fewer headers"
	case strings.Contains(text, "stream error:"), strings.Contains(text, "server sent GOAWAY"):
		return "the hook broke off its response (HTTP/2)", "see the log of the hook for a crash"
	}
	return "", ""
}

// stable returns the text of an error without local addresses, which differ from call to call. Events with the same text are
// counted; events with different texts pile up.
func stable(err error) string {
	e, ok := errors.AsType[*net.OpError](err)
	if !ok || e.Err == nil {
		return err.Error()
	}
	text := e.Op
	if e.Addr != nil {
		text += " " + e.Addr.String()
	}
	return text + ": " + stable(e.Err)
}

// stage is how far a call has come. A timeout means something else at each.
type stage int32

const (
	connecting stage = iota
	queued
	waiting
	crowded
	reading
)

// maxCause limits a cause, parts of which a hook may choose: its certificate, for example.
const maxCause = 500

// failure makes the error of a call that ended without a response. The call's context is ctx, and outer is the caller's. The error does not
// show what is hidden.
func (c *Client) failure(outer, ctx context.Context, reached stage, err error, hidden hidden) error {
	if e, ok := errors.AsType[*FunctionError](err); ok && outer.Err() == nil {
		return e
	}
	e := &CallError{Hook: c.config.Hook, Endpoint: c.endpoint, Connected: reached != connecting && reached != queued, Err: err}
	switch {
	case outer.Err() != nil:
		e.Err = context.Cause(outer)
		e.Cause = "the call was stopped: " + e.Err.Error()
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		// A dial that runs into the deadline may return before the context knows.
		limit := c.config.timeout()
		switch reached {
		case connecting:
			e.Cause = fmt.Sprintf("no connection within %s", limit)
			e.Advice = "check the Pods and the Service of the hook, and the NetworkPolicies"
		case queued:
			e.NoRoom = true
			e.Cause = fmt.Sprintf("no room for the request within %s beside those of other calls", limit)
			e.Advice = "raise --hook-request-budget of the server, or let the hooks read their requests faster"
		case waiting:
			e.Cause = fmt.Sprintf("connected, but no response within %s", limit)
			e.Advice = "make the hook faster, or raise its timeout"
		case crowded:
			e.Cause = fmt.Sprintf("no room for the response within %s beside those of other calls", limit)
			e.Advice = "raise --hook-response-budget of the server, or let the hooks return less"
		case reading:
			e.Cause = fmt.Sprintf("the response was not complete within %s", limit)
			e.Advice = "make the hook faster or its response smaller, or raise its timeout"
		}
		e.Err = context.DeadlineExceeded
	default:
		e.Cause, e.Advice = diagnose(err)
		e.Cause = Shorten(printable(hidden.text(e.Cause)), maxCause)
	}
	return e
}

// alertPatience is how long a server may take to send an alert after the handshake.
const alertPatience = time.Second

// closed reports whether the other side closed the connection. A write returns net.ErrClosed after a read has noticed it.
func closed(err error) bool {
	signs := []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}
	return slices.ContainsFunc(signs, func(sign error) bool { return errors.Is(err, sign) })
}

// afterHandshake returns the reason of a connection that a hook closed before it returned. A TLS 1.3 client has finished its
// handshake before the server verifies its certificate (RFC 8446 §2), so writing the request may fail before the server's alert
// is read, or may not: without a second look, the same cause would have one message now and another one next time.
func (c *Client) afterHandshake(ctx context.Context, s *session, request *http.Request, err error) error {
	if request.URL.Scheme != "https" || !closed(err) {
		return err
	}
	if proxy, errProxy := s.transport.Proxy(request); errProxy != nil || proxy != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, alertPatience)
	defer cancel()
	if alert, ok := errors.AsType[*net.OpError](s.readAlert(ctx, request.URL)); ok && alert.Op == "remote error" {
		return alert
	}
	return err
}

// readAlert connects anew and returns the error of the handshake, or of the first byte that is read after it.
func (s *session) readAlert(ctx context.Context, u *url.URL) error {
	plain, err := s.transport.DialContext(ctx, "tcp", origin.Address(u))
	if err != nil {
		return err //nolint:wrapcheck // the caller looks at it only
	}
	config := s.transport.TLSClientConfig.Clone()
	config.ServerName = u.Hostname()
	connection := tls.Client(plain, config)
	defer connection.Close() //nolint:errcheck // nothing depends on it
	if err := connection.HandshakeContext(ctx); err != nil {
		return err //nolint:wrapcheck // as above
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetReadDeadline(deadline); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	_, err = connection.Read(make([]byte, 1))
	return err //nolint:wrapcheck // as above
}
