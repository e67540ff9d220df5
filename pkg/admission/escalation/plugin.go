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
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

// PluginName is the name of the plugin in --disable-admission-plugins.
const PluginName = "ControllerEscalation"

const (
	// patience is how long all reviews of one write may take together.
	patience = 10 * time.Second
	// parallel is how many reviews of one write are made at the same time.
	parallel = 16
	// maxReviews is how many reviews one write may need: those of 256 kinds of children and as many other rights.
	maxReviews = 2048
	// maxShown is how many resources with missing rights a message names.
	maxShown = 20
)

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin refuses writes of controllers that may do more than their authors. Create it with New; it needs a client for
// SubjectAccessReviews, which Initializer gives it.
type Plugin struct {
	*admission.Handler

	reviews authorizationclient.SubjectAccessReviewInterface
}

var (
	_ admission.ValidationInterface     = &Plugin{}
	_ admission.InitializationValidator = &Plugin{}
)

// New returns a plugin that looks at new and changed objects.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// Initializer gives the plugin the client with which it asks the cluster. It may create SubjectAccessReviews.
type Initializer struct {
	Reviews authorizationclient.SubjectAccessReviewInterface
}

// Initialize implements admission.PluginInitializer.
func (i Initializer) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*Plugin); ok {
		p.reviews = i.Reviews
	}
}

// ValidateInitialization says whether the plugin has what it needs.
func (p *Plugin) ValidateInitialization() error {
	if p.reviews == nil {
		return errors.New("it needs a client for SubjectAccessReviews")
	}
	return nil
}

// Validate returns a Forbidden error if the author of a write lacks a right that the object would use, or if these are too many to ask
// for, and ServiceUnavailable if the cluster does not say. Dry runs get the same.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	wanted := needs(a.GetObject(), a.GetOldObject())
	if len(wanted) == 0 {
		return nil
	}
	author := a.GetUserInfo()
	if author == nil {
		return admission.NewForbidden(a, errors.New("it is not known who writes it"))
	}
	// So is the server itself.
	if slices.Contains(author.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the cluster did not respond within %s", patience))
	defer cancel()
	subject, reviewer := review.OfUser(author), review.New(p.reviews, parallel)
	// Administrators have it, so that they cost one review.
	gr := a.GetResource().GroupResource()
	lacksEscalate, err := reviewer.Missing(ctx, subject, []rights.Right{
		{Verb: rights.Escalate, Group: gr.Group, Resource: gr.Resource, Name: a.GetName()},
	})
	if err != nil {
		return unknown(a, author, err)
	}
	if len(lacksEscalate) == 0 {
		return nil
	}
	if len(wanted) > maxReviews {
		return admission.NewForbidden(a, fmt.Errorf("this controller would use %d rights of the server, and the cluster is asked for %d at most; "+
			"name fewer kinds, Secrets and ConfigMaps, or have the controller act as a service account with spec.serviceAccountRef. "+
			"Who has the verb %s on %s may write it as it is", len(wanted), maxReviews, rights.Escalate, gr))
	}
	missing, err := reviewer.Missing(ctx, subject, wanted)
	if err != nil {
		return unknown(a, author, err)
	}
	if len(missing) == 0 {
		return nil
	}
	return admission.NewForbidden(a, errors.New(refusal(a, author, missing)))
}

// unknown is the error when the cluster did not say what the author may do. Clients may try again.
func unknown(a admission.Attributes, author user.Info, err error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf(
		"%s %q was not written, because the cluster did not say whether user %q has the rights that it would use: %v. "+
			"The server needs the ClusterRole system:auth-delegator to ask",
		a.GetResource().GroupResource(), a.GetName(), author.GetName(), err))
}

// refusal says what is missing, one resource in a line.
func refusal(a admission.Attributes, author user.Info, missing []rights.Right) string {
	var b strings.Builder
	gr := a.GetResource().GroupResource()
	what := "this controller would use the server's rights for what its author may not do"
	switch {
	case gr.Resource == revisions:
		what = "hooks would be shown parents that its author may not update"
	case accountOf(a.GetObject()) != nil:
		what = "this controller would act as a service account that its author may not impersonate"
	}
	fmt.Fprintf(&b, "%s; user %q", what, author.GetName())
	if groups := author.GetGroups(); len(groups) > 0 {
		fmt.Fprintf(&b, " (groups %q)", groups)
	}
	b.WriteString(" lacks, in all namespaces unless one is named:")
	lines, everything := rights.Lines(missing), rights.Right{Group: "*", Resource: "*"}.String()
	because := ", because an admission policy may refer to any kind"
	if len(needsOf(a.GetObject()).Related) > 0 {
		because = ", because a customize hook may read any kind"
	}
	for i, line := range lines {
		if i == maxShown {
			fmt.Fprintf(&b, "\n- rights on %d more resources", len(lines)-maxShown)
			break
		}
		b.WriteString("\n- " + line)
		if strings.HasSuffix(line, " "+everything) {
			b.WriteString(because)
		}
	}
	fmt.Fprintf(&b, "\nGrant these rights, or the verb %s on %s", rights.Escalate, gr)
	return b.String()
}

// needs returns what the author of a write must be allowed to do: nothing for objects of other kinds, and for updates that change
// nothing which counts. Old is nil for a creation.
func needs(object, old runtime.Object) []rights.Right {
	if Unchecked(object, old) {
		return nil
	}
	o, ok := object.(*metacontroller.ControllerRevision)
	if !ok {
		return needed(accountOf(object), needsOf(object))
	}
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
		same(a.OwnerReferences, b.OwnerReferences) && validation.SamePatch(a.ParentPatch.Raw, b.ParentPatch.Raw)
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
