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

package related

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// RuleError means that a rule in a customize hook's response is invalid. A retry helps only when the hook returns another rule.
type RuleError struct {
	// Index of the rule in the response.
	Index int
	// APIVersion and Resource as the rule names them.
	APIVersion, Resource string
	// Err says what is wrong and what to do.
	Err error
}

func newRuleError(index int, r *hook.RelatedResourceRule, err error) *RuleError {
	return &RuleError{Index: index, APIVersion: r.APIVersion, Resource: r.Resource, Err: err}
}

// Error names the rule and what is wrong with it.
func (e *RuleError) Error() string {
	return fmt.Sprintf("relatedResources[%d]%s: %v", e.Index, typeName(e.APIVersion, e.Resource), e.Err)
}

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// UnresolvedError means that the cluster does not serve the type of a rule now.
type UnresolvedError struct {
	// Index of the rule in the response.
	Index int
	// APIVersion and Resource as the rule names them.
	APIVersion, Resource string
	// Err is the error of the ResolveFunc.
	Err error
}

// Error names the rule and the type.
func (e *UnresolvedError) Error() string {
	return fmt.Sprintf("relatedResources[%d]%s: resolving the resource: %v", e.Index, typeName(e.APIVersion, e.Resource), e.Err)
}

// Unwrap returns Err.
func (e *UnresolvedError) Unwrap() error { return e.Err }

// typeName returns the type of a rule in parentheses; empty when the rule names none.
func typeName(apiVersion, resource string) string {
	if apiVersion == "" && resource == "" {
		return ""
	}
	return " (" + strings.TrimSpace(apiVersion+" "+resource) + ")"
}

// NotSyncedError means that informers have not synced. It is no failure: the parent is synced again when they have.
type NotSyncedError struct {
	// Resources whose informers have not synced.
	Resources []schema.GroupVersionResource
}

// Error names the resources.
func (e *NotSyncedError) Error() string {
	names := make([]string, len(e.Resources))
	for n, r := range e.Resources {
		names[n] = strings.TrimPrefix(r.GroupVersion().String()+"/"+r.Resource, "/")
	}
	return "related objects are still being listed: " + strings.Join(names, ", ")
}
