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
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// sizes estimates the sizes of values from the limits in schemas.
type sizes struct {
	// names are the variables that expressions may use.
	names []string
	roots map[string]shape
	// groups are the variables whose fields are lists of objects: children and related.
	groups map[string]map[string]shape
}

// EstimateSize implements [checker.CostEstimator].
func (s *sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Min: 0, Max: s.most(node.Path(), node.Type())}
}

// EstimateCallCost implements [checker.CostEstimator].
func (*sizes) EstimateCallCost(_, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate { //nolint:gocritic // The interface has it.
	return nil
}

func (s *sizes) most(path []string, t *types.Type) uint64 {
	if len(path) > 1 {
		if group, ok := s.groups[path[0]]; ok {
			if len(path) == 2 {
				return assumedObjects
			}
			return limit(walk(group[path[1]], path[3:]), t)
		}
	}
	if len(path) > 0 {
		if root, ok := s.roots[path[0]]; ok {
			return limit(walk(root, path[1:]), t)
		}
	}
	return limit(shape{}, t)
}

// estimateRange is that of lists.range, of which nothing is known when its argument is no literal.
func estimateRange(_ checker.CostEstimator, _ *checker.AstNode, args []checker.AstNode) *checker.CallEstimate { //nolint:gocritic // CEL has it.
	size := checker.SizeEstimate{Min: 0, Max: assumedElements}
	if len(args) == 1 && args[0].Expr().Kind() == ast.LiteralKind {
		if n, ok := args[0].Expr().AsLiteral().(types.Int); ok && n >= 0 {
			size = checker.FixedSizeEstimate(uint64(n))
		}
	}
	return &checker.CallEstimate{CostEstimate: size.AsCost(), ResultSize: &size}
}

// estimatePairs are those of functions that compare each two elements of a list, and return a list that is as long. CEL takes the number of pairs
// for the length of the result, so that nothing can be done with it.
func estimatePairs() []checker.CostOption {
	estimate := func(e checker.CostEstimator, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
		switch {
		case len(args) > 0: // What a list is sorted by.
			target = &args[0]
		case target == nil:
			return nil
		}
		size := (*target).ComputedSize()
		if size == nil {
			size = e.EstimateSize(*target)
		}
		if size == nil {
			return nil
		}
		const comparison = 2 + common.StringTraversalCostFactor
		return &checker.CallEstimate{CostEstimate: size.Multiply(*size).MultiplyByCostFactor(comparison), ResultSize: size}
	}
	options := []checker.CostOption{checker.OverloadCostEstimate("list_distinct", estimate)}
	for _, t := range []*types.Type{
		types.IntType, types.UintType, types.DoubleType, types.BoolType, types.DurationType, types.TimestampType, types.StringType, types.BytesType,
	} {
		for _, function := range []string{"sort", "sortByAssociatedKeys"} {
			options = append(options, checker.OverloadCostEstimate("list_"+t.TypeName()+"_"+function, estimate))
		}
	}
	return options
}

// walk follows a path of fields and elements in a schema.
func walk(s shape, path []string) shape {
	for _, step := range path {
		switch step {
		case "@items":
			s = s.items()
		case "@values":
			s = s.values()
		case "@keys":
			return shape{}
		default:
			s = s.property(step)
		}
	}
	return s
}

// limit is the size that a value may have.
func limit(s shape, t *types.Type) uint64 {
	var most *int64
	switch s.class() {
	case list:
		most = s.schema.MaxItems
	case mapping:
		most = s.schema.MaxProperties
	case text, union:
		most = s.schema.MaxLength
	default:
	}
	if most != nil && *most >= 0 {
		return uint64(*most)
	}
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.DurationKind, types.TimestampKind, types.NullTypeKind:
		return 1
	case types.StringKind, types.BytesKind:
		return assumedLength
	default:
		return assumedElements
	}
}
