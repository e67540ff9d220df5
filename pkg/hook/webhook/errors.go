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
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
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
