#!/usr/bin/env bash
# Runs `go build` with the arguments, the last of which is the package. Where something has to be compiled, it says how far that is and how
# long it takes at most; where nothing has, it is silent. Usage: hack/build.sh NAME ARGUMENT... PACKAGE
set -o errexit -o nounset -o pipefail

name="$1"
shift
built=0 next=15
go build -v "$@" 2>&1 | while IFS= read -r line; do
    # Packages are names alone; all else is said by go itself.
    if [[ -z "${line}" || "${line}" == *[!A-Za-z0-9._/~-]* ]]; then
        printf '%s\n' "${line}" >&2
        continue
    fi
    built=$((built + 1))
    if ((built == 1)); then
        total="$(go list -deps "${@: -1}" | wc -l)"
        SECONDS=0
        echo "Building ${name}: at most ${total} packages"
    elif ((SECONDS >= next)); then
        echo "    ${built} of at most ${total} packages are compiled; that takes ${SECONDS} s, and at most $((SECONDS * (total - built) / built)) s more"
        next=$((SECONDS + 15))
    fi
done
