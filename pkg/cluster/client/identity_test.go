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

package client_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// No groups are sent: API servers add those of a service account, and ask for a right for each that is sent.
func TestAnIdentityIsInEveryRequest(t *testing.T) {
	t.Parallel()
	one := client.Target{Resource: configMaps, Namespace: "default", Name: "a"}
	body := []byte(`{"a":1}`)
	got := func(_ *object.Object, err error) error { return err }
	for name, test := range map[string]struct {
		call  func(context.Context, *client.Client) error
		verbs string
	}{
		"get":    {func(ctx context.Context, c *client.Client) error { return got(c.Get(ctx, one)) }, "get"},
		"create": {func(ctx context.Context, c *client.Client) error { return got(c.Create(ctx, one, body)) }, "create"},
		"try":    {func(ctx context.Context, c *client.Client) error { return got(c.Try(ctx, one, body)) }, "update"},
		"whole":  {func(ctx context.Context, c *client.Client) error { return got(c.Whole().Get(ctx, one)) }, "get"},
		"patch": {func(ctx context.Context, c *client.Client) error {
			return got(c.Patch(ctx, one, types.MergePatchType, body))
		}, "patch"},
		"apply": {func(ctx context.Context, c *client.Client) error {
			return got(c.Apply(ctx, one, client.Application{Manager: "m", Body: body}))
		}, "patch create"},
		"delete": {func(ctx context.Context, c *client.Client) error { _, err := c.Delete(ctx, one, "u", "7"); return err }, "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuse := true
			server := against(t, func(w http.ResponseWriter, r *http.Request) {
				user, groups := r.Header.Values("Impersonate-User"), r.Header.Values("Impersonate-Group")
				if !slices.Equal(user, []string{"system:serviceaccount:team:alice"}) || len(groups) > 0 {
					t.Errorf("the user is %q, the groups are %q", user, groups)
				}
				if agent := r.Header.Get("User-Agent"); agent != "tester/1" {
					t.Errorf("the user agent is %q", agent)
				}
				if refuse {
					w.WriteHeader(http.StatusForbidden)
				}
				fmt.Fprint(w, stored)
			})
			var seen []string
			as := server.As(client.Identity{User: "system:serviceaccount:team:alice", Observe: func(_ context.Context, r client.Request, err error) {
				seen = append(seen, fmt.Sprint(strings.Join(r.Verbs, " "), " ", r.Target.Name, " ", apierrors.IsForbidden(err)))
			}})
			if err := test.call(t.Context(), as); !apierrors.IsForbidden(err) {
				t.Errorf("got %v", err)
			}
			refuse = false
			if err := test.call(t.Context(), as); err != nil {
				t.Error(err)
			}
			if want := []string{test.verbs + " a true", test.verbs + " a false"}; !slices.Equal(seen, want) {
				t.Errorf("observed %q, want %q", seen, want)
			}
		})
	}
}

func TestNobodyIsToldOfWhatSaysNothingAboutTheIdentity(t *testing.T) {
	t.Parallel()
	server := against(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	as := server.As(client.Identity{User: "alice", Observe: func(_ context.Context, r client.Request, _ error) { t.Errorf("told of %v", r) }})
	if _, err := as.Get(client.Unobserved(t.Context()), client.Target{Resource: configMaps, Namespace: "default", Name: "a"}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

func TestOthersKeepTheirOwnIdentity(t *testing.T) {
	t.Parallel()
	var users []string
	server := against(t, func(w http.ResponseWriter, r *http.Request) {
		users = append(users, r.Header.Get("Impersonate-User"))
		fmt.Fprint(w, stored)
	})
	for _, c := range []*client.Client{server.As(client.Identity{User: "alice"}), server, server.As(client.Identity{User: "bob"})} {
		if _, err := c.Get(t.Context(), client.Target{Resource: configMaps, Namespace: "default", Name: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"alice", "", "bob"}; !slices.Equal(users, want) {
		t.Errorf("got %q, want %q", users, want)
	}
}
