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

package apiserver

import (
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A tooLargeError says that an object is larger than etcd takes. Clients get 413 Request Entity Too Large, of which the generic API server would
// make 500. That recognizes it as the error of etcd's client, and so tries a patch again without managed fields.
type tooLargeError struct{ error }

var _ apierrors.APIStatus = &tooLargeError{}

// isTooLarge reports whether an error says that etcd, or its client, takes no request of this size.
func isTooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "trying to send message larger than max")
}

// Error is the text of etcd.
func (*tooLargeError) Error() string { return rpctypes.ErrRequestTooLarge.Error() }

// Code is that of etcd.
func (*tooLargeError) Code() codes.Code { return codes.InvalidArgument }

// Unwrap returns what etcd's client said.
func (e *tooLargeError) Unwrap() error { return e.error }

// Status implements apierrors.APIStatus.
func (e *tooLargeError) Status() metav1.Status {
	return apierrors.NewRequestEntityTooLargeError("the object as it would be stored is too large for the etcd of this server, which takes 1.5 MiB unless its flag " +
		"--max-request-bytes says otherwise, and at most 2 MiB: " + e.error.Error()).Status()
}
