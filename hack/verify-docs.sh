#!/usr/bin/env bash
# docs/architecture.md tells the truth about the tree: each folder that it names exists, each folder with Go code of the
# product is named there, and relative links between Markdown files lead somewhere. Usage: hack/verify-docs.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly plan=docs/architecture.md

# A folder is named as `pkg/children/plan`, in backquotes.
named="$(grep -oE '`(cmd|pkg|hack|test|artifacts|docs)(/[A-Za-z0-9_.-]+)*/?`' "${plan}" | tr -d '`' | sed 's|/$||' | sort -u)"
while IFS= read -r path; do
    if [[ ! -e "${path}" ]]; then
        complain "${plan}: names ${path}, which does not exist"
    fi
done <<<"${named}"

while IFS= read -r folder; do
    if ! grep -qxF "${folder}" <<<"${named}"; then
        complain "${plan}: does not name ${folder}"
    fi
done < <(handwritten_go | grep -E '^(cmd|pkg)/' | grep -v '_test\.go$' | xargs -rn1 dirname | sort -u)

while IFS= read -r file; do
    while IFS= read -r target; do
        if [[ ! -e "$(dirname "${file}")/${target%%#*}" ]]; then
            complain "${file}: link to ${target} leads nowhere"
        fi
    done < <(grep -oE '\]\([^)#:][^):]*\)' "${file}" | sed -e 's/^](//' -e 's/)$//' || true)
done < <(source_files '*.md')

finish verify-docs
