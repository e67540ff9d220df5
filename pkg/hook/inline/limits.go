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

// Limits of a definition. They are far above what people write, and keep what a hostile author writes from hurting others.
const (
	maxTemplates   = 256      // of a hook
	maxVariables   = 64       // of a hook
	maxIterators   = 8        // of a template
	maxExpressions = 1000     // of a hook
	maxExpression  = 8 << 10  // bytes
	maxSources     = 64 << 10 // bytes of all expressions of a hook, of which optMap and optFlatMap double each
	maxNodes       = 10_000   // values in the templates of a hook
	maxDepth       = 64       // of values within a template
	maxName        = 1024     // bytes of the name of a field, and of a key that is looked up
	maxErrors      = 50       // that are reported of a hook
	// maxRepetitions is how often a literal pattern may repeat with a count, and maxStates is what all literal patterns of a hook may have:
	// states are memory, and x{1000} has a thousand.
	maxRepetitions, maxStates = 10, 20_000
	// maxNesting is how deep the parts of an expression may be within each other.
	maxNesting = 50
	// maxCompared and maxCompareDepth are how far the schemas of two objects are compared. What is beyond may fit.
	maxCompared, maxCompareDepth = 10_000, 16
)

// Limits of costs, in the unit of Kubernetes' CEL: about 50 ns.
const (
	// maxEstimate is the cost that an expression may have with the largest values which the schemas allow.
	maxEstimate = 100_000_000
	// maxExpressionCost is what one evaluation of an expression may cost: about 0.1 s.
	maxExpressionCost = 1_000_000
	// evaluationCost is that of beginning an evaluation, which is more than that of a small expression.
	evaluationCost = 10
	// decodingCost is that of a value of an object which is decoded as a whole.
	decodingCost = 2
	// maxSyncCost is what all evaluations of one call may cost.
	maxSyncCost = 3_000_000
)

// Limits of values.
const (
	// assumedElements and assumedLength are the sizes that are assumed where a schema sets no limit.
	assumedElements, assumedLength = 200, 1000
	// assumedObjects is how many objects of one resource are assumed.
	assumedObjects = 1000
	// maxElements is the length of a list that an operation may make.
	maxElements = 100_000
	// maxText is the bytes of a text that an operation may make, which is what an object may have in all.
	maxText = 3 << 19
	// maxVersion and maxURL are the bytes of the texts of these.
	maxVersion, maxURL = 256, 8 << 10
	// maxPrecision is how many digits format may write.
	maxPrecision = 100
	// maxObjects is how many children a response may have.
	maxObjects = 10_000
	// maxResponseBytes is the size of a response, as for webhooks. A value counts for nodeBytes at least.
	maxResponseBytes, nodeBytes = 32 << 20, 64
)
