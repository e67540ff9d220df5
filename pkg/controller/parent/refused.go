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

package parent

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// large is the size of a patch, in bytes, from which on an error says it.
const large = 100 << 10

// failed says of the error of a patch what was to be written, and what the author of the hook can do.
func (c Changes) failed(o *object.Object, operations []operation, size int, err error) error {
	fields := make([]string, len(operations))
	for i, each := range operations {
		fields[i] = path.Base(each.Path)
	}
	shown := ""
	if size >= large {
		shown = fmt.Sprintf(", %.1f MB", float64(size)/1e6)
	}
	return fmt.Errorf("writing the %s of %s%s: %w%s", strings.Join(fields, " and "), o, shown, err, c.advice(fields, err))
}

// advice says how a hook can return what the API server takes.
func (c Changes) advice(fields []string, err error) string {
	last := fields[len(fields)-1]
	switch {
	case last == "finalizers":
		return ""
	case tooLarge(err) && last == "status":
		return "; return a smaller status"
	case tooLarge(err):
		return "; return smaller " + last
	case !apierrors.IsInvalid(err):
		return ""
	case c.Status == nil:
		return "; return valid " + strings.Join(fields, " and ")
	case c.BuiltIn:
		return "; this status is that of a controller of Kubernetes: have the hook return none"
	}
	return "; return a status that the kind allows"
}

// tooLarge reports whether an API server, or its store, says that an object is too large.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(), "request is too large") ||
		strings.Contains(err.Error(), "larger than max") || strings.Contains(err.Error(), "may not be more than")
}

const strictly = "strict decoding error: "

var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// UnknownFields returns the fields, such as status.phase or status itself, for which the API server refused a status as that of a kind which does not have
// them; none if that is not what the error says.
func UnknownFields(err error) (fields []string) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return nil
	}
	// Before it stands the whole object, in which anything may be.
	at := strings.LastIndex(status.ErrStatus.Message, strictly)
	if at < 0 {
		return nil
	}
	for _, found := range unknownField.FindAllStringSubmatch(status.ErrStatus.Message[at:], -1) {
		if found[1] != "status" && !strings.HasPrefix(found[1], "status.") {
			return nil
		}
		fields = append(fields, found[1])
	}
	return fields
}
