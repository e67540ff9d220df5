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
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const (
	// room is what is left of the API server's limit of annotations for those that others add later: admission, controllers and people. Without
	// it their writes of the child would be refused.
	room = 4 << 10
	// maxAnnotations is how long the names and values of all annotations of a merged child may be, with our own record, in bytes.
	maxAnnotations = validation.TotalAnnotationSizeLimitB - room
)

// recordFits reports whether the text of what is applied has room in an annotation of a child, beside the annotations that are desired and those
// that others have set on it. O is the child as it is, nil if it is not there. The answer does not depend on who merges the child now.
func recordFits(text string, content map[string]any, o *object.Object) bool {
	var raw []byte
	if o != nil {
		raw = o.RawAnnotations()
	}
	// What is desired is in the text, and JSON is no shorter than what it stands for.
	size := len(merge.Annotation) + len(text)
	if size+len(text)+len(raw) <= maxAnnotations {
		return true
	}
	desired := annotationsOf(content)
	for name, value := range desired {
		value, _ := value.(string)
		size += len(name) + len(value)
	}
	if len(raw) > 0 {
		observed := o.Annotations()
		before := annotationsOf(merge.Decode(observed[merge.Annotation]))
		for name, value := range observed {
			_, ours := desired[name]
			if _, dropped := before[name]; !ours && !dropped && name != merge.Annotation {
				size += len(name) + len(value)
			}
		}
	}
	return size <= maxAnnotations
}

func annotationsOf(content map[string]any) map[string]any {
	metadata, _ := content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return annotations
}

// surelyFits reports whether recordFits is known without the text.
func surelyFits(content map[string]any, o *object.Object) bool {
	// The text may have a namespace that the content has not.
	longest := longestJSON(content) + len(o.Namespace())
	return len(merge.Annotation)+2*longest+len(o.RawAnnotations()) <= maxAnnotations
}

const (
	// longestNumber and longestEscape are how long a number and what stands for a byte may be in JSON.
	longestNumber = 32
	longestEscape = len(`\u0000`)
)

// longestJSON returns a length that the JSON of a decoded value does not exceed.
func longestJSON(value any) int {
	size := longestNumber
	switch value := value.(type) {
	case string:
		size += longestText(value)
	case map[string]any:
		for name, field := range value {
			size += longestNumber + longestText(name) + longestJSON(field)
		}
	case []any:
		for _, item := range value {
			size += longestJSON(item)
		}
	}
	return size
}

// longestText is longestJSON for a text without its quotes.
func longestText(text string) int {
	size := len(text)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			size += longestEscape
		}
	}
	return size
}
