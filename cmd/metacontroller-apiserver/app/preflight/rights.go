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

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights/review"
)

// parallelReviews is how many reviews of rights are asked for at the same time.
const parallelReviews = 8

// A role is a role that the server's user needs, and how it is given.
type role struct {
	check, name string
	// rules are in all namespaces, unless namespace is set.
	rules     []rbacv1.PolicyRule
	namespace string
	// give is the command that gives it; %s is the subject.
	give string
}

// roles are those that a server in a namespace needs for everything but the kinds of its controllers. Its ClusterRole, which it reads, has the
// name of its Service, as in the manifests and the chart.
func roles(namespace, name string) ([]role, error) {
	server, serverErr := registration.Rules(registration.ServerRole)
	controllers, controllersErr := registration.Rules(registration.ControllersRole)
	election, electionErr := registration.Rules(registration.LeaderElectionRole)
	if err := cmp.Or(serverErr, controllersErr, electionErr); err != nil {
		return nil, err
	}
	for i := range server {
		if slices.Equal(server[i].ResourceNames, []string{registration.ServerRole}) {
			server[i].ResourceNames = []string{name}
		}
	}
	// Its name begins with that of the Service, too.
	electing := name + strings.TrimPrefix(registration.LeaderElectionRole, registration.ServerRole)
	// That rule depends on what the controllers do.
	controllers = slices.DeleteFunc(controllers, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "*") })
	return []role{
		{
			check: "rights-server", name: "ClusterRole " + name, rules: server,
			give: "kubectl create clusterrolebinding " + name + " --clusterrole=" + name + " %s",
		},
		{
			check: "rights-delegation", name: "ClusterRole system:auth-delegator", rules: []rbacv1.PolicyRule{
				{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}},
				{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}},
			},
			give: "kubectl create clusterrolebinding metacontroller-apiserver:auth-delegator --clusterrole=system:auth-delegator %s",
		},
		{
			check: "rights-aggregation", name: "Role extension-apiserver-authentication-reader in kube-system", rules: []rbacv1.PolicyRule{{
				Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
				ResourceNames: []string{authenticationName},
			}},
			namespace: authenticationNamespace,
			give: "kubectl create rolebinding metacontroller-apiserver:authentication-reader --namespace kube-system " +
				"--role=extension-apiserver-authentication-reader %s",
		},
		{
			check: "rights-engine", name: "ClusterRole " + registration.ControllersRole, rules: controllers,
			give: "kubectl create clusterrolebinding metacontroller-controllers --clusterrole=metacontroller-controllers %s",
		},
		{
			check: "rights-leader-election", name: "Role " + electing + " in " + namespace, rules: election,
			namespace: namespace,
			give:      "kubectl create rolebinding " + electing + " --namespace " + namespace + " --role=" + electing + " %s",
		},
	}, nil
}

// rights asks which rights the server's user lacks.
func (c *clusterChecks) rights(ctx context.Context) []Finding {
	if err := c.identify(ctx); err != nil {
		return problemf("rights", "With --service-account, the user of the kubeconfig needs the right to impersonate it.",
			"The cluster does not say whose rights these are: %v.", err)
	}
	needed, err := roles(c.options.namespace, c.options.service)
	if err != nil {
		return problemf("rights", "", "The roles of the server cannot be read: %v.", err)
	}
	var findings []Finding
	for _, one := range needed {
		findings = append(findings, c.role(ctx, one))
	}
	return append(findings, c.kinds(ctx))
}

// identify finds out the name of the server's user.
func (c *clusterChecks) identify(ctx context.Context) error {
	if c.user != "" {
		return nil
	}
	answer, err := c.subject.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.user = answer.Status.UserInfo.Username
	return nil
}

// role asks for the rights of one role.
func (c *clusterChecks) role(ctx context.Context, needed role) Finding {
	missing, err := c.missing(ctx, expand(needed.rules, needed.namespace))
	switch {
	case err != nil:
		return Finding{Check: needed.check, Result: Failed, Message: fmt.Sprintf("The cluster does not say which rights user %q has: %v.", c.user, err)}
	case len(missing) == 0:
		return Finding{Check: needed.check, Result: OK, Message: fmt.Sprintf("User %q has the rights of the %s.", c.user, needed.name)}
	}
	return Finding{
		Check: needed.check, Result: Failed, Message: fmt.Sprintf("User %q lacks rights of the %s:", c.user, needed.name), Details: rights.Lines(missing),
		Next: "Give them:\n" + fmt.Sprintf(needed.give, c.subjectFlag()) + "\nIf this exists already, the role was changed; apply the manifests again, or:\n" +
			"metacontroller-apiserver register roles --restore-roles",
	}
}

// kinds asks for the rights on parents and children, which may be any kinds.
func (c *clusterChecks) kinds(ctx context.Context) Finding {
	f := Finding{Check: "rights-kinds", Result: OK, Message: fmt.Sprintf("User %q has all rights, so that controllers may have any parents and children.", c.user)}
	everything := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
	missing, err := c.missing(ctx, expand([]rbacv1.PolicyRule{everything}, ""))
	if err == nil && len(missing) > 0 {
		f.Message = fmt.Sprintf("User %q may read every kind, and not write all: controllers need a spec.serviceAccountRef, or rights on their kinds, "+
			"as metacontroller-apiserver rbac prints them.", c.user)
		reading := everything
		reading.Verbs = []string{"get", "list", "watch"}
		missing, err = c.missing(ctx, expand([]rbacv1.PolicyRule{reading}, ""))
		if len(missing) > 0 {
			f.Result = Warning
			f.Message = fmt.Sprintf("User %q may not read every kind: only controllers work whose parents and children he may list and watch.", c.user)
			f.Next = "Bind the ClusterRole metacontroller-controllers to him, or give rights on the kinds, as metacontroller-apiserver rbac prints them."
		}
	}
	if err != nil {
		f.Result, f.Message = Failed, fmt.Sprintf("The cluster does not say which rights user %q has: %v.", c.user, err)
	}
	return f
}

// missing returns those of the wanted rights that the server's user lacks, in their order.
func (c *clusterChecks) missing(ctx context.Context, wanted []rights.Right) ([]rights.Right, error) {
	client := c.subject.AuthorizationV1().SelfSubjectAccessReviews()
	allowed := make([]bool, len(wanted))
	var asking errgroup.Group
	asking.SetLimit(parallelReviews)
	for i := range wanted {
		asking.Go(func() (err error) {
			allowed[i], err = review.Own(ctx, client, wanted[i])
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	var missing []rights.Right
	for i := range wanted {
		if !allowed[i] {
			missing = append(missing, wanted[i])
		}
	}
	return missing, nil
}

// subjectFlag is the flag with which kubectl binds a role to the server's user.
func (c *clusterChecks) subjectFlag() string {
	if account, ok := strings.CutPrefix(c.user, "system:serviceaccount:"); ok {
		return "--serviceaccount=" + account
	}
	return "--user=" + c.user
}

// expand returns the single rights of rules.
func expand(rules []rbacv1.PolicyRule, namespace string) []rights.Right {
	var all []rights.Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all = append(all, rights.Right{
							Verb: verb, Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
						})
					}
				}
			}
		}
	}
	return all
}
