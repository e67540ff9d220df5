#!/usr/bin/env bash
# Every Go file written by hand starts with hack/boilerplate.go.txt, and every package has a doc.go, is a command, or has tests alone.
# Usage: hack/verify-boilerplate.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

boilerplate="$(<hack/boilerplate.go.txt)"
while IFS= read -r file; do
    # A build constraint stands above the licence.
    text="$(sed -e '1{/^\/\/go:build/{N;d}}' "${file}")"
    if [[ "${text}" != "${boilerplate}"* ]]; then
        complain "${file}: does not start with the text of hack/boilerplate.go.txt"
    fi
done < <(handwritten_go)

while IFS= read -r folder; do
    if [[ ! -f "${folder}/doc.go" && ! -f "${folder}/main.go" ]]; then
        complain "${folder}: no doc.go says what the package is for"
    fi
done < <(handwritten_go | grep -v '_test\.go$' | xargs -rn1 dirname | sort -u)

finish verify-boilerplate
