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

package inline

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// Compile checks the inline hooks of a controller, and returns the programs of those that are right. What cannot be checked, because a
// kind is not served or has no schema, is a warning. Compile again when that changes.
func Compile(d Definition, schemas Schemas) (programs map[hook.Name]*Program, warnings []string, errs field.ErrorList) {
	k := d.kinds(schemas)
	programs = map[hook.Name]*Program{}
	for _, h := range []struct {
		name hook.Name
		hook *v1alpha1.Hook
	}{{hook.Customize, d.Customize}, {hook.Sync, d.Sync}, {hook.Finalize, d.Finalize}} {
		if h.hook == nil || h.hook.Inline == nil {
			continue
		}
		program, wrong := compileHook(k, h.name, h.hook.Inline)
		errs = append(errs, wrong...)
		if len(wrong) == 0 {
			programs[h.name] = program
		}
	}
	return programs, k.warnings, errs
}

// hookCompiler compiles one hook.
type hookCompiler struct {
	compiler

	*kinds
	name    hook.Name
	inline  *v1alpha1.InlineHook
	path    *field.Path
	env     *cel.Env
	program *Program
	// variables are the types of those that are compiled.
	variables map[string]*cel.Type
}

func compileHook(k *kinds, name hook.Name, inline *v1alpha1.InlineHook) (*Program, field.ErrorList) {
	h := &hookCompiler{
		kinds: k, name: name, inline: inline, path: field.NewPath("spec", "hooks", string(name), "inline"), variables: map[string]*cel.Type{},
		program: &Program{name: name, decorator: k.Decorator, openRelated: k.openRelated, children: typeKeys(k.children), related: typeKeys(k.related)},
	}
	if err := h.environment(); err != nil {
		return nil, field.ErrorList{field.InternalError(h.path, err)}
	}
	h.compileVariables()
	switch {
	case name == hook.Customize:
		h.program.rules = h.templates(inline.RelatedResources, h.path.Child("relatedResources"), h.rule)
	case k.Decorator:
		h.program.templates = h.templates(inline.Attachments, h.path.Child("attachments"), h.child)
	default:
		h.program.templates = h.templates(inline.Children, h.path.Child("children"), h.child)
	}
	if name != hook.Customize {
		h.rest()
	}
	h.program.readsStatus = h.readsStatus
	h.registry.objects = nil // Schemas are large, and programs do not need them.
	return h.program, h.errs[:min(len(h.errs), maxErrors)]
}

// typeKeys are the keys by which requests have the objects of kinds.
func typeKeys(kinds map[string]*Kind) map[string]string {
	keys := make(map[string]string, len(kinds))
	for name, kind := range kinds {
		keys[name] = ""
		if kind != nil {
			keys[name] = hook.TypeKey(kind.APIVersion, kind.Name)
		}
	}
	return keys
}

// variableNames are the names of the variables for the parent and its children, in each hook of a controller.
func variableNames(decorator bool) (parent, children string) {
	if decorator {
		return "object", "attachments"
	}
	return "parent", "children"
}

// environment declares the variables.
func (h *hookCompiler) environment() error {
	base, err := baseEnvironment()
	if err != nil {
		return err
	}
	h.registry = newRegistry(base.CELTypeProvider())
	controller := shapeOf(someObject)
	controller.path = "controller"
	parentName, childrenName := variableNames(h.Decorator)
	h.parentName = parentName
	h.sizes = &sizes{roots: map[string]shape{parentName: h.parent}, groups: map[string]map[string]shape{}}
	variables := map[string]*cel.Type{
		parentName:   h.registry.celType(h.parent),
		"controller": h.registry.celType(controller),
		"variables":  h.registry.record("variables", h.variables),
	}
	options := []cel.EnvOption{cel.CustomTypeProvider(h.registry)}
	if h.name != hook.Customize {
		variables[childrenName] = h.group(childrenName, h.children, &options)
		variables["related"] = cel.MapType(cel.StringType, cel.DynType)
		if !h.openRelated {
			variables["related"] = h.group("related", h.related, &options)
		}
	}
	h.sizes.names = slices.Sorted(maps.Keys(variables))
	for _, name := range h.sizes.names {
		options = append(options, cel.Variable(name, variables[name]))
	}
	h.env, err = base.Extend(options...)
	return err
}

// group returns the type of an object with a list of objects for each kind, which can be looked up by key, too.
func (h *hookCompiler) group(name string, kinds map[string]*Kind, options *[]cel.EnvOption) *cel.Type {
	fields, shapes := map[string]*cel.Type{}, map[string]shape{}
	for _, resource := range slices.Sorted(maps.Keys(kinds)) {
		s := shapeOf(kinds[resource])
		t := h.registry.celType(s)
		fields[resource], shapes[resource] = cel.ListType(t), s
		if t.Kind() != types.StructKind {
			fields[resource] = cel.DynType
			continue
		}
		id := "by_key_" + t.TypeName() // A kind may be among children and related objects.
		*options = append(*options,
			cel.Function(operators.Index, cel.Overload(id, []*cel.Type{fields[resource], cel.StringType}, t)),
			cel.Function(operators.OptIndex, cel.Overload(id+"_optional", []*cel.Type{fields[resource], cel.StringType}, cel.OptionalType(t))))
	}
	h.sizes.groups[name] = shapes
	return h.registry.record(name, fields)
}

var identifier = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*$`)

// reserved are the words and types of CEL, which cannot be names of variables.
var reserved = []string{
	"bool", "bytes", "double", "duration", "dyn", "int", "list", "map", typeString, "timestamp", "type", "uint",
	"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop", "namespace", "null", "package",
	"return", "true", "var", "void", "while",
}

// nameable checks the name of a variable or an iterator.
func (h *hookCompiler) nameable(name string, path *field.Path, taken []string) bool {
	switch {
	case !identifier.MatchString(name):
		h.failf(path, name, "must be a letter, followed by letters and digits")
	case slices.Contains(reserved, name):
		h.failf(path, name, "is a word of CEL")
	case slices.Contains(taken, name):
		h.errs = append(h.errs, field.Duplicate(path, name))
	default:
		return true
	}
	return false
}

func (h *hookCompiler) compileVariables() {
	list, path := h.inline.Variables, h.path.Child("variables")
	if len(list) > maxVariables {
		h.errs = append(h.errs, field.TooMany(path, len(list), maxVariables))
		return
	}
	h.later = map[string]bool{}
	for i := range list {
		h.later[list[i].Name] = true
	}
	var taken []string
	for i := range list {
		name, at := list[i].Name, path.Index(i)
		named := h.nameable(name, at.Child("name"), taken)
		taken = append(taken, name)
		e := h.compile(h.env, at.Child("expression"), bare(list[i].Expression))
		delete(h.later, name)
		if e != nil {
			e = h.plan(h.env, at.Child("expression"), e)
		}
		if named {
			h.variables[name] = cel.DynType // What uses a wrong variable is not wrong for that.
			if e != nil {
				h.variables[name] = e.out
			}
		}
		h.program.variables = append(h.program.variables, variable{name: name, e: e})
	}
}

// condition compiles an expression that yields one of some types.
func (h *hookCompiler) condition(env *cel.Env, source string, path *field.Path, wants string, kinds ...types.Kind) *expression {
	e := h.compile(env, path, source)
	if e == nil {
		return nil
	}
	if kind := e.out.Kind(); kind != types.DynKind && !slices.Contains(kinds, kind) {
		h.failf(path, source, "yields %s, %s wants %s%s", typeName(e.out), lastOf(path), wants, position(1, 1))
		return nil
	}
	return h.plan(env, path, e)
}

// lastOf is the last name of a path.
func lastOf(path *field.Path) string {
	whole := path.String()
	return whole[strings.LastIndex(whole, ".")+1:]
}

// templates compiles a list of templates.
func (h *hookCompiler) templates(list []v1alpha1.InlineTemplate, path *field.Path, target templateTarget) []template {
	if len(list) > maxTemplates {
		h.errs = append(h.errs, field.TooMany(path, len(list), maxTemplates))
		return nil
	}
	compiled := make([]template, 0, len(list))
	for i := range list {
		compiled = append(compiled, h.template(&list[i], path.Index(i), target))
	}
	return compiled
}

// templateTarget checks the whole of a template, and says of what shape it is, and who wants it.
type templateTarget func(tree map[string]any, path *field.Path) (s shape, wanter string, ok bool)

func (h *hookCompiler) template(source *v1alpha1.InlineTemplate, path *field.Path, target templateTarget) template {
	t := template{path: path.String()}
	if source.When != nil {
		t.when = h.condition(h.env, bare(*source.When), path.Child("when"), "boolean", types.BoolKind)
	}
	env, ok := h.iterators(&t, source.ForEach, path.Child("forEach"))
	if !ok {
		return t
	}
	at := path.Child("template")
	tree, ok := h.parse(source.Template.Raw, at)
	if !ok {
		return t
	}
	if s, wanter, ok := target(tree, at); ok {
		t.node = (&templating{compiler: &h.compiler, env: env, wanter: wanter}).node(tree, s, at, 0)
	}
	return t
}

// iterators compiles the iterators of a template, and returns the environment that has their elements.
func (h *hookCompiler) iterators(t *template, list []v1alpha1.InlineIterator, path *field.Path) (*cel.Env, bool) {
	if len(list) > maxIterators {
		h.errs = append(h.errs, field.TooMany(path, len(list), maxIterators))
		return nil, false
	}
	env, taken, sound := h.env, slices.Clone(h.sizes.names), true
	for i := range list {
		at := path.Index(i)
		named := h.nameable(list[i].Name, at.Child("name"), taken)
		taken = append(taken, list[i].Name)
		e := h.condition(env, bare(list[i].In), at.Child("in"), "list; of a map, use the list of its keys", types.ListKind)
		if e == nil || !named {
			sound = false
			continue
		}
		element := cel.DynType
		if e.out.Kind() == types.ListKind {
			element = e.out.Parameters()[0]
		}
		extended, err := env.Extend(cel.Variable(list[i].Name, element))
		if err != nil {
			h.errs = append(h.errs, field.InternalError(at, err))
			return nil, false
		}
		env = extended
		t.iterators = append(t.iterators, iterator{name: list[i].Name, in: e})
	}
	return env, sound
}

// child finds the kind of a template of a child.
func (h *hookCompiler) child(tree map[string]any, path *field.Path) (s shape, wanter string, ok bool) {
	apiVersion, ok1 := literalString(tree, apiVersionField)
	name, ok2 := literalString(tree, kindField)
	for _, each := range []struct {
		name string
		ok   bool
	}{{apiVersionField, ok1}, {kindField, ok2}} {
		if !each.ok {
			h.errs = append(h.errs, field.Required(path.Child(each.name), "as a literal: the template is checked against its kind"))
		}
	}
	if metadata, isMap := tree[metadataField].(map[string]any); isMap && metadata["name"] == nil || tree[metadataField] == nil {
		h.errs = append(h.errs, field.Required(path.Child(metadataField, "name"), "each child needs a name"))
	}
	if !ok1 || !ok2 {
		return shape{}, "", false
	}
	var known []string
	for _, kind := range h.children {
		switch {
		case kind == nil:
		case kind.APIVersion == apiVersion && kind.Name == name:
			return shapeOf(kind), name, true
		default:
			known = append(known, kind.Name+" of "+kind.APIVersion)
		}
	}
	if slices.ContainsFunc(h.unknown, func(rule v1alpha1.ResourceRule) bool { return rule.APIVersion == apiVersion }) {
		return shapeOf(someObject), name, true
	}
	slices.Sort(known)
	where := "spec.childResources"
	if h.Decorator {
		where = "spec.attachments"
	}
	h.failf(path.Child(kindField), name, "%s of %s is not in %s, which has %s", name, apiVersion, where, cmp.Or(strings.Join(known, ", "), "nothing"))
	return shape{}, "", false
}

// rule checks a template of a rule for related objects.
func (h *hookCompiler) rule(tree map[string]any, path *field.Path) (s shape, wanter string, ok bool) {
	ok = true
	for _, name := range []string{apiVersionField, "resource"} {
		if _, isLiteral := literalString(tree, name); !isLiteral {
			h.errs = append(h.errs, field.Required(path.Child(name), "as a literal: the sync hook is checked against the kind of related objects"))
			ok = false
		}
	}
	return shapeOf(ruleKind), "a rule", ok
}

// rest compiles what a response has besides children.
func (h *hookCompiler) rest() {
	h.program.labels = h.texts(h.inline.Labels, h.path.Child("labels"))
	h.program.annotations = h.texts(h.inline.Annotations, h.path.Child("annotations"))
	h.status()
	if r := h.inline.ResyncAfterSeconds; r != nil {
		path := h.path.Child("resyncAfterSeconds")
		if r.Type == intstr.Int {
			h.program.resyncAfter = literal{int64(r.IntVal)}
		} else if e := h.condition(h.env, bare(r.StrVal), path, "number", types.IntKind, types.UintKind, types.DoubleKind); e != nil {
			h.program.resyncAfter = computed{e}
		}
	}
	h.program.finalized = h.flag(h.inline.Finalized, h.path.Child("finalized"))
	h.program.remove = h.flag(h.inline.Delete, h.path.Child("delete"))
}

func (h *hookCompiler) flag(source *string, path *field.Path) node {
	if source == nil {
		return nil
	}
	if e := h.condition(h.env, bare(*source), path, "boolean", types.BoolKind); e != nil {
		return computed{e}
	}
	return nil
}

func (h *hookCompiler) status() {
	if h.inline.Status == nil {
		return
	}
	path := h.path.Child("status")
	tree, ok := h.parse(h.inline.Status.Raw, path)
	if !ok {
		return
	}
	s, ok := h.parent.field("status")
	if !ok {
		h.failf(path, "", "%s has no status", h.parent.path)
		return
	}
	h.program.status = (&templating{compiler: &h.compiler, env: h.env, wanter: h.parent.path}).node(tree, s, path, 0)
}

// texts compiles labels or annotations.
func (h *hookCompiler) texts(values map[string]string, path *field.Path) node {
	if len(values) == 0 {
		return nil
	}
	tree := make(map[string]any, len(values))
	for name, value := range values {
		tree[name] = value
	}
	s := shapeOf(someObject).property(metadataField).property("labels")
	return (&templating{compiler: &h.compiler, env: h.env, wanter: lastOf(path)}).node(tree, s, path, 0)
}
