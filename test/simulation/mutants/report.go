/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Of so many mutants, so many must be found at least.
const (
	foundAtLeast = 23
	ofMutants    = 25
)

// String says in one line what came of the mutant.
func (o outcome) String() string {
	switch {
	case o.err != nil:
		return fmt.Sprintf("%s: %v", o.mutant.Name, o.err)
	case o.found():
		return fmt.Sprintf("%s: found after %d histories in %v by seed %d: %s",
			o.mutant.Name, o.run, o.took.Round(time.Second), o.violation.Seed, firstLine(o.violation.Text))
	}
	text := fmt.Sprintf("%s: not found in %d histories in %v", o.mutant.Name, o.run, o.took.Round(time.Second))
	if o.shown {
		text += "; the kept history " + o.mutant.Kept + " shows it"
	}
	return text
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// table returns what came of the mutants as a table. Histories that violate something without the mutant, too, are in its last column.
func table(outcomes []outcome) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "mutant\tfound after\tby\tseed\ttime\tdiscounted")
	for _, o := range outcomes {
		after, by, seed := "-", "not found", "-"
		switch {
		case o.err != nil:
			by = "error"
		case o.found():
			after, by, seed = fmt.Sprintf("%d histories", o.run), o.violation.Invariant, fmt.Sprint(o.violation.Seed)
		default:
			after = fmt.Sprintf("> %d histories", o.run)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%d\n", o.mutant.Name, after, by, seed, o.took.Round(time.Second), o.discounted)
	}
	_ = w.Flush() // A strings.Builder takes everything.
	for _, o := range outcomes {
		if o.mutant.Unseen != "" {
			fmt.Fprintf(&b, "%s: %s\n", o.mutant.Name, o.mutant.Unseen)
		}
		if o.shown {
			fmt.Fprintf(&b, "%s: shown by the kept history %s\n", o.mutant.Name, o.mutant.Kept)
		}
	}
	return b.String()
}

// summary says how many of the histories that were run alone violate an invariant. With a mutant other things happen in the same history,
// so that a violation that plain histories have, too, may have been found without the mutant's doing.
func (b *binary) summary() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	violated := map[string]int{}
	for _, m := range b.known {
		if m.Invariant != "" {
			violated[m.Invariant]++
		}
	}
	counts := []string{"none anything"}
	if len(violated) > 0 {
		counts = nil
	}
	for _, invariant := range slices.Sorted(maps.Keys(violated)) {
		counts = append(counts, fmt.Sprintf("%d %s", violated[invariant], invariant))
	}
	return fmt.Sprintf("without a mutant, of %d of these histories violate: %s\n", len(b.known), strings.Join(counts, ", "))
}

// verdict returns an error if a mutant could not be run, too few are found, or one is not found and it is not said why.
func verdict(outcomes []outcome) error {
	found := 0
	var failed, unexplained []string
	for _, o := range outcomes {
		switch {
		case o.err != nil:
			failed = append(failed, o.mutant.Name)
		case o.found():
			found++
		case !o.explained():
			unexplained = append(unexplained, o.mutant.Name)
		}
	}
	switch {
	case len(outcomes) == 0:
		return fmt.Errorf("no mutant was run")
	case len(failed) > 0:
		return fmt.Errorf("%d mutants could not be run: %s", len(failed), strings.Join(failed, ", "))
	case found*ofMutants < len(outcomes)*foundAtLeast:
		return fmt.Errorf("%d of %d mutants are found, and %d of %d must be; not found, and not explained: %s",
			found, len(outcomes), foundAtLeast, ofMutants, strings.Join(unexplained, ", "))
	case len(unexplained) > 0:
		return fmt.Errorf("not found, and mutants.yaml does not say why: %s", strings.Join(unexplained, ", "))
	}
	return nil
}
