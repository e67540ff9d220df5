#!/usr/bin/env bash
# Runs go vet over every module of the repository. Usage: hack/vet.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

while IFS= read -r module; do
    if [[ "${module}" != hack/tools ]]; then
        echo "vet ${module}"
        (cd "${module}" && go vet ./...) || complain "${module}: go vet has findings"
    fi
done < <(modules)
finish vet
