#!/usr/bin/env bash
# Measures the server of the working tree and that of another commit in turns, with the bench of the working tree, and compares them.
# Usage: hack/bench-compare.sh BASE TURNS FLAG..., the flags being those of test/bench
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly base="${1:?the commit to compare with}" turns="${2:?how often each is measured}"
shift 2

work="$(mktemp -d)"
trap 'git worktree remove --force "${work}/tree" 2>/dev/null || true; rm -rf "${work}"' EXIT
git worktree add --quiet --detach "${work}/tree" "${base}"
make -C "${work}/tree" --no-print-directory build
servers=("${work}/tree/bin/metacontroller-apiserver" bin/metacontroller-apiserver)
for ((turn = 1; turn <= turns; turn++)); do
    # Who is first changes, since a machine may get slower or faster while both are measured.
    for i in $(((turn + 1) % 2)) $((turn % 2)); do
        echo "turn ${turn} of ${turns}: ${servers[i]}" >&2
        bin/bench -server "${servers[i]}" -results "${work}/${i}.jsonl" "$@" >/dev/null
    done
done
mkdir -p bin/results
cp "${work}/0.jsonl" bin/results/base.jsonl
cp "${work}/1.jsonl" bin/results/changed.jsonl
bin/bench -compare bin/results/base.jsonl,bin/results/changed.jsonl
