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

package build

import "strings"

// KubernetesVersion is the version of kube-apiserver, kube-controller-manager, kube-scheduler and kubectl. It is that of
// the module k8s.io/kubernetes in go.mod.
const KubernetesVersion = "v1.36.3"

// buildDate is stamped into the programs. It is a constant, so that the same versions give the same bytes.
const buildDate = "1970-01-01T00:00:00Z"

// program is one program to build.
type program struct {
	// name is the file name of the result.
	name string
	// pkg is the Go package.
	pkg string
	// usual is how long a first build takes on two cores, for people who wait.
	usual string
}

// programs are in the order of building: what they share is compiled with the first that needs it.
func programs() []program {
	return []program{
		{"etcd", "go.etcd.io/etcd/server/v3", "half a minute"},
		{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "three and a half minutes"},
		{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "one minute"},
		{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "a quarter of a minute"},
		{"kubectl", "k8s.io/kubernetes/cmd/kubectl", "half a minute"},
		{"kwok", "sigs.k8s.io/kwok/cmd/kwok", "half a minute"},
	}
}

// arguments are those of go build, without the output and the package.
func arguments() []string {
	return []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", stamp()}
}

// environment is what go build needs beside the user's own variables, of which some would change the results.
func environment() []string {
	return []string{"GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off"}
}

// stamp returns the linker flags that put the version into the Kubernetes programs, as their own build does.
func stamp() string {
	parts := strings.SplitN(strings.TrimPrefix(KubernetesVersion, "v"), ".", 3)
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, variable := range []string{
			"gitVersion=" + KubernetesVersion,
			"gitMajor=" + parts[0],
			"gitMinor=" + parts[1],
			"gitCommit=", // Modules come without their commit.
			"gitTreeState=archive",
			"buildDate=" + buildDate,
		} {
			flags = append(flags, "-X", pkg+"."+variable)
		}
	}
	return strings.Join(flags, " ")
}
