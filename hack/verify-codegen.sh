#!/usr/bin/env bash
# Fails when a generated file is not what the generators write. The generators run in a copy, so the working tree stays
# as it is. Usage: hack/verify-codegen.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

copy="$(mktemp -d)"
trap 'rm -rf "${copy}"' EXIT

mkdir "${copy}/want" "${copy}/got"
source_files | tar --create --files-from=- | tar --extract --directory "${copy}/want"
cp -R "${copy}/want/." "${copy}/got"
# Some generators ask git for the root of the repository.
git -C "${copy}/got" init --quiet

if ! make --no-print-directory -C "${copy}/got" generate >"${copy}/log" 2>&1; then
    cat "${copy}/log" >&2
    exit 1
fi
rm -rf "${copy}/got/.git" "${copy}/got/bin"
if ! diff --recursive --unified --new-file "${copy}/want" "${copy}/got" >"${copy}/diff"; then
    sed "s|${copy}/||g" "${copy}/diff" | sed -n 1,100p >&2
    complain "Generated files are out of date: run 'make generate' and commit the result."
fi
finish verify-codegen
