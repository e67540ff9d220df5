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
	"net/http"
	"strconv"
	"strings"
	"time"

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
	// Body is the beginning of the body, at most 1 KiB, as text.
	Body string
}

// Error returns the text of docs/reference/contract.md#s2.5.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("unsupported status code: %d body: %s", e.Code, e.Body)
	if e.wantsTLS() {
		text += "; the port speaks TLS: " + adviceOnTLS
	}
	return text
}

// adviceOnTLS is for a URL that begins with http although the hook speaks TLS.
const adviceOnTLS = "use https in the URL, and set caBundle"

// wantsTLS reports whether the status is what servers that speak TLS return to those that do not.
func (e *StatusError) wantsTLS() bool {
	if e.Code != http.StatusBadRequest {
		return false
	}
	body := strings.ToLower(e.Body)
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

// maxErrorBody is how much of the body of an unsupported status is shown.
const maxErrorBody = 1 << 10

// statusError makes an error of a status and the beginning of a body, which may be one byte longer than is shown.
func statusError(code int, body []byte) *StatusError {
	text := string(body[:min(len(body), maxErrorBody)])
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = strings.TrimSpace(text)
	if len(body) > maxErrorBody {
		text += "…"
	}
	return &StatusError{Code: code, Body: text}
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
