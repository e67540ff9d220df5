#!/usr/bin/env bash
# Writes all generated Go code: helpers of the API types, OpenAPI definitions, clientset, listers, informers and apply
# configurations. Usage: hack/update-codegen.sh
set -o errexit -o nounset -o pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${root}"

module="$(go list -m)"
boilerplate="${root}/hack/boilerplate.go.txt"
# The generators are built beside the project's own binaries, not into the user's PATH.
export GOBIN="${root}/bin/tools"
mkdir -p "${GOBIN}"

# Where no generator was built yet, the module may not be there, and has no folder then.
go mod download k8s.io/code-generator
# shellcheck disable=SC1091 # the script comes with the pinned code-generator module
source "$(go list -m -f '{{.Dir}}' k8s.io/code-generator)/kube_codegen.sh"

# With meta/v1 read-only, validation-gen refuses types that hold a metav1.Condition (kubernetes/kubernetes#141765). It
# is taken off the list for the helpers only; remove this when the pull request is in a release.
readonly_packages=("${KUBE_CODEGEN_READONLY_PKGS[@]}")
KUBE_CODEGEN_READONLY_PKGS=()
for package in "${readonly_packages[@]}"; do
    if [[ "${package}" != k8s.io/apimachinery/pkg/apis/meta/v1 ]]; then
        KUBE_CODEGEN_READONLY_PKGS+=("${package}")
    fi
done
kube::codegen::gen_helpers --boilerplate "${boilerplate}" "${root}/pkg/apis"
KUBE_CODEGEN_READONLY_PKGS=("${readonly_packages[@]}")

kube::codegen::gen_openapi \
    --output-dir "${root}/pkg/generated/openapi" \
    --output-pkg "${module}/pkg/generated/openapi" \
    --output-model-name-file zz_generated.model_name.go \
    --report-filename "${root}/hack/api-violations.report" \
    --update-report \
    --extra-pkgs k8s.io/apimachinery/pkg/util/intstr \
    --boilerplate "${boilerplate}" \
    "${root}/pkg/apis"

kube::codegen::gen_client \
    --with-watch \
    --with-applyconfig \
    --applyconfig-openapi-schema <(go run ./hack/models-schema) \
    --output-dir "${root}/pkg/generated" \
    --output-pkg "${module}/pkg/generated" \
    --boilerplate "${boilerplate}" \
    "${root}/pkg/apis"

# The generator looks for models by the names of their Go types, and a scheme by those that the types give themselves.
find "${root}/pkg/generated/applyconfiguration" -name '*.go' -exec \
    sed -i.bak 's/com\.github\.metacontroller\.metacontroller-apiserver\.pkg\.apis\.metacontroller\.v1alpha1\./io.k8s.metacontroller.v1alpha1./g' {} +
find "${root}/pkg/generated/applyconfiguration" -name '*.bak' -delete

# What Kubernetes' own kinds look like, as the control plane of the tests serves them.
go -C test/controlplane mod download k8s.io/kubernetes
go run ./hack/kubernetes-kinds "$(go -C test/controlplane list -m -f '{{.Dir}}' k8s.io/kubernetes)" \
    >"${root}/cmd/kubectl-metacontroller/lint/kubernetes.json"
