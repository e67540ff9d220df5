#!/usr/bin/env bash
# Shell scripts parse, and shellcheck has nothing to say about them where it is installed. Usage: hack/verify-shell.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

mapfile -t scripts < <(source_files '*.sh' .ci/run)
for script in "${scripts[@]}"; do
    bash -n "${script}" || complain "${script}: does not parse"
done
if command -v shellcheck >/dev/null; then
    shellcheck --external-sources --source-path=SCRIPTDIR "${scripts[@]}" || complain "shellcheck has findings"
else
    echo "verify-shell: shellcheck is not installed, only the syntax was checked"
fi
finish verify-shell
