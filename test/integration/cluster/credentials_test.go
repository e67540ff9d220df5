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
	"errors"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/credentials"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestCredentialsFollowTheirObjects(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	changes := make(chan credentials.Reference, 100)
	defer c.Credentials.Subscribe(func(r credentials.Reference) { changes <- r })()
	read := c.Credentials.Secret
	if _, _, err := read(t.Context(), ns, "token"); !apierrors.IsNotFound(err) {
		t.Fatalf("reading a Secret that is not there: %v, want not found", err)
	}
	plane.Kubectl(t, "-n", ns, "create", "secret", "generic", "other", "--from-literal=k=v")
	plane.Kubectl(t, "-n", ns, "create", "secret", "generic", "token", "--from-literal=k=one")
	want := credentials.Reference{Kind: "Secret", Namespace: ns, Name: "token"}
	if got := await(t, "the first change", changes); got != want {
		t.Errorf("told of %s, want %s and no other", got, want)
	}
	first, data, err := read(t.Context(), ns, "token")
	if err != nil || string(data["k"]) != "one" {
		t.Fatalf("read %q, %v", data, err)
	}
	if again, _, err := read(t.Context(), ns, "token"); err != nil || again != first {
		t.Errorf("version %s became %s, %v without a change", first, again, err)
	}
	plane.Kubectl(t, "-n", ns, "patch", "secret", "token", "--type=merge", "-p", `{"stringData":{"k":"two"}}`)
	await(t, "the change", changes)
	second, data, err := read(t.Context(), ns, "token")
	if err != nil || string(data["k"]) != "two" || second == first {
		t.Errorf("read %q in version %s after %s, %v", data, second, first, err)
	}
	plane.Kubectl(t, "-n", ns, "delete", "secret", "token")
	await(t, "the deletion", changes)
	if _, _, err := read(t.Context(), ns, "token"); !apierrors.IsNotFound(err) {
		t.Errorf("reading a Secret that was deleted: %v, want not found", err)
	}
}

func TestConfigMapsGiveTextAndBytes(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	plane.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ca"},"data":{"text":"a"},"binaryData":{"bytes":"/w=="}}`,
		"-n", ns, "create", "-f", "-")
	_, data, err := c.Credentials.ConfigMap(t.Context(), ns, "ca")
	if err != nil || string(data["text"]) != "a" || string(data["bytes"]) != "\xff" {
		t.Errorf("read %q, %v", data, err)
	}
}

// TestCredentialsNeedAccessToOneNameOnly runs as a user that may see one Secret.
func TestCredentialsNeedAccessToOneNameOnly(t *testing.T) {
	plane := cluster.Shared(t)
	ns := plane.Namespace(t)
	plane.Kubectl(t, "-n", ns, "create", "secret", "generic", "token", "--from-literal=k=v")
	plane.Kubectl(t, "-n", ns, "create", "role", "one", "--verb=get,list,watch", "--resource=secrets", "--resource-name=token")
	plane.Kubectl(t, "-n", ns, "create", "rolebinding", "one", "--role=one", "--user=reader")
	plane.AwaitAccess(t, "reader", authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list", Resource: "secrets", Name: "token"}, true)
	config := plane.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: "reader"}
	store, err := credentials.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		store.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	if _, data, err := store.Secret(ctx, ns, "token"); err != nil || string(data["k"]) != "v" {
		t.Errorf("read %q, %v", data, err)
	}
	if _, _, err := store.Secret(ctx, ns, "hidden"); !apierrors.IsForbidden(err) {
		t.Errorf("reading a Secret without permission: %v, want forbidden at once", err)
	}
	short, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	if _, _, err := store.ConfigMap(short, ns, "late"); !errors.Is(err, context.DeadlineExceeded) && !apierrors.IsForbidden(err) {
		t.Errorf("reading without time: %v", err)
	}
}
