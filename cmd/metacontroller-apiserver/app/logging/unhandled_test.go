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
	"net/http"
	"slices"
	"strings"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

func TestAClientThatGaveUpIsNoErrorOfTheServer(t *testing.T) {
	former := slices.Clone(utilruntime.ErrorHandlers)
	defer func() { utilruntime.ErrorHandlers = former }() //nolint:reassign // As it was.
	LogUnhandledErrors()
	var written bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&written), textlogger.Verbosity(1))))
	utilruntime.HandleErrorWithContext(ctx, fmt.Errorf("writing a response: %w", http.ErrHandlerTimeout), "Unhandled Error")
	utilruntime.HandleErrorWithContext(ctx, errors.New("writing a response: "+http.ErrHandlerTimeout.Error()), "Unhandled Error")
	utilruntime.HandleErrorWithContext(ctx, errors.New("writing a response: "+context.Canceled.Error()), "Unhandled Error")
	utilruntime.HandleErrorWithContext(ctx, errors.New("boom"), "Unhandled Error")
	log := written.String()
	if strings.Contains(log, "writing a response") || !strings.Contains(log, "boom") {
		t.Errorf("the log is %q", log)
	}
	if !strings.Contains(log, "unhandled_test.go") {
		t.Errorf("the log does not name the place of the error: %q", log)
	}
}
