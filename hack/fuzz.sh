#!/usr/bin/env bash
# Runs every fuzz target of the product's module, one after the other. Usage: hack/fuzz.sh DURATION, for example 30s
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly duration="${1:?how long to fuzz each target}"

# One line for each target: folder and name.
targets="$(source_files '*_test.go' | xargs -r grep -H -oE '^func Fuzz[A-Za-z0-9_]+' | sed -E 's|/[^/]*:func | |')"
while read -r folder target; do
    echo "fuzz ${folder} ${target}"
    go test "./${folder}" -run '^$' -fuzz "^${target}\$" -fuzztime "${duration}" || complain "${folder}: ${target} failed"
done < <(grep -v '^test/controlplane/' <<<"${targets}")
finish fuzz
