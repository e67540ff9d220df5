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

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/pause"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/tree"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// errReadOnly is what actions end with where none is offered.
var errReadOnly = errors.New("this dashboard offers no actions: it was started with --read-only")

// task is an action on a controller, or on one of its parents.
type task struct {
	s       *server
	action  string
	object  controllerobject.Object
	client  *subresource.Client
	parent  v1alpha1.ParentReference
	single  bool
	version string
}

// actionView is what is said of an action, before it and after it.
type actionView struct {
	Query       url.Values
	Title, Verb string
	// Says are sentences about what it does, or what it did, and Changes the fields that a rollback writes.
	Says    []string
	Changes []fieldChange
	// Version is that of the parent for which the changes were worked out.
	Version string
	// Command does the same in a terminal.
	Command, Back string
	Done          bool
}

// fieldChange is a field with its values as JSON.
type fieldChange struct{ Path, Before, After string }

// target is what the action is about, in words.
func (t *task) target() string {
	if t.single {
		return subresource.NameOf(t.parent)
	}
	return t.object.Kind() + " " + t.object.Name()
}

// taskOf reads which action is meant.
func (s *server) taskOf(ctx context.Context, q url.Values) (*task, error) {
	t := &task{s: s, action: q.Get("action"), single: q.Has("name"), version: q.Get("version")}
	if s.readOnly {
		return t, errReadOnly
	}
	var err error
	if t.single {
		t.object, t.parent, t.client, err = s.open(ctx, q)
	} else if t.object, err = s.c.Find(ctx, q.Get("c")); err == nil {
		t.client, err = subresource.New(s.c, t.object)
	}
	if known := words[t.action]; err == nil && (known.title == "" || t.action == "rollback" && !t.single) {
		err = fmt.Errorf("there is no action %q here", t.action)
	}
	return t, err
}

// words are what is said of actions.
var words = map[string]struct{ title, all, one, doneAll, doneOne string }{
	"resync": {
		"Sync now", "Every parent that you may get is synced now: its hook is called, and what differs from the response is written.",
		"It is synced now: the hook is called, and what differs from the response is written.", "", "",
	},
	"pause": {
		"Pause", "No hook is called and nothing is written for any of its parents, until it is resumed. Caches stay filled. It sets spec.paused.",
		"No controller calls a hook about it, and none writes it or its children, until it is resumed. It sets the annotation " + v1alpha1.AnnotationPaused + ".",
		"No hook is called and nothing is written once the condition Paused is True.", "No controller calls a hook about it, and none writes it or its children.",
	},
	"resume": {
		"Resume", "What changed meanwhile is synced first, then every other parent.", "It is synced at once.",
		"What changed meanwhile is synced first, then every other parent.", "It is synced now.",
	},
	"rollback": {
		"Roll back", "", "These fields of the parent are written back. The children follow one by one, as in every rolling update. " +
			"Whoever applies the parent from elsewhere, such as from Git, writes the later fields again.", "", "Its children follow by the rules of the update.",
	},
}

// begin makes the page of an action.
func (t *task) begin(q url.Values) (*page, *actionView) {
	v := &actionView{Query: q, Verb: words[t.action].title, Title: words[t.action].title + ": " + t.target(), Back: link("/controller", "c", t.object.Argument())}
	p := &page{Title: v.Title, Up: []crumb{{home, "/"}, {t.object.Kind() + " " + t.object.Name(), v.Back}}}
	if t.single {
		v.Back = parentLink("/parent", t.object.Argument(), t.parent)
		p = parentPage(t.object, t.parent, v.Title)
	}
	v.Command = t.command()
	return p, v
}

// command is that of the plugin which does the same.
func (t *task) command() string {
	text := connection.Program + " " + t.action + " "
	switch {
	case t.action == "resync" && !t.single:
		return text + t.object.Argument() + " --all"
	case !t.single:
		return text + t.object.Argument()
	case t.action == "pause" || t.action == "resume":
		return text + subresource.NameOf(t.parent)
	}
	return text + t.object.Argument() + " " + t.parent.FullName()
}

// confirm is the page that says what an action will do, and asks for it.
func (s *server) confirm(ctx context.Context, q url.Values) *page {
	t, err := s.taskOf(ctx, q)
	if err != nil {
		return failed("Action", err)
	}
	p, v := t.begin(q)
	v.Says = []string{words[t.action].all}
	if t.single {
		v.Says = []string{words[t.action].one}
	}
	if t.action == "rollback" {
		err = t.rollback(ctx, v, true)
	}
	p.Parts = []part{{ID: "action", Template: "action", Data: v, Problem: err}}
	return p
}

// act does what was asked for, and says so.
func (s *server) act(ctx context.Context, q url.Values) *page {
	t, err := s.taskOf(ctx, q)
	if err != nil {
		return failed("Action", err)
	}
	p, v := t.begin(q)
	v.Done = true
	v.Says = []string{words[t.action].doneAll}
	if t.single {
		v.Says = []string{words[t.action].doneOne}
	}
	switch t.action {
	case "resync":
		err = t.resync(ctx, v)
	case "rollback":
		err = t.rollback(ctx, v, false)
	default:
		if err = t.pause(ctx, t.action == "pause"); err == nil {
			v.Says = append([]string{t.target() + " is " + map[bool]string{true: "paused", false: "resumed"}[t.action == "pause"] + "."}, v.Says...)
		}
	}
	p.Parts = []part{{ID: "action", Template: "action", Data: v, Problem: err}}
	return p
}

func (t *task) pause(ctx context.Context, paused bool) error {
	if t.single {
		return pause.Parent(ctx, t.s.c, []string{subresource.NameOf(t.parent)}, paused)
	}
	return pause.Controller(ctx, t.s.c, t.object.Argument(), paused)
}

func (t *task) resync(ctx context.Context, v *actionView) error {
	var selected *v1alpha1.ParentSelection
	if t.single {
		selected = &v1alpha1.ParentSelection{Resource: t.parent.GroupResource().String(), Namespace: t.parent.Namespace, Name: t.parent.Name}
	}
	done, err := t.client.Resync(ctx, selected)
	if err != nil {
		return err
	}
	v.Says = []string{outputformat.Count(done.Status.Parents, "parent is", "parents are") + " in the queue."}
	if done.Status.Hidden > 0 {
		v.Says = append(v.Says, subresource.Hidden(done.Status.Hidden))
	}
	return nil
}

// rollback writes the fields of the previous revision, or says which they are. What was confirmed is written and nothing else: the parent must not
// have changed meanwhile.
func (t *task) rollback(ctx context.Context, v *actionView, dryRun bool) error {
	if t.object.Composite == nil {
		return errors.New("parents of DecoratorControllers have no revisions")
	}
	spec := v1alpha1.ControllerRollbackSpec{Namespace: t.parent.Namespace, Name: t.parent.Name, Revision: v1alpha1.RevisionPrevious}
	if !dryRun {
		spec.Revision, spec.ResourceVersion = v.Query.Get("revision"), t.version
	}
	done, err := t.client.Rollback(ctx, spec, dryRun)
	if err != nil {
		return err
	}
	if len(done.Changes) == 0 {
		return fmt.Errorf("%s has the fields of revision %s already", t.target(), done.Revision)
	}
	is := map[bool]string{true: "It would be", false: "It is"}[dryRun]
	v.Says = append([]string{fmt.Sprintf("%s rolled back from revision %s to %s.", is, tree.Short(done.From), tree.Short(done.Revision))}, v.Says...)
	for _, c := range done.Changes {
		v.Changes = append(v.Changes, fieldChange{c.Path, ptr.Deref(c.Observed, "absent"), ptr.Deref(c.Desired, "absent")})
	}
	v.Version = done.ResourceVersion
	v.Query.Set("revision", done.Revision)
	return nil
}
