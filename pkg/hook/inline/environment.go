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
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// libraries are those of Kubernetes' CEL environments that need neither a user nor a clock, base64, and the merging of maps. A map or a list may have values
// of several types, which Kubernetes' own environments refuse: templates are made of such maps.
func libraries() []cel.EnvOption {
	mapOfAny := cel.MapType(cel.TypeParamType("K"), cel.TypeParamType("V"))
	return []cel.EnvOption{
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableIdentifierEscapeSyntax(),
		cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
		cel.ParserRecursionLimit(maxNesting),
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
		library.URLs(), library.Regex(), library.Quantity(), library.IP(), library.CIDR(), library.Format(),
		library.SemverLib(library.SemverVersion(1)),
		library.Lists(library.ListsVersion(1)),
		ext.Strings(ext.StringsVersion(2), ext.StringsMaxPrecision(maxPrecision)),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		ext.Lists(ext.ListsVersion(3), ext.ListsMaxRangeSize(maxElements)),
		ext.Encoders(),
		cel.Function("merge", cel.MemberOverload("map_merge", []*cel.Type{mapOfAny, mapOfAny}, mapOfAny, cel.BinaryBinding(merge))),
		cel.CostEstimatorOptions(append(estimatePairs(), checker.OverloadCostEstimate("lists_range", estimateRange))...),
	}
}

// baseEnvironment has the libraries, without variables. It is made once, since making it is expensive.
var baseEnvironment = sync.OnceValues(func() (*cel.Env, error) { //nolint:gochecknoglobals // It does not change.
	env, err := cel.NewEnv(libraries()...)
	if err != nil {
		return nil, fmt.Errorf("making the CEL environment: %w", err)
	}
	guards, err := guardFunctions(env)
	if err != nil {
		return nil, fmt.Errorf("guarding the functions of the CEL environment: %w", err)
	}
	return env.Extend(append(guards, declareValueFunction())...)
})

// merge returns a map with the entries of two. Those of the first one win.
func merge(first, second ref.Val) ref.Val {
	a, ok1 := first.(traits.Mapper)
	b, ok2 := second.(traits.Mapper)
	if !ok1 || !ok2 {
		return types.NewErr("no such overload: merge")
	}
	merged := map[ref.Val]ref.Val{}
	for _, m := range []traits.Mapper{b, a} {
		for it := m.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			merged[key] = m.Get(key)
		}
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, merged)
}

// programOptions bound each evaluation.
func programOptions(c costs) []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostLimit(maxExpressionCost),
		cel.CostTracking(c),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
	}
}
