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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// PluginName is the name of the plugin in --disable-admission-plugins.
const PluginName = "ControllerEscalation"

// maxShown is how many resources with missing rights a message names.
const maxShown = 20

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

// Validate returns a Forbidden error if the author of a write lacks a right that the object would use, and ServiceUnavailable if the
// cluster does not say. Dry runs get the same.
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
	r := reviewer{client: p.reviews, user: author}
	// Administrators have it, so that they cost one review.
	gr := a.GetResource().GroupResource()
	lacksEscalate, err := r.missing(ctx, []right{{Verb: escalate, Group: gr.Group, Resource: gr.Resource, Name: a.GetName()}})
	if err != nil {
		return unknown(a, author, err)
	}
	if len(lacksEscalate) == 0 {
		return nil
	}
	missing, err := r.missing(ctx, wanted)
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
func refusal(a admission.Attributes, author user.Info, missing []right) string {
	var b strings.Builder
	gr := a.GetResource().GroupResource()
	what := "this controller would use the server's rights for what its author may not do"
	if gr.Resource == revisions {
		what = "hooks would be shown parents that its author may not update"
	}
	fmt.Fprintf(&b, "%s; user %q", what, author.GetName())
	if groups := author.GetGroups(); len(groups) > 0 {
		fmt.Fprintf(&b, " (groups %q)", groups)
	}
	b.WriteString(" lacks, in all namespaces unless one is named:")
	lines := lines(missing)
	for i, line := range lines {
		if i == maxShown {
			fmt.Fprintf(&b, "\n- rights on %d more resources", len(lines)-maxShown)
			break
		}
		b.WriteString("\n- " + line)
	}
	fmt.Fprintf(&b, "\nGrant these rights, or the verb %s on %s", escalate, gr)
	return b.String()
}

// lines joins the verbs of each resource.
func lines(missing []right) []string {
	var objects []right
	verbs := map[right][]string{}
	for _, m := range missing {
		on := m.object()
		if verbs[on] == nil {
			objects = append(objects, on)
		}
		verbs[on] = append(verbs[on], m.Verb)
	}
	out := make([]string, 0, len(objects))
	for _, on := range objects {
		line := strings.Join(verbs[on], ", ") + " " + on.String()
		if on.Resource == "*" {
			line += ", because a customize hook may read any kind"
		}
		out = append(out, line)
	}
	return out
}
