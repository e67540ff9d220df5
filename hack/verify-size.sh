#!/usr/bin/env bash
# Keeps rooms small: no Go file of more than 800 lines, no folder of more than 25 Go files and no function of more than 60 lines, tests
# and generated code not counted for folders and functions, no folder or file named for nothing in particular. The product has a budget of lines, and the
# engine budgets of lines, of rooms and of memories of parents, which only go down: a new mechanism replaces an old one. Usage: hack/verify-size.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly max_lines=800 max_files=25 max_function=60

while IFS= read -r file; do
    lines="$(wc -l <"${file}")"
    if ((lines > max_lines)); then
        complain "${file}: ${lines} lines, at most ${max_lines} are allowed: one file, one idea"
    fi
done < <(handwritten_go)

while read -r count folder; do
    if ((count > max_files)); then
        complain "${folder}: ${count} Go files, at most ${max_files} are allowed: split the package"
    fi
done < <(handwritten_go | grep -v '_test\.go$' | xargs -rn1 dirname | sort | uniq -c)

# gofmt has a function begin and end in the first column.
while IFS= read -r found; do
    complain "${found}, at most ${max_function} are allowed: split the function"
done < <(handwritten_go | grep -v '_test\.go$' | xargs awk -v max="${max_function}" '
    /^func / && !/}$/ { began = FNR; name = $0; sub(/ *{$/, "", name) }
    /^}/ && began { if (FNR - began + 1 > max) print FILENAME ":" began ": " name ": " FNR - began + 1 " lines"; began = 0 }
')

while IFS= read -r file; do
    complain "${file}: util, helper, common and misc name nothing: say what it is for"
done < <(handwritten_go | grep -E '(^|/)(utils?|helpers?|common|misc)(/|\.go$|_test\.go$)' || true)

# budget WHAT COUNT MOST
budget() {
    if (($2 > $3)); then
        complain "there are $2 $1, and at most $3 are allowed: find what the new one makes superfluous, or say in hack/verify-size.sh why not"
    fi
}

engine() { handwritten_go | grep -E '^pkg/(controller|children)/' | grep -v '_test\.go$'; }

budget 'lines in cmd and pkg' "$(handwritten_go | grep -E '^(cmd|pkg)/' | grep -v '_test\.go$' | xargs cat | wc -l)" 83744 # 50 for what CEL computes before its cost is counted, and for fights over conditions.
budget 'lines in the engine' "$(engine | xargs cat | wc -l)" 25843 # 350 of them for inline hooks, 630 for Synced and paused parents, 390 for children that stay, 40 for definitions of the cluster and Stalled, 30 for fights over conditions.
budget 'rooms in pkg/controller' "$(engine | grep '^pkg/controller/' | xargs -n1 dirname | sort -u | wc -l)" 14
budget 'rooms in pkg/children' "$(engine | grep '^pkg/children/' | xargs -n1 dirname | sort -u | wc -l)" 4
budget 'maps of parents' "$(engine | xargs grep -hE '^\s+\w+\s+map\[parent\.Key\]' | wc -l)" 4

finish verify-size
