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

package register

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// authorityInterval is the time between two attempts to read the certificate authority.
const authorityInterval = 100 * time.Millisecond

// readAuthority returns the certificates in a file. It waits for the file, which a server that just started may not have
// written yet.
func readAuthority(ctx context.Context, path string, timeout time.Duration, out io.Writer) ([]byte, error) {
	bundle, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && timeout > 0 {
		if _, err := fmt.Fprintf(out, "waiting for the server to make %s\n", path); err != nil {
			return nil, err
		}
		waitErr := wait.PollUntilContextTimeout(ctx, authorityInterval, timeout, false, func(context.Context) (bool, error) {
			bundle, err = os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				return false, nil
			}
			return err == nil, err
		})
		if waitErr != nil && err == nil {
			err = waitErr
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading certificate authority: %w; start the server on this data directory first, or pass --ca-file", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading certificate authority: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("reading certificate authority: %s holds no certificate in PEM form", path)
	}
	return bundle, nil
}

// readSecret returns the certificates in a Secret, namespace/name. It waits for a server that just started to write it.
func readSecret(ctx context.Context, config *rest.Config, secret string, timeout time.Duration, out io.Writer) ([]byte, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	namespace, name, _ := strings.Cut(secret, "/")
	var bundle []byte
	read := func(ctx context.Context) (bool, error) {
		found, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		bundle = found.Data[servingcert.AuthoritiesKey]
		return len(bundle) > 0, nil
	}
	done, err := read(ctx)
	if err == nil && !done && timeout > 0 {
		if _, err := fmt.Fprintf(out, "waiting for the server to write Secret %s\n", secret); err != nil {
			return nil, err
		}
		err = wait.PollUntilContextTimeout(ctx, authorityInterval, timeout, false, read)
	}
	if err != nil {
		return nil, fmt.Errorf("reading certificate authority from Secret %s: %w", secret, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("reading certificate authority: Secret %s holds no certificate in %s", secret, servingcert.AuthoritiesKey)
	}
	return bundle, nil
}
