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
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

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
