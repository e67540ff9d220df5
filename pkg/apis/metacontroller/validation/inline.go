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

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// place says which hook of which kind of controller an inline hook is.
type place struct{ decorator, finalize, customize bool }

// validateInline checks which parts an inline hook has. Expressions and templates are checked against the schemas of their kinds, which are
// not known here.
func validateInline(hook *v1alpha1.Hook, in place, path *field.Path) field.ErrorList {
	if hook == nil || hook.Inline == nil {
		return nil
	}
	inline, at := hook.Inline, path.Child("inline")
	var errs field.ErrorList
	if hook.Webhook != nil {
		errs = append(errs, field.Forbidden(at, "must not be set together with webhook: a hook is one or the other"))
	}
	const (
		both      = "is for the sync and finalize hooks"
		composite = both + " of a CompositeController"
		decorator = both + " of a DecoratorController"
	)
	for _, part := range []struct {
		name     string
		set, fit bool
		reason   string
	}{
		{"children", len(inline.Children) > 0, !in.decorator && !in.customize, composite},
		{"attachments", len(inline.Attachments) > 0, in.decorator && !in.customize, decorator},
		{"labels", len(inline.Labels) > 0, in.decorator && !in.customize, decorator},
		{"annotations", len(inline.Annotations) > 0, in.decorator && !in.customize, decorator},
		{"delete", inline.Delete != nil, in.decorator && !in.customize, decorator},
		{"status", inline.Status != nil, !in.customize, both},
		{"resyncAfterSeconds", inline.ResyncAfterSeconds != nil, !in.customize, both},
		{"finalized", inline.Finalized != nil, in.finalize, "is for the finalize hook"},
		{"relatedResources", len(inline.RelatedResources) > 0, in.customize, "is for the customize hook"},
	} {
		if part.set && !part.fit {
			errs = append(errs, field.Forbidden(at.Child(part.name), part.reason))
		}
	}
	if in.finalize && inline.Finalized == nil {
		errs = append(errs, field.Required(at.Child("finalized"), "a finalize hook decides when objects may go"))
	}
	return errs
}
