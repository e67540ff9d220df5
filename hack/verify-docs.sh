#!/usr/bin/env bash
# The documents tell the truth about the tree: docs/architecture.md names no folder that does not exist, and the comment of each package says
# what its folder is for; links between Markdown files, and citations of documents in code, lead to an existing file and an
# existing place in it; tests that documents link to exist; nothing is cited in a form that nobody can follow. The documents have a budget of
# words, which only goes down. Usage: hack/verify-docs.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly plan=docs/architecture.md most_words=54500

# Decisions stay as they were made, and nobody writes the generated references.
words="$(source_files 'docs/*.md' | grep -vE '^docs/(design|reference/hook-schema)/|^docs/reference/(api|metrics)\.md$' | xargs cat | wc -w)"
if ((words > most_words)); then
    complain "docs has ${words} words, and at most ${most_words} are allowed: say it once, and link it"
fi

# A folder is named as `pkg/children/plan`, in backquotes.
named="$(grep -oE '`(cmd|pkg|hack|test|artifacts|docs)(/[A-Za-z0-9_.-]+)*/?`' "${plan}" | tr -d '`' | sed 's|/$||' | sort -u)"
while IFS= read -r path; do
    if [[ ! -e "${path}" ]]; then
        complain "${plan}: names ${path}, which does not exist"
    fi
done <<<"${named}"

# The comment of a package says what its folder is for.
while IFS= read -r folder; do
    if ! grep -qE '^(// )?(Package|Command) ' "${folder}"/*.go; then
        complain "${folder}: no comment of the package says what it is for"
    fi
done < <(handwritten_go | grep -E '^(cmd|pkg|hack|test)/' | grep -v '_test\.go$' | xargs -rn1 dirname | sort -u)

# places FILE...: prints each place that a link may name, as FILE#PLACE: explicit anchors, and headings as GitHub names them.
places() {
    LC_ALL=C awk '
        FNR == 1 { fenced = 0; split("", seen) }
        /^```/ { fenced = !fenced }
        fenced { next }
        {
            rest = $0
            while (match(rest, /<a id="[^"]+">/)) {
                print FILENAME "#" substr(rest, RSTART + 7, RLENGTH - 9)
                rest = substr(rest, RSTART + RLENGTH)
            }
        }
        /^#+ / {
            slug = tolower($0)
            sub(/^#+ +/, "", slug)
            gsub(/\]\([^)]*\)/, "", slug)
            gsub(/[^a-z0-9 _-]/, "", slug)
            gsub(/ /, "-", slug)
            print FILENAME "#" slug (slug in seen ? "-" seen[slug] : "")
            seen[slug]++
        }' "$@"
}

mapfile -t pages < <(source_files '*.md')
mapfile -t texts < <(source_files '*.md' '*.go' '*.sh' '*.yaml' '*.yml' Makefile)
declare -A known=()
while IFS= read -r place; do known["${place}"]=1; done < <(places "${pages[@]}")

# check FILE TARGET SAID: complains unless TARGET, a path from the root that may have a #PLACE, exists.
check() {
    local path="${2%%#*}"
    if [[ ! -e "${path}" ]]; then
        complain "$1: $3 leads nowhere: there is no ${path}"
    elif [[ "$2" == *'#'* && "${path}" == *.md && -z "${known["$2"]:-}" ]]; then
        complain "$1: $3 leads nowhere: ${path} has no place #${2#*#}"
    fi
}

# Links of Markdown: [text](path#place) and [text](#place). Code may look like one.
while IFS=: read -r file target; do
    target="${target#']('}"
    target="${target%)}"
    if [[ "${target}" == '#'* ]]; then
        check "${file}" "${file}${target}" "link to ${target}"
    else
        place=""
        if [[ "${target}" == *'#'* ]]; then place="#${target#*#}"; fi
        path="$(realpath --canonicalize-missing --relative-to=. "$(dirname "${file}")/${target%%#*}")"
        check "${file}" "${path}${place}" "link to ${target}"
    fi
done < <(awk '
    FNR == 1 { fenced = 0 }
    /^```/ { fenced = !fenced }
    !fenced { while (match($0, /\]\([^):]+\)/)) { print FILENAME ":" substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH) } }
' "${pages[@]}")

# Links to tests: [`TestName`](path of the file that has it).
while IFS=: read -r file match; do
    name="$(sed -E 's|^\[`([A-Za-z0-9_]+)`.*|\1|' <<<"${match}")"
    path="$(realpath --canonicalize-missing --relative-to=. "$(dirname "${file}")/$(sed -E 's|.*\]\(([^)]+)\)|\1|' <<<"${match}")")"
    if [[ -e "${path}" ]] && ! grep -q "^func ${name}(" "${path}"; then
        complain "${file}: ${path} has no ${name}"
    fi
done < <(grep -oHE '\[`Test[A-Za-z0-9_]+`\]\([^)]+_test\.go\)' "${pages[@]}" || true)

# Citations by path from the root, in comments, scripts and prose: docs/reference/contract.md#s12.1.
while IFS=: read -r file target; do
    target="$(sed -E -e 's|^[^d]||' -e 's|[.]+$||' <<<"${target}")"
    check "${file}" "${target}" "citation of ${target}"
done < <(grep -oHE '(^|[^A-Za-z0-9_/.-])docs/[A-Za-z0-9_/-]+\.md(#[A-Za-z0-9._-]+)?' "${texts[@]}" | sort -u || true)

# Numbers of sections without a document.
while IFS= read -r match; do
    complain "${match}: cite a page of docs/ with its place, such as ${plan}#commands"
done < <(grep -noHE '\b([Cc]ontract|[Dd]ecisions|[Cc]osts),? §[0-9.]*|\b([Cc]ontract|[Dd]ecisions|[Cc]osts), [0-9][0-9.]*' "${texts[@]}" || true)

finish verify-docs
