#!/usr/bin/env bash
# Sourced by the scripts of hack/: strict mode, the repository's root as working directory, and the lists of files and
# modules that several scripts go through.
set -o errexit -o nounset -o pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
cd "${root}"

# A module that wants a newer Go than this machine's gets it, as a module: test/gitops does.
export GOTOOLCHAIN=auto

# Go modules of this repository, the product's first. hack/tools holds no code of ours.
modules() {
    source_files | sed -n -e 's|^go\.mod$|.|p' -e 's|/go\.mod$||p' | sort
}

# Files of the working tree that git tracks or would track, by path from the root; deleted ones are left out.
source_files() {
    git ls-files --cached --others --exclude-standard "$@" | sort -u | while IFS= read -r file; do
        if [[ -f "${file}" ]]; then printf '%s\n' "${file}"; fi
    done
}

# Go files written by hand.
handwritten_go() {
    source_files '*.go' | grep -v -e '/zz_generated\.' -e '^pkg/generated/' || true
}

# complain MESSAGE...: prints the message and makes finish fail.
complaints=0
complain() {
    printf '%s\n' "$*" >&2
    complaints=$((complaints + 1))
}

# finish NAME: ends a verifying script.
finish() {
    if ((complaints > 0)); then
        printf '%s: %d finding(s)\n' "$1" "${complaints}" >&2
        exit 1
    fi
    printf '%s: ok\n' "$1"
}
