#!/usr/bin/env bash
# Runs golangci-lint, at the version that hack/tools/go.mod pins, over every module of the repository with one
# configuration. Usage: hack/lint.sh [argument of golangci-lint run]..., for example: hack/lint.sh --fix ./pkg/hook/...
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

lint=(go tool -modfile="${root}/hack/tools/go.mod" golangci-lint run --config "${root}/.golangci.yml")
if (($# > 0)); then
    exec "${lint[@]}" "$@"
fi

while IFS= read -r module; do
    if [[ "${module}" == hack/tools ]]; then
        continue
    fi
    echo "lint ${module}"
    (cd "${module}" && "${lint[@]}") || complain "${module}: golangci-lint has findings"
done < <(modules)
finish lint
