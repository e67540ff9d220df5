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

package escalation

import (
	"bytes"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// needs returns what the author of a write must be allowed to do: nothing for objects of other kinds, and for updates that change
// nothing which counts. Old is nil for a creation.
func needs(object, old runtime.Object) []rights.Right {
	if Unchecked(object, old) {
		return nil
	}
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		return needed(o.Spec.ServiceAccountRef, needsOf(o))
	case *metacontroller.DecoratorController:
		return needed(o.Spec.ServiceAccountRef, needsOf(o))
	case *metacontroller.ControllerRevision:
		was, updates := old.(*metacontroller.ControllerRevision)
		switch {
		case !updates:
			return ofRevision(o)
		case sameRevision(was, o):
			return nil
		}
		// Without its former labels the engine does not find it, and the children of those parents are updated at once.
		wanted := append(ofRevision(was), ofRevision(o)...)
		slices.SortFunc(wanted, rights.Right.Compare)
		return slices.Compact(wanted)
	}
	return nil
}

// Unchecked reports whether an update of a controller changes nothing that counts, so that its author is asked for no rights. Old is nil for a
// creation.
func Unchecked(object, old runtime.Object) bool {
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		was, ok := old.(*metacontroller.CompositeController)
		return ok && same(compositeCore(&was.Spec), compositeCore(&o.Spec))
	case *metacontroller.DecoratorController:
		was, ok := old.(*metacontroller.DecoratorController)
		return ok && same(decoratorCore(&was.Spec), decoratorCore(&o.Spec))
	}
	return false
}

// needed returns the rights that a controller uses as the server, or that of letting it act as a service account, which then needs those
// rights itself. Who may get an object of a given name may see all that listing and watching it show.
func needed(ref *v1alpha1.ServiceAccountReference, needs rights.Needs) []rights.Right {
	if account := rights.AccountOf(ref); account != nil {
		return []rights.Right{account.Impersonate()}
	}
	wanted := slices.Concat(needs.Kinds, needs.Related)
	for _, right := range needs.Requester {
		if !slices.Contains(needs.Related, right) {
			wanted = append(wanted, right)
		}
	}
	for _, right := range needs.Credentials {
		if right.Verb == rights.List {
			right.Verb = rights.Get
			wanted = append(wanted, right)
		}
	}
	return wanted
}

// needsOf returns the rights that a controller uses, none for other objects.
func needsOf(object runtime.Object) rights.Needs {
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		return rights.OfComposite(&o.Spec)
	case *metacontroller.DecoratorController:
		return rights.OfDecorator(&o.Spec)
	}
	return rights.Needs{}
}

// accountOf returns the service account that a controller names, nil for none.
func accountOf(object runtime.Object) *v1alpha1.ServiceAccountReference {
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		return o.Spec.ServiceAccountRef
	case *metacontroller.DecoratorController:
		return o.Spec.ServiceAccountRef
	}
	return nil
}

func same(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }

// compositeCore returns the spec without the fields that change neither what the controller does, nor to which objects, nor who
// decides it. A new field counts until it is named here.
func compositeCore(spec *v1alpha1.CompositeControllerSpec) *v1alpha1.CompositeControllerSpec {
	core := spec.DeepCopy()
	core.ResyncPeriodSeconds, core.Workers, core.Paused, core.DeletionGuard = nil, nil, nil, nil
	core.ParentResource.IgnoreStatusChanges = nil
	for i := range core.ChildResources {
		if strategy := core.ChildResources[i].UpdateStrategy; strategy != nil {
			strategy.StatusChecks, strategy.MaxUnavailable = v1alpha1.ChildUpdateStatusChecks{}, nil
		}
	}
	return core
}

// decoratorCore is compositeCore for DecoratorControllers.
func decoratorCore(spec *v1alpha1.DecoratorControllerSpec) *v1alpha1.DecoratorControllerSpec {
	core := spec.DeepCopy()
	core.ResyncPeriodSeconds, core.Workers, core.Paused, core.DeletionGuard = nil, nil, nil, nil
	for i := range core.Resources {
		core.Resources[i].IgnoreStatusChanges = nil
	}
	return core
}

// sameRevision reports whether the engine makes the same of two ControllerRevisions.
func sameRevision(a, b *metacontroller.ControllerRevision) bool {
	return same(a.Children, b.Children) && same(a.Labels, b.Labels) && same(a.Annotations, b.Annotations) &&
		same(a.OwnerReferences, b.OwnerReferences) && samePatch(a.ParentPatch.Raw, b.ParentPatch.Raw)
}

// samePatch compares by meaning, since server-side apply may order keys differently.
func samePatch(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	return same(x, y)
}

// revisions are the resource of ControllerRevisions.
const revisions = "controllerrevisions"

// Labels of ControllerRevisions by which the engine finds those of a kind of parents (docs/reference/contract.md#s14.1).
const (
	labelGroup    = "metacontroller.k8s.io/apiGroup"
	labelResource = "metacontroller.k8s.io/resource"
)

// ofRevision returns what writing a ControllerRevision amounts to: hooks are shown parents with what is in it. Without its labels
// the engine does not look at it. Revisions of cluster-scoped parents have a namespace nevertheless, so that a right in it says
// nothing about the parent.
func ofRevision(o *metacontroller.ControllerRevision) []rights.Right {
	group, marked := o.Labels[labelGroup]
	resource := o.Labels[labelResource]
	if !marked || resource == "" {
		return nil
	}
	return []rights.Right{{Verb: rights.Update, Group: group, Resource: resource}}
}
