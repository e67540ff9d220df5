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

package status

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// maxErrors is how many errors of parents are told.
const maxErrors = 10

// Parents are numbers of how the parents of a controller are doing.
type Parents struct {
	// Known says that there are numbers, and Live that they are those of now.
	Known, Live bool
	Total       int64
	States      map[v1alpha1.ParentState]int64
	Errors      []v1alpha1.ParentError
	// Unsettled is one that is held back since it does not settle, as NAMESPACE/NAME; empty if none is, or it is not known.
	Unsettled string
}

// Failing counts those whose last sync failed.
func (p Parents) Failing() int64 { return p.States[v1alpha1.ParentFailing] }

// parentsOf returns how the parents are doing now, or as the status has it if that is not known.
func parentsOf(status *v1alpha1.ControllerStatus, live *v1alpha1.ControllerParentList) Parents {
	p := Parents{Known: true, Live: true, States: map[v1alpha1.ParentState]int64{}}
	if live == nil {
		p.Live, p.Errors = false, status.LastErrors
		c := status.Counters
		if p.Known = c != nil; p.Known {
			p.Total = c.Parents
			p.States[v1alpha1.ParentSynced], p.States[v1alpha1.ParentFailing], p.States[v1alpha1.ParentPending] = c.Synced, c.Failing, c.Pending
		}
		return p
	}
	p.Total = int64(len(live.Items))
	for i := range live.Items {
		parent := &live.Items[i]
		p.States[parent.State]++
		if parent.State == v1alpha1.ParentHeld && p.Unsettled == "" && strings.Contains(parent.Message, "does not settle") {
			p.Unsettled = parent.FullName()
		}
		if r := parent.ParentReference; parent.State == v1alpha1.ParentFailing && len(p.Errors) < maxErrors {
			p.Errors = append(p.Errors, v1alpha1.ParentError{
				Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, Message: parent.LastError,
				Time: ptr.Deref(parent.LastSyncTime, metav1.Time{}),
			})
		}
	}
	return p
}

// writtenAgo says how old the status of a controller is, as managed fields tell.
func writtenAgo(object controllerobject.Object, now time.Time) string {
	var written *metav1.Time
	for _, entry := range object.ManagedFields() {
		if entry.Subresource == "status" && entry.Time != nil && (written == nil || written.Before(entry.Time)) {
			written = entry.Time
		}
	}
	if written == nil {
		return ""
	}
	return fmt.Sprintf(" (as of %s ago)", age(*written, now))
}
