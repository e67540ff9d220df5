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

package access

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// ownerProtection is in the message of the admission plugin OwnerReferencesPermissionEnforcement, which refuses the write of a child
// because of a right on the parent.
const ownerProtection = "blockOwnerDeletion"

// Observe takes note of how a request in the account's name ended, for [client.Identity]. A request may be refused for many reasons, such
// as a quota: the next review, which comes soon, says whether it was a right.
func (a *Access) Observe(_ context.Context, r client.Request, err error) {
	switch {
	case err == nil:
		a.succeeded(r)
	case apierrors.IsForbidden(err):
		a.refuse(a.suspects(r, err))
	}
}

// suspects returns the rights of which one may be missing.
func (a *Access) suspects(r client.Request, err error) []rights.Right {
	list := used(r)
	if !strings.Contains(err.Error(), ownerProtection) {
		return list
	}
	for _, right := range a.config.Needs.Kinds {
		if right.Subresource == rights.SubresourceFinalizers {
			right.Namespace = r.Target.Namespace
			list = append(list, right)
		}
	}
	return list
}

// used returns the rights that a request uses.
func used(r client.Request) []rights.Right {
	list := make([]rights.Right, len(r.Verbs))
	for i, verb := range r.Verbs {
		list[i] = rights.Right{
			Verb: verb, Group: r.Target.Resource.Group, Resource: r.Target.Resource.Resource, Subresource: r.Target.Subresource,
			Namespace: r.Target.Namespace,
		}
	}
	return list
}

func (a *Access) refuse(list []rights.Right) {
	a.mu.Lock()
	defer a.mu.Unlock()
	news := false
	for _, right := range list {
		if _, known := a.refused[right]; known || len(a.refused) < maxRefused {
			a.refused[right] = time.Now()
			news = news || !known
		}
	}
	if news {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// expire drops the writes that are not tried any more. While the controller is held or paused none is tried, which says nothing. It is called with
// the lock held.
func (a *Access) expire(now time.Time) {
	for right, at := range a.refused {
		switch {
		case a.state.Held || a.paused:
			a.refused[right] = now
		case now.Sub(at) > lasting:
			delete(a.refused, right)
		}
	}
}

// succeeded takes back what was missing, until the next review.
func (a *Access) succeeded(r client.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.refused) == 0 {
		return
	}
	// Of an application only the first verb is sure: the object may have been there.
	for _, right := range used(r)[:1] {
		if _, ok := a.refused[right]; ok {
			delete(a.refused, right)
			delete(a.denied, right)
			a.state.Missing = slices.DeleteFunc(slices.Clone(a.state.Missing), func(m rights.Right) bool { return m == right })
		}
	}
}

// sorted returns the keys of a set of rights in a lasting order.
func sorted[V any](set map[rights.Right]V) []rights.Right {
	return slices.SortedFunc(maps.Keys(set), rights.Right.Compare)
}
