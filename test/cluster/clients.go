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

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

// Clients are clients of one API server with the same access.
type Clients struct {
	// Dynamic is for objects of any kind.
	Dynamic dynamic.Interface
	// Kube is for the kinds of Kubernetes.
	Kube kubernetes.Interface
	// Versioned is for the kinds of Metacontroller.
	Versioned versioned.Interface
}

// NewClients makes the clients for an access, which is that of Config unless a test has one of its own. Warnings of the API server are not
// logged, unless the access says so.
func NewClients(t testing.TB, config *rest.Config) *Clients {
	t.Helper()
	c := new(Clients)
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		config = rest.CopyConfig(config)
		config.WarningHandlerWithContext = rest.NoWarnings{}
	}
	var err error
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatalf("making the dynamic client: %v", err)
	}
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatalf("making the client of Kubernetes: %v", err)
	}
	if c.Versioned, err = versioned.NewForConfig(config); err != nil {
		t.Fatalf("making the client of Metacontroller: %v", err)
	}
	return c
}

// Bind gives a user what a ClusterRole allows in a namespace or, if that is empty, in all of them, and then only until the test ends.
func (c *Cluster) Bind(t testing.TB, name, role, namespace, user string) {
	t.Helper()
	meta, of := metav1.ObjectMeta{Name: name}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	who := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	client := NewClients(t, c.Config(t)).Kube.RbacV1()
	if namespace != "" {
		binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: of, Subjects: who}
		if _, err := client.RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatalf("binding %s to %s in %s: %v", user, role, namespace, err)
		}
		return
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: of, Subjects: who}
	if _, err := client.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatalf("binding %s to %s: %v", user, role, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Limit)
		defer cancel()
		if err := client.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting the binding %s: %v", name, err)
		}
	})
}

// KubeconfigAs returns a file with the access of an administrator who acts as a user.
func (c *Cluster) KubeconfigAs(t testing.TB, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// AwaitAccess waits until the cluster lets a user do something, or until it lets him do it no more: a kube-apiserver sees roles and
// bindings some time after it has stored them.
func (c *Cluster) AwaitAccess(t testing.TB, user string, what authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	reviews := NewClients(t, c.Config(t)).Kube.AuthorizationV1().SubjectAccessReviews()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: groups(user), ResourceAttributes: &what,
	}}
	Eventually(t, Limit, fmt.Sprintf("%v to be what %s may do: %+v", allowed, user, what), func(ctx context.Context) (bool, string) {
		answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err.Error()
		}
		return answer.Status.Allowed == allowed, fmt.Sprintf("%+v", answer.Status)
	})
}

// groups are those of each user, and of the service accounts.
func groups(name string) []string {
	all := []string{user.AllAuthenticated}
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		all = append(all, serviceaccount.MakeGroupNames(namespace)...)
	}
	return all
}

// AwaitRole waits until the cluster lets a user do what a ClusterRole allows, in one namespace or, if that is empty, in all of them.
func (c *Cluster) AwaitRole(t testing.TB, user, role, namespace string) {
	t.Helper()
	var rules []rbacv1.PolicyRule
	roles := NewClients(t, c.Config(t)).Kube.RbacV1().ClusterRoles()
	// A controller of Kubernetes writes the rules of some roles.
	Eventually(t, Limit, "the rules of the ClusterRole "+role, func(ctx context.Context) (bool, string) {
		found, err := roles.Get(ctx, role, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		rules = found.Rules
		return len(rules) > 0, "it has none"
	})
	for _, rule := range rules {
		if len(rule.Resources) == 0 {
			continue
		}
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		// What is seen of a role or a binding is the whole of it.
		what := authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
		}
		if len(rule.ResourceNames) > 0 {
			what.Name = rule.ResourceNames[0]
		}
		c.AwaitAccess(t, user, what, true)
	}
}

// Limit is how long tests wait for anything that is to happen: more than it takes where a machine of half the speed has other work, too. How
// long something takes is no matter of a test that waits for it.
const Limit = 5 * time.Minute

// shortest and longest are the intervals between two questions of Eventually.
const shortest, longest = 50 * time.Millisecond, time.Second

// Eventually asks until the answer is true and fails the test after the time given. The text that comes with a false
// answer is shown then. What takes long to answer, as kubectl does, is asked less often, so that asking takes a fifth of the time at most. So is
// what has long been waited for, which is noticed an eighth of that time later at most.
func Eventually(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	var last string
	EventuallySeen(t, limit, what, func(ctx context.Context) (done bool) {
		done, last = ask(ctx)
		return done
	}, func() string { return last })
}

// EventuallySeen is [Eventually] for what costs much to print: seen is called once, when the time is over.
func EventuallySeen(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) bool, seen func() string) {
	t.Helper()
	began := time.Now()
	var took time.Duration
	eventually(t, limit, what, func(ctx context.Context) bool {
		asked := time.Now()
		done := ask(ctx)
		took = time.Since(asked)
		return done
	}, seen, func() time.Duration { return min(max(4*took, time.Since(began)/8, shortest), longest) })
}

// EventuallyEvery is [Eventually] for answers that cost much: it asks once in each interval, at the same moments as others with that interval, so
// that they may share an answer.
func EventuallyEvery(t testing.TB, interval, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	var last string
	eventually(t, limit, what, func(ctx context.Context) (done bool) {
		done, last = ask(ctx)
		return done
	}, func() string { return last }, func() time.Duration { return untilNext(interval, time.Now()) })
}

// untilNext is how long it is until a multiple of the interval, half an interval at least.
func untilNext(interval time.Duration, now time.Time) time.Duration {
	return now.Add(interval / 2).Truncate(interval).Add(interval).Sub(now)
}

func eventually(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) bool, seen func() string, pause func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !ask(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("waiting %v for %s: %v; last seen: %s", limit, what, ctx.Err(), strings.TrimSpace(seen()))
		case <-time.After(pause()):
		}
	}
}
