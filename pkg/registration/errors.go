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

package registration

import (
	"fmt"
	"strings"
	"time"
)

// A ServedByDefinitionsError means that CustomResourceDefinitions serve the group in this cluster. Registering over them
// would hide their objects, and bring them back, old, when the registration goes.
type ServedByDefinitionsError struct {
	// Definitions are the names of the CustomResourceDefinitions; empty when only their APIService is known.
	Definitions []string
}

// Error names the definitions and says what to do.
func (e *ServedByDefinitionsError) Error() string {
	what := "CustomResourceDefinitions"
	if len(e.Definitions) > 0 {
		what = "the CustomResourceDefinitions " + strings.Join(e.Definitions, ", ")
	}
	return fmt.Sprintf("this cluster already serves %s/%s by %s: save their objects with metacontroller-apiserver export, "+
		"stop the Metacontroller that uses them, delete the definitions, and register again", group, version, what)
}

// An OccupiedError means that the cluster has a registration which this package did not make and must not change.
type OccupiedError struct {
	// Object is the kind and name of what is there.
	Object string
	// Detail says in what it differs and what to do.
	Detail string
}

// Error names the object, and what to do.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s exists already: %s", e.Object, e.Detail)
}

// An UnavailableError means that everything was applied, but the cluster did not reach the server in time.
type UnavailableError struct {
	// Waited is how long it was waited for.
	Waited time.Duration
	// Reason and Message are those of the condition Available, or of the last error.
	Reason, Message string
}

// Error gives the cluster's reason, and where to look next.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("APIService %s is not available after %s: %s: %s; the registration stays, so look at the server's log and at "+
		"kubectl get apiservice %s -o yaml, or take it back with unregister",
		APIServiceName, e.Waited, e.Reason, e.Message, APIServiceName)
}
