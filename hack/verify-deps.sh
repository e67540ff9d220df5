#!/usr/bin/env bash
# Every go.mod and go.sum is what 'go mod tidy' would write, and the modules' files are those that go.sum promises.
# Usage: hack/verify-deps.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

while IFS= read -r module; do
    if ! (cd "${module}" && go mod tidy -diff); then
        complain "${module}/go.mod: not tidy, run 'go mod tidy' there"
    fi
done < <(modules)

if grep -nE '^replace|=>' go.mod; then
    complain "go.mod: a replace directive would not reach those who import this module"
fi
finish verify-deps
