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
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/kubeconfig"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

// options are the flags of both subcommands.
type options struct {
	kubeconfig   string
	authority    Authority
	host         string
	port         int
	timeout      time.Duration
	beside       bool
	restoreRoles bool
}

// NewRegisterCommand returns the subcommand register. It prints progress to the command's standard output.
func NewRegisterCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "register --kubeconfig FILE --data-dir DIR --host HOST --port PORT",
		Short: "Register a server that runs outside of the cluster, and wait until it is available",
		Long: `Register a server that runs outside of the cluster.

Creates the namespace metacontroller if there is none, and applies the ClusterRoles, the Role for the Lease of the
server that runs controllers, a Service that names the host, and the APIService v1alpha1.metacontroller.k8s.io with the
authority of the server's certificate. Then it waits until the cluster's kube-apiserver reaches the server. You may repeat
it; unregister undoes it.

It changes neither an existing namespace nor a role whose rules somebody else has written. It prints what such a role
lacks, and --restore-roles replaces it.

It refuses, and changes nothing, when CustomResourceDefinitions serve the group in this cluster, or when another server
is registered for it.`,
		Example: `  # A server on this machine, whose certificates were made in its data directory
  metacontroller-apiserver register --kubeconfig FILE --data-dir DIR --host localhost --port 6443

  # A server with certificates of yours, valid for metacontroller-apiserver.metacontroller.svc
  metacontroller-apiserver register --kubeconfig FILE --ca-file ca.crt --host apiserver.example.org --port 443`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.register(cmd)
		},
	}
	o.addKubeconfig(cmd)
	o.addRestoreRoles(cmd)
	cmd.AddCommand(newRolesCommand())
	flags := cmd.Flags()
	o.authority.AddFlags(cmd, "")
	flags.StringVar(&o.host, "host", "localhost", "DNS name or IPv4 address at which the cluster's kube-apiserver reaches the server")
	flags.IntVar(&o.port, "port", 0, "port at which the cluster's kube-apiserver reaches the server")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait for the certificate authority, and then for the server "+
		"to be available; 0 does not wait")
	flags.BoolVar(&o.beside, "beside-definitions", false, "leave out the APIService, while CustomResourceDefinitions serve the group: the command "+
		"migrate makes it")
	cmd.MarkFlagsOneRequired("data-dir", "ca-file", "ca-secret")
	_ = cmd.MarkFlagRequired("port") // The flag exists.
	return cmd
}

// newRolesCommand returns the subcommand roles of register.
func newRolesCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "roles --kubeconfig FILE",
		Short: "Apply the roles alone, before a server starts that is no administrator",
		Long: `Apply the roles alone: the ClusterRoles, and the Role for the Lease of the server that runs controllers, in the namespace
metacontroller, which is created if there is none.

A server that acts as a user who is no administrator needs its rights when it starts: apply the roles, bind them to that
user, start the server, and register it.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := kubeconfig.Read(o.kubeconfig)
			if err != nil {
				return err
			}
			return registration.ApplyRoles(cmd.Context(), registration.Options{
				Config: config, RestoreRoles: o.restoreRoles, Progress: cmd.OutOrStdout(),
			})
		},
	}
	o.addKubeconfig(cmd)
	o.addRestoreRoles(cmd)
	return cmd
}

// NewUnregisterCommand returns the subcommand unregister.
func NewUnregisterCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "unregister --kubeconfig FILE",
		Short: "Take back what register did; the server's objects stay in its store",
		Long: `Take back what register did.

Deletes the APIService, the Service, the ClusterRoles and the Role, except roles that others wrote. The namespace
metacontroller stays, without the labels of earlier versions, and so do the objects in the server's store. Namespaces of
the cluster can then be deleted without the server.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := kubeconfig.Read(o.kubeconfig)
			if err != nil {
				return err
			}
			return registration.Unregister(cmd.Context(), config, cmd.OutOrStdout())
		},
	}
	o.addKubeconfig(cmd)
	return cmd
}

func (o *options) addKubeconfig(cmd *cobra.Command) {
	kubeconfig.AddFlag(cmd.Flags(), &o.kubeconfig, ", of a user who may write ClusterRoles")
}

func (o *options) addRestoreRoles(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.restoreRoles, "restore-roles", false, "replace ClusterRoles whose rules somebody else has written; without "+
		"it they are left as they are, and what they lack is printed")
}

func (o *options) register(cmd *cobra.Command) error {
	config, err := kubeconfig.Read(o.kubeconfig)
	if err != nil {
		return err
	}
	bundle, err := o.authority.Read(cmd.Context(), config, o.timeout, cmd.OutOrStdout())
	if err != nil {
		return err
	}
	return registration.Register(cmd.Context(), registration.Options{
		Config: config, Host: o.host, Port: o.port, CABundle: bundle, Timeout: o.timeout, RestoreRoles: o.restoreRoles,
		BesideDefinitions: o.beside, Progress: cmd.OutOrStdout(),
	})
}

// Authority says where the authority of a server's certificate is. The last field that is set counts.
type Authority struct {
	// DataDir is the data directory of the server that has made it.
	DataDir string
	// CAFile is a file.
	CAFile string
	// CASecret is the Secret that replicas share, NAMESPACE/NAME.
	CASecret string
}

// AddFlags adds the flags that set the fields, of which one may be given, to those of a command. DataDir is dataDir by default.
func (a *Authority) AddFlags(cmd *cobra.Command, dataDir string) {
	flags := cmd.Flags()
	flags.StringVar(&a.DataDir, "data-dir", dataDir, "data directory of the server, in which it keeps the certificates that it made")
	flags.StringVar(&a.CAFile, "ca-file", "", "certificate authority of the server's certificate, in place of the one in --data-dir")
	flags.StringVar(&a.CASecret, "ca-secret", "", "NAMESPACE/NAME of the Secret with the certificate authority that the server's replicas share, "+
		"their --serving-cert-secret, in place of the one in --data-dir")
	cmd.MarkFlagsMutuallyExclusive("data-dir", "ca-file", "ca-secret")
}

// Read returns the authority, PEM. It waits until timeout for a server that just started to make it, and says so to out.
func (a *Authority) Read(ctx context.Context, config *rest.Config, timeout time.Duration, out io.Writer) ([]byte, error) {
	if a.CASecret != "" {
		return readSecret(ctx, config, a.CASecret, timeout, out)
	}
	return readAuthority(ctx, cmp.Or(a.CAFile, servingcert.FilesIn(servingcert.Directory(a.DataDir)).CAFile), timeout, out)
}

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
