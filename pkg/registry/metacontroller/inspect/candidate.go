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

package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	restclient "k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// tryCandidate returns the object that a write of the candidate by the caller would store. It is sent to the API of this process as a dry
// run in the caller's name, so that it passes the very authorization, admission and validation of a write. Whoever may not write the
// controller must not have its hooks called with other addresses and credentials. The stored object may change meanwhile, as by a status that
// is published; the caller has not named a version.
func (s *subresource) tryCandidate(ctx context.Context, name string, candidate []byte) (object runtime.Object, err error) {
	for range candidateTries {
		if object, err = s.dryRun(ctx, name, candidate); !apierrors.IsConflict(err) {
			return object, err
		}
	}
	return nil, err
}

const candidateTries = 5

func (s *subresource) dryRun(ctx context.Context, name string, candidate []byte) (runtime.Object, error) {
	client, err := s.clientOf(ctx)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(candidate, &content); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("candidate: %v", err))
	}
	metadata, _ := content["metadata"].(map[string]any)
	if given, ok := metadata["name"]; ok && given != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("candidate: its name is %v, and the plan is for %s", given, name))
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"] = name
	request := client.Post().Resource(s.resource)
	stored, err := s.get(ctx, name)
	switch {
	case err == nil:
		request = client.Put().Resource(s.resource).Name(name)
		metadata["resourceVersion"] = stored.GetResourceVersion()
		metadata["uid"] = stored.GetUID()
	case !apierrors.IsNotFound(err):
		return nil, err
	default:
		delete(metadata, "resourceVersion")
		delete(metadata, "uid")
	}
	content["apiVersion"], content["kind"], content["metadata"] = v1alpha1.SchemeGroupVersion.String(), s.kind, metadata
	body, err := json.Marshal(content)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("candidate: %v", err))
	}
	result, err := request.Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).Body(body).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	return result, nil
}

// candidateError is the error of a candidate that could not be built, as callers get it: a bad request only if the definition is the cause.
func candidateError(ctx context.Context, err error) error {
	text := fmt.Sprintf("the candidate could not run: %v", err)
	_, refused := errors.AsType[*apierrors.StatusError](err)
	_, unreached := errors.AsType[net.Error](err)
	_, panicked := errors.AsType[*recovery.PanicError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return apierrors.NewTimeoutError(fmt.Sprintf("the candidate was not ready within %s: %v", workLimit, err), 0)
	case ctx.Err() != nil, panicked:
		return apierrors.NewInternalError(errors.New(text))
	case refused, unreached:
		return apierrors.NewServiceUnavailable("the cluster did not say what it serves of the candidate's kinds: " + text)
	default:
		return apierrors.NewBadRequest(text)
	}
}

// clientOf returns a client of the API of this process that acts as the caller.
func (s *subresource) clientOf(ctx context.Context) (restclient.Interface, error) {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok || s.config.Loopback == nil {
		return nil, apierrors.NewServiceUnavailable("this server cannot try candidates")
	}
	config := restclient.CopyConfig(s.config.Loopback)
	config.Impersonate = restclient.ImpersonationConfig{UserName: u.GetName(), UID: u.GetUID(), Groups: slices.Clone(u.GetGroups()), Extra: u.GetExtra()}
	config.WarningHandlerWithContext = warned{}
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client that acts as the caller: %w", err)
	}
	return clients.MetacontrollerV1alpha1().RESTClient(), nil
}

// warned passes the warnings about a candidate on to the caller, as a write of it would.
type warned struct{}

// HandleWarningHeaderWithContext implements restclient.WarningHandlerWithContext. 299 is the code of warnings that last (RFC 7234, 5.5.7).
func (warned) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if code == 299 && text != "" {
		warning.AddWarning(ctx, agent, text)
	}
}
