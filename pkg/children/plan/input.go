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

package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Input is what a plan is made from. All of it is facts: making a plan sends no request and changes nothing. Which of the last four
// facts are missing is what Missing says.
type Input struct {
	// Parent is the UID of the parent, and ParentName names it for people.
	Parent     types.UID
	ParentName string
	// Owner is the owner reference that new children get.
	Owner map[string]any
	// Rules are the declared kinds.
	Rules children.Rules
	// Observed are the children that the parent has, each once.
	Observed []*object.Object
	// Kept are children that the parent has, too, and that the plan does not deal with: their records stay.
	Kept []children.Key
	// Desired are the children that the hook wants.
	Desired []children.Desired
	// Manager is the field manager for the children of server-side rules.
	Manager string
	// Now is the time of the plan.
	Now time.Time
	// Records are what is remembered of the parent's children.
	Records Records
	// Comparing says that the input is for Unchanged: only what may turn its verdict is in doubt.
	Comparing bool
	// Insists says that several plans in a row were out of date when they were carried out: others change children faster than the hook responds.
	Insists bool

	// Epochs are those of schema and admission. They are read before anything is tried. A missing one is 0.
	Epochs map[schema.GroupKind]int64
	// Schemas are those of the kinds, nil for a kind that has none.
	Schemas map[schema.GroupVersionKind]merge.Schema
	// SchemaErrors say why the schema of a kind is not known. What is nil in Schemas without an error is known not to be there.
	SchemaErrors map[schema.GroupVersionKind]error
	// OtherVersions are children that the hook returned in another version than the one in which they are observed. One that is
	// missing is written in the version in which it is observed.
	OtherVersions map[children.Key]Reading
	// Trials are what came of dry runs.
	Trials map[children.Key]Trial
	// Compared are the children that Unchanged found to differ, and of which the API server was asked for that. It adds to them, if they are
	// not nil. Kept as records, they spare that in the syncs that follow: a rolling update has many, and moves few of them in each.
	Compared map[children.Key]Compared
}

// Reading is a child as it was read from the API server.
type Reading struct {
	// Object is the child, nil if it is gone.
	Object *object.Object
	// Err says why it could not be read.
	Err error
}

// Trial is what the API server would make of a child (a dry run).
type Trial struct {
	// Desired is the hash of the desired state that was tried. The trial counts for no other.
	Desired Hash
	// Result is the object that the API server would store, nil if the dry run is not possible or all of it is refused.
	Result *object.Object
	// Whole is the object with its managedFields, where a step has to change those: Result, or the object as it is.
	Whole *object.Object
	// Refused are the places of the changes that the API server refuses as invalid, and that were not tried therefore.
	Refused []string
	// Fresh is what the API server would make of a new child, where that was to be tried too: nil if it is refused as invalid, which
	// FreshRefused says, or cannot be tried. FreshTried says that it was to be tried.
	Fresh                    *object.Object
	FreshTried, FreshRefused bool
	// Stored is the child as it was read beside Fresh, nil if it was not. An informer may show it as it was before its definition changed:
	// without a field that is not declared then, under the same version.
	Stored *object.Object
	// Stale says that the child changed or went after it was observed, and Cause is what the API server said.
	Stale bool
	Cause error
	// Err says why it could not be tried.
	Err error
}

// updated reports whether the API server said what it would make of an update.
func (t Trial) updated() bool { return t.Result != nil || len(t.Refused) > 0 }

// Reads are the facts that a plan needs and does not have.
type Reads struct {
	// Schemas are the kinds whose schemas are missing.
	Schemas []schema.GroupVersionKind
	// Versions are the children to be read in another version.
	Versions []Version
	// Doubts are the children that need a trial before anything is done with them. They are known only when
	// the others are there.
	Doubts []Doubt
}

// Version is a child in a version.
type Version struct {
	children.Key
	// Resource is the child's resource in that version.
	Resource schema.GroupVersionResource
}

// Doubt is a child that differs, where it is not known whether the API server, or a change, is the reason: nothing is known of
// what it made of the values that were sent, as after a restart, or what is known may have changed since.
type Doubt struct {
	// Step is the child, where it is tried and by which manager.
	Step
	// Desired is the hash of the desired state.
	Desired Hash
	// Whole says that the result is needed with its managedFields.
	Whole bool
	// Fresh says that the creation of a child is to be tried: an update would change the one that is there, which for Recreate
	// means to delete it. Admission may do to new objects what it does not do to existing ones, and a new child would be the
	// same.
	Fresh bool
	// Insists says that an update is tried over the child as it is then, if others have changed it since.
	Insists bool
	// Read says that the child is to be read as well, since it would be deleted otherwise.
	Read bool
	// Paths are the places of the differences.
	Paths []string
	// Body returns the body of the dry run with the differences at some of Paths.
	Body func(paths []string) ([]byte, error)
}

// Missing returns the facts that are needed to make a plan from in and are not there.
func Missing(in Input) Reads {
	var missing Reads
	listed := map[schema.GroupVersionKind]bool{}
	observed := children.ByKey(in.Observed)
	wanted := slices.DeleteFunc(slices.Clone(in.Desired), func(d children.Desired) bool { return in.differs(d, observed[d.Key]) })
	for _, d := range wanted {
		kind := kindOf(d)
		if _, known := in.Schemas[kind]; !known && !listed[kind] {
			listed[kind] = true
			missing.Schemas = append(missing.Schemas, kind)
		}
		if version, ok := in.otherVersion(d, observed[d.Key]); ok {
			missing.Versions = append(missing.Versions, version)
		}
	}
	if len(missing.Schemas)+len(missing.Versions) > 0 {
		return missing
	}
	for _, d := range wanted {
		if doubt := in.doubt(d, observed[d.Key]); doubt != nil {
			missing.Doubts = append(missing.Doubts, *doubt)
		}
	}
	return missing
}

// epoch returns that of schema and admission of a child. Lists are merged by guessing without a schema, so what is learnt then counts
// only as long as it is not known.
func (in *Input) epoch(d children.Desired) int64 {
	epoch := in.Epochs[d.GroupKind()]
	if in.SchemaErrors[kindOf(d)] != nil {
		return ^epoch
	}
	return epoch
}

// otherVersion returns the version in which a child has to be read.
func (in *Input) otherVersion(d children.Desired, o *object.Object) (Version, bool) {
	if o == nil || o.APIVersion() == d.APIVersion {
		return Version{}, false
	}
	if _, read := in.reading(d); read {
		return Version{}, false
	}
	c, err := in.child(d, o)
	if err != nil || c.needsNothing(o) {
		return Version{}, false
	}
	return Version{Key: d.Key, Resource: c.step.Resource}, true
}

// reading returns the child as it was read in the version of what is desired, false if it was not. During a rolling update the revisions of a
// parent may have it in several ones.
func (in *Input) reading(d children.Desired) (Reading, bool) {
	read, ok := in.OtherVersions[d.Key]
	if ok && read.Object != nil && read.Object.APIVersion() != d.APIVersion {
		return Reading{}, false
	}
	return read, ok
}

// doubt returns the doubt about a child, nil if there is none.
func (in *Input) doubt(d children.Desired, o *object.Object) *Doubt {
	if o == nil || o.Deleting() {
		return nil
	}
	rule, _ := in.Rules.For(d.GroupKind())
	if rule.Method == v1alpha1.ChildUpdateOnDelete || in.certain(d, o, rule) {
		return nil
	}
	c, err := in.child(d, o)
	if err != nil {
		return nil
	}
	if done, err := c.look(d, o); done || err != nil {
		return nil
	}
	f, err := c.compare(c.remembered())
	if err != nil || !c.doubts(f) {
		return nil
	}
	if _, waits := c.waits(); waits {
		return nil
	}
	if t, tried := in.Trials[d.Key]; tried && t.Desired == c.step.desired {
		return c.freshDoubt(f, t)
	}
	return &Doubt{
		Step: c.step, Desired: c.step.desired, Whole: f.migrate, Insists: in.Insists, Paths: paths(f.all()), Body: c.tryBody,
	}
}

// certain reports whether there can be no doubt about a child, whatever is desired of it. It works out no step.
func (in *Input) certain(d children.Desired, o *object.Object, rule children.Rule) bool {
	known := in.Records.Get(d.Key)
	if !known.Current(in.epoch(d), in.Now) && (!known.Held(o.ResourceVersion()) || len(known.Returned()) > 0) {
		return false
	}
	if !rule.ServerSide {
		return surelyFits(d.Content, o)
	}
	_, recorded := o.Annotation(merge.Annotation)
	migrates := recorded || len(in.former(o)) > 0
	return !migrates && (in.Comparing || rule.Force || !recreates(rule.Method))
}

// Unchanged reports whether applying d to o would change nothing but our own record of what was applied. The facts about d are
// needed as for Make. A child that cannot be merged counts as changed.
func (in *Input) Unchanged(d children.Desired, o *object.Object) bool {
	if in.differs(d, o) {
		return false
	}
	step, err := in.step(d, o)
	if err != nil {
		return false
	}
	if step.Action == Leave && step.Reason == Same || step.Action == Update && step.RecordOnly {
		return true
	}
	if asked := o.APIVersion() != d.APIVersion || in.Trials[d.Key].Desired == step.desired; asked && in.Compared != nil && step.Action != Leave {
		in.Compared[d.Key] = Compared{Desired: step.desired, Version: o.ResourceVersion()}
	}
	return false
}

// differs reports whether an input for Unchanged is about a child of which it is known that it differs.
func (in *Input) differs(d children.Desired, o *object.Object) bool {
	if !in.Comparing || o == nil || in.Records.Get(d.Key).more().Compared.Version != o.ResourceVersion() {
		return false
	}
	c, err := in.child(d, o)
	return err == nil && c.known.more().Compared.Desired == c.step.desired
}

// Applied returns what was desired of an observed child when its record was made, as the child itself has it. It has not if it is written
// by server-side apply, which keeps what is owned and not what was sent, nor if it is a Secret.
func (in *Input) Applied(o *object.Object) (d children.Desired, ok bool) {
	text, _ := o.Annotation(merge.Annotation)
	content := merge.Decode(text)
	version, _ := content["apiVersion"].(string)
	d = children.Desired{Key: children.KeyOf(o), APIVersion: version, Content: content}
	known := in.Records.Get(d.Key)
	if known == nil || version == "" {
		return d, false
	}
	c, err := in.child(d, o)
	return d, err == nil && c.step.desired == known.Desired
}

func kindOf(d children.Desired) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.APIVersion, d.Kind)
}

func recreates(method v1alpha1.ChildUpdateMethod) bool {
	return method == v1alpha1.ChildUpdateRecreate || method == v1alpha1.ChildUpdateRollingRecreate
}
