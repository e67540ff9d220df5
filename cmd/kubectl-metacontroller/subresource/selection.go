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

package subresource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// Flags say which parents a command is about. The zero value is those of a namespace.
type Flags struct {
	selector, resource string
	all                bool
}

// Add adds the flags to those of a command.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.selector, "selector", "l", "", "labels of the parents, such as app=web,tier!=cache")
	flags.BoolVarP(&f.all, "all", "A", false, "the parents in all namespaces, and those in none")
	f.AddResource(flags)
}

// AddResource adds the one flag that a command about a single parent takes.
func (f *Flags) AddResource(flags *pflag.FlagSet) {
	flags.StringVar(&f.resource, "resource", "", "resource of the parents, such as things.example.com, for a controller that has several")
}

// Selected are the parents that a command is about.
type Selected struct {
	v1alpha1.ParentSelection

	// selector is the selection by labels as it was written.
	selector string
}

// ParentOptions select the same for the subresource parents.
func (s Selected) ParentOptions() v1alpha1.ControllerParentOptions {
	return v1alpha1.ControllerParentOptions{Resource: s.Resource, Namespace: s.Namespace, Name: s.Name, LabelSelector: s.selector}
}

// SyncOptions select the same for the subresource syncs, up to a limit; 0: as the server does.
func (s Selected) SyncOptions(limit int64) v1alpha1.ControllerSyncOptions {
	return v1alpha1.ControllerSyncOptions{Resource: s.Resource, Namespace: s.Namespace, Name: s.Name, LabelSelector: s.selector, Limit: limit}
}

// Arguments are those that select the same in another command, each after a space.
func (s Selected) Arguments() string {
	var text string
	switch {
	case s.Name != "" && s.Namespace != "":
		text = " " + s.Namespace + "/" + s.Name
	case s.Name != "":
		text = " " + s.Name
	case s.Namespace != "":
		text = " -n " + s.Namespace
	default:
		text = " --all"
	}
	if s.selector != "" {
		text += " -l '" + s.selector + "'"
	}
	if s.Resource != "" {
		text += " --resource " + s.Resource
	}
	return text
}

// Nothing says that nothing was selected: by an error if a single parent was named, and else in a sentence.
func (s Selected) Nothing(out io.Writer, object controllerobject.Object) error {
	text := object.Argument() + " has no parent"
	if s.Name != "" {
		text += " " + s.Name
	}
	if s.selector != "" {
		text += " with the labels " + s.selector
	}
	if s.Namespace != "" {
		text += " in namespace " + s.Namespace
	}
	if s.Namespace+s.Name+s.selector != "" {
		text += fmt.Sprintf(": list all of them with '%s parents %s --all'", connection.Program, object.Argument())
	}
	if s.Name != "" {
		return errors.New(text)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// Hidden says that parents were left out.
func Hidden(n int64) string {
	return outputformat.Count(n, "parent is", "parents are") + " left out, because you may not get them, their children or their related objects: see 'kubectl auth can-i --list'"
}

// ReportHidden writes what Hidden says, if parents were left out.
func ReportHidden(out io.Writer, n int64) {
	if n > 0 {
		fmt.Fprintln(out, Hidden(n))
	}
}

// Open finds the controller that the first argument names, reads which of its parents the second one and the flags are about, and returns a
// client for its subresources. The arguments are one or two.
func (f *Flags) Open(ctx context.Context, c *connection.Connection, args []string) (controllerobject.Object, Selected, *Client, error) {
	object, err := c.Find(ctx, args[0])
	if err != nil {
		return object, Selected{}, nil, err
	}
	parent := ""
	if len(args) == 2 {
		parent = args[1]
		if err := Named(parent); err != nil {
			return object, Selected{}, nil, err
		}
	}
	selected, err := f.Of(ctx, c, object, parent)
	if err != nil {
		return object, selected, nil, err
	}
	client, err := New(c, object)
	return object, selected, client, err
}

// Named returns an error if an argument that is to name a parent is empty, as a variable is that is not set: it would mean all of a namespace.
func Named(argument string) error {
	if argument == "" {
		return errors.New("the name of the parent is empty: write NAMESPACE/NAME, or NAME, or leave it out")
	}
	return nil
}

// Of reads which parents of a controller a command is about. The argument is NAMESPACE/NAME, NAME for one in the namespace of the command or, if
// there is none, one that is cluster-scoped, or empty.
func (f *Flags) Of(ctx context.Context, c *connection.Connection, object controllerobject.Object, argument string) (Selected, error) {
	s := Selected{ParentSelection: v1alpha1.ParentSelection{Resource: f.resource}, selector: f.selector}
	if f.selector != "" {
		var err error
		if s.LabelSelector, err = parseSelector(f.selector); err != nil {
			return s, fmt.Errorf("--selector: %w: write it as kubectl takes it, such as app=web,tier!=cache", err)
		}
	}
	if argument != "" && (f.all || f.selector != "") {
		return s, errors.New("name a parent, or select parents with --selector or --all, not both")
	}
	namespace, name, slash := strings.Cut(argument, "/")
	switch {
	case !slash:
		name = argument
	case namespace == "" || name == "" || strings.Contains(name, "/"): // An empty namespace would mean all.
		return s, fmt.Errorf("%q names no parent: write NAMESPACE/NAME, or NAME", argument)
	}
	s.Name = name
	if slash {
		s.Namespace = namespace
		return s, nil
	}
	if f.all {
		return s, nil
	}
	at := scopeOf(c, object, f.resource)
	if !at.inNamespaces() {
		return s, nil
	}
	var err error
	if s.Namespace, err = c.Namespace(); err != nil || name == "" || len(at.clusterScoped) == 0 {
		return s, err
	}
	// A selection is of one namespace or of all, so that which of both is meant has to be known.
	client, err := c.Objects()
	if err != nil {
		return s, err
	}
	outside, err := at.outside(ctx, client, s.Namespace, name)
	if outside != "" {
		s.Resource, s.Namespace = outside, ""
	}
	return s, err
}

// operators are those of selectors by labels, as kubectl takes them, in the API. It has none of numbers.
var operators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
	selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// parseSelector reads a selector by labels, with != as well, which metav1.ParseToLabelSelector does not know.
func parseSelector(text string) (*metav1.LabelSelector, error) {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil, err
	}
	parsed := &metav1.LabelSelector{}
	for _, r := range requirements {
		operator, ok := operators[r.Operator()]
		if !ok {
			return nil, fmt.Errorf("%q compares numbers, which the API does not", r.String())
		}
		parsed.MatchExpressions = append(parsed.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: r.Key(), Operator: operator, Values: r.Values().List(),
		})
	}
	return parsed, nil
}
