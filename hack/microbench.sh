#!/usr/bin/env bash
# Runs the microbenchmarks of the packages on the path of a sync, and compares them with those of another commit.
# Usage: hack/microbench.sh COUNT, or hack/microbench.sh COUNT BASE
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly count="${1:?how often each is run}" base="${2:-}"

# bench FOLDER: runs the benchmarks of the working tree in FOLDER.
bench() {
    local packages
    packages="$(cd "$1" && grep -rl --include='*_test.go' '^func Benchmark' pkg | xargs -n1 dirname | sort -u | sed 's|^|./|')"
    # shellcheck disable=SC2086 # One argument for each package.
    (cd "$1" && go test -run '^$' -bench . -benchmem -count "${count}" ${packages})
}

if [[ -z "${base}" ]]; then
    bench .
    exit
fi

work="$(mktemp -d)"
trap 'git worktree remove --force "${work}/tree" 2>/dev/null || true; rm -rf "${work}"' EXIT
git worktree add --quiet --detach "${work}/tree" "${base}"
echo "microbenchmarks of ${base}" >&2
bench "${work}/tree" >"${work}/base.txt"
echo "microbenchmarks of the working tree" >&2
bench . >"${work}/new.txt"
go tool -modfile=hack/tools/go.mod benchstat "base=${work}/base.txt" "new=${work}/new.txt"
