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

package apply

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

const (
	// maxCauses is how many fields are named, and maxValue how long a value may be that is repeated, in bytes.
	maxCauses = 3
	maxValue  = 40
)

// An InvalidError says that the API server refuses a child as invalid. Its text has the fields and reasons, and not the values, of which
// the API server's own text may have pages.
type InvalidError struct {
	// Causes are the fields and why each is refused, as in "spec.selector: field is immutable".
	Causes []string
	// Immutable says that a field cannot be changed in an existing object.
	Immutable bool
	// Record says that the annotations are too long with the record of what was applied, which no author has set.
	Record bool
	// Attaches says that the controller is a DecoratorController, whose attachments do not roll.
	Attaches bool
	// Err is the API server's error.
	Err error
}

// Error implements error.
func (e *InvalidError) Error() string {
	text := strings.Join(e.Causes, "; ")
	if e.Immutable {
		rolling := ", or RollingRecreate for a rolling update"
		if e.Attaches {
			rolling = ""
		}
		text += "; to have the child deleted and created anew, set updateStrategy.method of its kind to Recreate" + rolling +
			"; to keep it, return the present value"
	}
	if e.Record {
		text += "; " + merge.Annotation + " is among them, which this server adds to a child that it merges; server-side apply needs none: set " +
			"updateStrategy.apply of its kind to ServerSide"
	}
	return text
}

// Unwrap returns the API server's error.
func (e *InvalidError) Unwrap() error { return e.Err }

// invalid returns an InvalidError if that is what an error of the API server about a step is, and the error as it is otherwise. Of a child with
// secrets no values are repeated.
func (a *Applier) invalid(err error, step *plan.Step) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Reason != metav1.StatusReasonInvalid || status.ErrStatus.Details == nil {
		return err
	}
	result := &InvalidError{Err: err, Attaches: a.attaches}
	for _, cause := range status.ErrStatus.Details.Causes {
		reason := withoutDump(cause.Message, step.Secret())
		if step.Action == plan.Update && immutable(reason) {
			result.Immutable = true
		}
		if step.Manager == "" && cause.Field == "metadata.annotations" && cause.Type == metav1.CauseType(field.ErrorTypeTooLong) {
			result.Record = true
		}
		if cause.Field != "" && cause.Field != "<nil>" {
			reason = cause.Field + ": " + reason
		}
		result.Causes = append(result.Causes, reason)
	}
	if len(result.Causes) == 0 {
		return err
	}
	if more := len(result.Causes) - maxCauses; more > 0 {
		result.Causes = append(result.Causes[:maxCauses], "and more")
	}
	return result
}

// immutable reports whether the API server's reason says that a field cannot be changed.
func immutable(reason string) bool {
	return slices.ContainsFunc([]string{
		"immutable", "may not change", "may not be changed", "cannot be changed", "can not be changed", "may not be updated",
		"updates to statefulset spec for fields other than", "may not be modified", "once set",
	}, func(text string) bool { return strings.Contains(reason, text) })
}

// withoutDump returns what an API server says about a field without what follows on further lines, which is a difference between
// structs, and without a value that is long, a struct, or secret.
func withoutDump(message string, secret bool) string {
	message, _, _ = strings.Cut(message, "\n")
	rest, found := strings.CutPrefix(message, "Invalid value: ")
	if !found {
		return message
	}
	end := endOfValue(rest)
	reason, found := strings.CutPrefix(rest[end:], ": ")
	if !found {
		return "Invalid value"
	}
	value := rest[:end]
	if secret || len(value) > maxValue || strings.ContainsAny(value, "{}") {
		return reason
	}
	return "Invalid value: " + value + ": " + reason
}

// endOfValue returns where a value ends that Go's %q or %#v has printed.
func endOfValue(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '`':
			quote = c
		case strings.IndexByte("{[(", c) >= 0:
			depth++
		case strings.IndexByte("}])", c) >= 0:
			depth--
		case depth <= 0 && strings.HasPrefix(text[i:], ": "):
			return i
		}
	}
	return len(text)
}
