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

package ratcheting

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// mistake is what makes two errors the same. The place in a list does not count: items move when others are added or removed.
type mistake struct {
	kind                field.ErrorType
	path, detail, value string
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// mistakeOf identifies an error in an object with these fields, by the value that the error repeats. Where it repeats none, or
// only a number of items, the value of its field counts.
func mistakeOf(err *field.Error, fields map[string]any) mistake {
	value := err.BadValue
	switch err.Type {
	case field.ErrorTypeRequired, field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTooFew:
		value = at(fields, err.Field)
	default:
		if _, omitted := value.(field.OmitValueType); omitted {
			value = at(fields, err.Field)
		}
	}
	text, failed := json.Marshal(value)
	if failed != nil {
		text = fmt.Append(nil, value)
	}
	return mistake{err.Type, indexes.ReplaceAllString(err.Field, "[]"), err.Detail, string(text)}
}

// newErrors returns those of errs, the errors of an object that looks like now, which are not among before, the errors that it
// had when it looked like then. Each earlier error excuses one error.
func newErrors(errs, before field.ErrorList, now, then map[string]any) field.ErrorList {
	excuses := map[mistake]int{}
	for _, err := range before {
		excuses[mistakeOf(err, then)]++
	}
	var kept field.ErrorList
	for _, err := range errs {
		if m := mistakeOf(err, now); excuses[m] > 0 {
			excuses[m]--
		} else {
			kept = append(kept, err)
		}
	}
	return kept
}

// at returns the value at the path of an error, nil if there is none. Keys of maps with a dot or a bracket are not found; errors
// about those repeat their value.
func at(tree any, path string) any {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		switch node := tree.(type) {
		case map[string]any:
			tree = node[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(node) {
				return nil
			}
			tree = node[i]
		default:
			return nil
		}
	}
	return tree
}

const (
	// maxErrors is how many errors a client is told at once.
	maxErrors = 100
	// maxValue is how much of an error may be the value that it repeats, in bytes with all punctuation. A longer one is left out.
	maxValue = 1024
)

// Validation is the declarative validation of a strategy, which embeds it. It joins the errors of generated and hand-written
// rules, and ratchets those of updates. Set every field; it is safe for concurrent use.
//
// Unlike [rest.DeclarativeValidation] it does not compare the two, which serves kinds whose hand-written rules are being replaced
// by generated ones, and takes time that grows with the square of the errors.
type Validation struct {
	rest.DeclarativeValidation

	// Version is the version in which the paths of errors name fields.
	Version schema.GroupVersion
	// Rules are the rules written by hand. They are asked what was wrong with an object before it was updated.
	Rules func(object runtime.Object) field.ErrorList
}

var _ rest.DeclarativeValidationStrategy = Validation{}

// Canonicalize changes nothing: objects are stored as their authors wrote them.
func (Validation) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate is false: PUT of an object that does not exist is NotFound, as with custom resources.
func (Validation) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false: PUT needs a resourceVersion, as with custom resources.
func (Validation) AllowUnconditionalUpdate(context.Context) bool { return false }

// ValidateDeclaratively adds the errors of the generated rules to those of the rules written by hand, and drops what an update
// is not to blame for. Of very many errors the first ones are returned, and how many more there are; very long values are left
// out.
func (v Validation) ValidateDeclaratively(ctx context.Context, object, old runtime.Object, errs field.ErrorList,
	operationType operation.Type, config rest.DeclarativeValidationConfig,
) field.ErrorList {
	errs = append(errs, v.DeclarativeValidation.ValidateDeclaratively(ctx, object, old, nil, operationType, config)...)
	if operationType == operation.Update && len(errs) > 0 {
		before := append(v.Rules(old), v.DeclarativeValidation.ValidateDeclaratively(ctx, old, nil, nil, operation.Create, config)...)
		errs = v.keepNew(errs, before, object, old)
	}
	return brief(errs)
}

// brief keeps the answer short, however long the object and however many its mistakes are.
func brief(errs field.ErrorList) field.ErrorList {
	if len(errs) > maxErrors {
		left := errs[maxErrors-1:]
		more := field.Invalid(nil, field.OmitValueType{}, fmt.Sprintf("and %d more mistakes", len(left)))
		more.Field = left[0].Field
		errs = append(errs[:maxErrors-1:maxErrors-1], more)
	}
	for i, err := range errs {
		if len(err.ErrorBody())-len(err.Type.String())-len(err.Detail) > maxValue {
			without := *err
			without.BadValue = field.OmitValueType{}
			errs[i] = &without
		}
	}
	return errs
}

func (v Validation) keepNew(errs, before field.ErrorList, object, old runtime.Object) field.ErrorList {
	if len(before) == 0 {
		return errs
	}
	now, err := v.tree(object)
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	then, err := v.tree(old)
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	return newErrors(errs, before, now, then)
}

func (v Validation) tree(object runtime.Object) (map[string]any, error) {
	versioned, err := v.ConvertToVersion(object, v.Version)
	if err != nil {
		return nil, fmt.Errorf("converting a %T to %s to compare its fields: %w", object, v.Version, err)
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return nil, fmt.Errorf("reading the fields of a %T: %w", object, err)
	}
	return tree, nil
}
