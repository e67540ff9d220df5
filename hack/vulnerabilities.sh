#!/usr/bin/env bash
# Looks up in the vulnerability database of Go what is known of the dependencies of every module, and fails if code of ours can reach it.
# It needs the network: the database is that of the Go project, or the one that GOVULNDB names. Usage: hack/vulnerabilities.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

while IFS= read -r module; do
    if [[ "${module}" == hack/tools ]]; then
        continue
    fi
    echo "govulncheck ${module}"
    (cd "${module}" && go tool -modfile="${root}/hack/tools/go.mod" govulncheck -test ./...) || complain "${module}: govulncheck has findings, or could not look"
done < <(modules)
finish vulnerabilities
