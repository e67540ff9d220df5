#!/usr/bin/env bash
# Runs `go build` with the arguments, the last of which are the packages: several where -o names a folder. Where something has to be compiled, or the
# last program is not there, it says so, how far that is and, where nothing was compiled before, how long it takes. Otherwise it is silent.
# Usage: hack/build.sh NAME ARGUMENT... PACKAGE...
set -o errexit -o nounset -o pipefail

name="$1"
shift
built=0 next=15 output="" said=""
for ((i = 1; i < $#; i++)); do
    if [[ "${!i}" == -o ]]; then next_argument=$((i + 1)) && output="${!next_argument}"; fi
done
last="${*: -1}"
if [[ "${output}" == */ ]]; then output+="${last##*/}"; fi
# To link alone takes long enough for somebody who waits.
if [[ -n "${output}" && ! -e "${output}" ]]; then echo "Building ${name}" && said=yes; fi
go build -v "$@" 2>&1 | while IFS= read -r line; do
    # Packages are names alone; all else is said by go itself.
    if [[ -z "${line}" || "${line}" == *[!A-Za-z0-9._/~-]* ]]; then
        printf '%s\n' "${line}" >&2
        continue
    fi
    built=$((built + 1))
    if ((built == 1)); then
        SECONDS=0 total=0
        # Go's own packages are the first ones: without them, the cache has most of the others.
        if [[ "${line%%/*}" != *.* ]]; then total="$(go list -deps "${last}" | wc -l)"; fi
        if [[ -z "${said}" ]]; then echo "Building ${name}"; fi
    elif ((SECONDS >= next)); then
        left=""
        if ((total > built)); then left=" of ${total}, about $((SECONDS * (total - built) / built)) s are left"; fi
        echo "    ${built} packages are compiled${left}"
        next=$((SECONDS + 15))
    fi
done
