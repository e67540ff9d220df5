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

package metacontroller_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	registry "github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller"
)

// undecryptable are transformers for which decrypting any object is this error.
type undecryptable struct {
	value.Transformer

	err error
}

func (u undecryptable) TransformerForResource(schema.GroupResource) value.Transformer { return u }

func (u undecryptable) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, u.err
}

// store returns an etcd, as the server is configured for it, and a client of it.
func store(t *testing.T) (*storagebackend.Config, *clientv3.Client) {
	t.Helper()
	etcd, err := embeddedetcd.Start(t.Context(), embeddedetcd.Options{Dir: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	config := storagebackend.NewDefaultConfig("/root", nil)
	config.Transport.ServerList = []string{etcd.Endpoint()}
	client, err := clientv3.New(clientv3.Config{Context: t.Context(), Endpoints: config.Transport.ServerList, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return config, client
}

// web is where a CompositeController is stored.
const web = "/root/metacontroller.k8s.io/compositecontrollers/web"

// TestAPluginOfAKMSThatIsNotThereYetDoesNotEndTheStart has the transformer of the API server itself, and nothing at the plugin's socket.
func TestAPluginOfAKMSThatIsNotThereYetDoesNotEndTheStart(t *testing.T) {
	config, client := store(t)
	stored, err := proto.Marshal(&kmstypes.EncryptedObject{
		EncryptedData: []byte("x"), KeyID: "1", EncryptedDEKSource: []byte("y"),
		EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		provider string
		ends     bool
	}{{"vault", false}, {"another", true}} {
		t.Run(test.provider, func(t *testing.T) {
			if _, err := client.Put(t.Context(), web, "k8s:enc:kms:v2:vault:"+string(stored)); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "encryption.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [compositecontrollers.metacontroller.k8s.io]
  providers:
  - kms: {apiVersion: v2, name: %s, endpoint: "unix://%s/missing.sock", timeout: 1s}
`, test.provider, t.TempDir()), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, "test")
			if err != nil {
				t.Fatal(err)
			}
			err = registry.CheckReadable(ctx, config, encryptionconfig.StaticTransformers(loaded.Transformers))
			if (err != nil) != test.ends {
				t.Errorf("got %v, want an error: %t", err, test.ends)
			}
		})
	}
}

func TestThePluginOfAKMSDoesNotEndTheStart(t *testing.T) {
	config, client := store(t)
	// Those of version 2 are wrapped as its transformer does. Version 1 loses the code of what it asks first.
	ofVersion2 := func(code codes.Code) error {
		return fmt.Errorf("failed to decrypt DEK, error: %w", status.Error(code, "connection error: no such file"))
	}
	for name, test := range map[string]struct {
		stored string
		err    error
		ends   bool
	}{
		"NotThere":             {"k8s:enc:kms:v2:vault:x", ofVersion2(codes.Unavailable), false},
		"Slow":                 {"k8s:enc:kms:v2:vault:x", ofVersion2(codes.DeadlineExceeded), false},
		"RefusingForNow":       {"k8s:enc:kms:v2:vault:x", ofVersion2(codes.Unknown), false},
		"NotThereOfVersion1":   {"k8s:enc:kms:v1:vault:x", errors.New("failed get version from remote KMS provider: no such file"), false},
		"SlowOfVersion1":       {"k8s:enc:kms:v1:vault:x", status.Error(codes.DeadlineExceeded, "received context error"), false},
		"NotInTheFile":         {"k8s:enc:kms:v2:vault:x", errors.New("no matching prefix found"), true},
		"CutOff":               {"k8s:enc:kms:v2:vault:x", errors.New("failed to validate annotations"), true},
		"AnotherKeyOfTheFile":  {"k8s:enc:secretbox:v1:first:x", errors.New("output array was not large enough for encryption"), true},
		"AFormerKeyOfTheFile":  {"k8s:enc:aesgcm:v1:first:x", errors.New("no matching key was found for the provided AES transformer"), true},
		"NotEncryptedAndNoKey": {"{}", errors.New("no matching prefix found"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := client.Put(t.Context(), web, test.stored); err != nil {
				t.Fatal(err)
			}
			err := registry.CheckReadable(t.Context(), config, undecryptable{err: test.err})
			if unreadable, ends := errors.AsType[*registry.UnreadableError](err); ends != test.ends || (err != nil) != test.ends {
				t.Errorf("got %v, want an UnreadableError: %t", err, test.ends)
			} else if ends && (unreadable.Key != web || !errors.Is(err, test.err)) {
				t.Errorf("got an error about %s: %v, want one about %s: %v", unreadable.Key, err, web, test.err)
			}
		})
	}
}
