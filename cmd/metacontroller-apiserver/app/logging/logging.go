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

package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http writes there, and gives clients no other log
	"net/http"
	"slices"
	"strings"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// ShortenStandardLog keeps what hooks send out of the log. An HTTP client logs the bytes that follow a response, as the hook chose them:
// they may be the credentials that it was sent. It is to be called before anything is started, and after logging was set up, which
// replaces the standard library's log.
func ShortenStandardLog() {
	// As after logging was set up: a line begins with its text.
	log.SetFlags(0)
	log.SetOutput(&standardLog{next: log.Writer()})
}

// standardLog passes lines of the standard library on, without bytes of others.
type standardLog struct {
	next io.Writer
}

// Write implements io.Writer. A call is a line.
func (w *standardLog) Write(line []byte) (int, error) {
	// The text is that of net/http.
	if told, _, found := bytes.Cut(line, []byte(" starting with ")); found && bytes.HasPrefix(line, []byte("Unsolicited response")) {
		if _, err := fmt.Fprintf(w.next, "%s: a hook, or another server, sends more than its response\n", told); err != nil {
			return 0, fmt.Errorf("writing to the log: %w", err)
		}
		return len(line), nil
	}
	return w.next.Write(line) //nolint:wrapcheck // the caller ignores it
}

// callDepth is how many functions are between who calls utilruntime.HandleError and the handler.
const callDepth = 3

// LogUnhandledErrors has errors that no caller takes logged as the library logs them, but for those of responses that nobody waits for any
// more: a client that gave up is no error of this server. apiserver_request_terminations_total and apiserver_request_post_timeout_total
// count them. It is to be called before anything is started.
func LogUnhandledErrors() {
	utilruntime.ErrorHandlers[0] = logUnhandled
}

func logUnhandled(ctx context.Context, err error, msg string, keysAndValues ...any) {
	logger := klog.LoggerWithName(klog.FromContext(ctx).WithCallDepth(callDepth), "UnhandledError")
	if abandoned(err) {
		logger.V(2).Info("A response came after the client had given up or the request's time was over", "err", err)
		return
	}
	logger.Error(err, msg, keysAndValues...)
}

// abandoned reports whether an error says that a request was given up. Some errors say it in their text only.
func abandoned(err error) bool {
	return err != nil && slices.ContainsFunc([]error{http.ErrHandlerTimeout, context.Canceled}, func(cause error) bool {
		return errors.Is(err, cause) || strings.HasSuffix(err.Error(), cause.Error())
	})
}
