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

package kubeconfig

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// AddFlag adds the flag with the path that Read takes to those of a command. What there is to say of the cluster begins with a comma.
func AddFlag(flags *pflag.FlagSet, path *string, about string) {
	flags.StringVar(path, "kubeconfig", "", "kubeconfig file for the cluster"+about+"; empty: the environment variable KUBECONFIG, then ~/.kube/config, "+
		"then the service account of the Pod")
}

// Read returns the configuration of clients that the file at path has. With an empty path it is that of the environment variable KUBECONFIG,
// then that of ~/.kube/config, then that of the service account of the Pod.
//
// The clients have no limit of their own: a command makes one request after the other, and client-go's five a second after the first ten would
// be most of its time. The API server has API Priority and Fairness.
func Read(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && path != "":
		return nil, fmt.Errorf("reading kubeconfig %s: it names no cluster: give another file with --kubeconfig", path)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no kubeconfig: name its file with --kubeconfig or the environment variable KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}
