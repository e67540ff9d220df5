#!/usr/bin/env bash
# Measures two servers in turns, with the bench of the working tree, and compares them: that of another commit and that of the working tree,
# which has further flags if CHANGED_ARGUMENTS is set, or the latter with further flags and without.
# Usage: hack/bench-compare.sh commit COMMIT TURNS FLAG..., or hack/bench-compare.sh arguments ARGUMENTS TURNS FLAG..., the flags being
# those of test/bench
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly what="${1:?commit or arguments}" base="${2:?the commit or the flags of the server to compare with}" turns="${3:?how often each is measured}"
shift 3

work="$(mktemp -d)"
trap 'git worktree remove --force "${work}/tree" 2>/dev/null || true; rm -rf "${work}"' EXIT
servers=(bin/metacontroller-apiserver bin/metacontroller-apiserver)
arguments=("" "")
case "${what}" in
commit)
    git worktree add --quiet --detach "${work}/tree" "${base}"
    make -C "${work}/tree" --no-print-directory build
    servers[0]="${work}/tree/bin/metacontroller-apiserver"
    arguments[1]="${CHANGED_ARGUMENTS:-}"
    ;;
arguments) arguments[0]="${base}" ;;
*)
    complain "commit or arguments, not ${what}"
    finish bench-compare
    ;;
esac
for ((turn = 1; turn <= turns; turn++)); do
    # Who is first changes, since a machine may get slower or faster while both are measured.
    for i in $(((turn + 1) % 2)) $((turn % 2)); do
        echo "turn ${turn} of ${turns}: ${servers[i]} ${arguments[i]}" >&2
        bin/bench -server "${servers[i]}" -server-args "${arguments[i]}" -results "${work}/${i}.jsonl" "$@" >/dev/null
    done
done
mkdir -p bin/results
cp "${work}/0.jsonl" bin/results/base.jsonl
cp "${work}/1.jsonl" bin/results/changed.jsonl
bin/bench -compare bin/results/base.jsonl,bin/results/changed.jsonl
