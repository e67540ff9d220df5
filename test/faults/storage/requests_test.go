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

package storage

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
)

// A malformed request is one that no server can serve.
type malformed struct {
	method, path, contentType string
	header                    map[string]string
	body                      []byte
}

const (
	asJSON  = "application/json"
	asMerge = "application/merge-patch+json"
	asPatch = "application/json-patch+json"
	asApply = "application/apply-patch+yaml"
	// existing is an object that requests are about.
	existing = path + "/malformed"
)

// generators make the kinds of malformed requests by their names.
func generators() map[string]func(r *rand.Rand) malformed {
	all := map[string]func(r *rand.Rand) malformed{}
	for name, body := range bodies() {
		all["create: "+name] = func(r *rand.Rand) malformed {
			return malformed{method: http.MethodPost, path: path, contentType: asJSON, body: body(r)}
		}
		all["replace: "+name] = func(r *rand.Rand) malformed {
			return malformed{method: http.MethodPut, path: existing, contentType: asJSON, body: body(r)}
		}
		if name == "no spec" || name == "a bad spec" {
			continue // Who applies need not say all.
		}
		all["apply: "+name] = func(r *rand.Rand) malformed {
			return malformed{method: http.MethodPatch, path: existing + "?fieldManager=test", contentType: asApply, body: body(r)}
		}
	}
	for name, body := range patches() {
		all["merge patch: "+name] = func(r *rand.Rand) malformed {
			return malformed{method: http.MethodPatch, path: existing, contentType: asMerge, body: body(r)}
		}
		all["JSON patch: "+name] = func(r *rand.Rand) malformed {
			return malformed{method: http.MethodPatch, path: existing, contentType: asPatch, body: body(r)}
		}
	}
	maps.Copy(all, oddities())
	return all
}

// bodies are no controllers.
func bodies() map[string]func(r *rand.Rand) []byte {
	text := func(s string) func(*rand.Rand) []byte { return func(*rand.Rand) []byte { return []byte(s) } }
	return map[string]func(r *rand.Rand) []byte{
		"nothing":         text(""),
		"noise":           noise,
		"a part of one":   func(r *rand.Rand) []byte { whole := valid(); return whole[:1+r.IntN(len(whole)-1)] },
		"a byte wrong":    spoiled,
		"a list":          text(`[{"kind":"CompositeController"}]`),
		"a string":        text(`"CompositeController"`),
		"another kind":    text(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"malformed"}}`),
		"another version": text(`{"apiVersion":"metacontroller.k8s.io/v9","kind":"CompositeController","metadata":{"name":"malformed"}}`),
		"no spec":         text(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"malformed"}}`),
		"a bad name": func(r *rand.Rand) []byte {
			return with("metadata", map[string]any{"name": "../" + strings.Repeat("X", r.IntN(400))})
		},
		"a bad spec": func(r *rand.Rand) []byte { return with("spec", []any{nil, 7, "x", []any{}, -1.5}[r.IntN(5)]) },
		"bad labels": text(strings.Replace(string(valid()), `"name":`, `"labels":{"a b c":"!"},"name":`, 1)),
		"deep JSON":  func(r *rand.Rand) []byte { n := 10_001 + r.IntN(20_000); return nested(n, `{"a":`, `1`, `}`) },
		"deep lists": func(r *rand.Rand) []byte { n := 10_001 + r.IntN(50_000); return nested(n, `[`, ``, `]`) },
		"deep spec": func(r *rand.Rand) []byte {
			return append(append([]byte(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","spec":`), nested(10_000+r.IntN(9_000), `{"spec":`, `1`, `}`)...), '}')
		},
		"a huge name":      func(*rand.Rand) []byte { return with("metadata", map[string]any{"name": strings.Repeat("x", 1<<20)}) },
		"huge":             func(r *rand.Rand) []byte { return with("spec", strings.Repeat("x", 2<<20+r.IntN(1<<20))) },
		"aliases in YAML":  func(*rand.Rand) []byte { return aliases() },
		"many children":    func(*rand.Rand) []byte { return with("spec", map[string]any{"childResources": make([]any, 50_000)}) },
		"numbers too long": text(`{"metadata":{"name":"malformed","generation":` + strings.Repeat("9", 5000) + `}}`),
	}
}

// patches are no patches of a controller.
func patches() map[string]func(r *rand.Rand) []byte {
	text := func(s string) func(*rand.Rand) []byte { return func(*rand.Rand) []byte { return []byte(s) } }
	return map[string]func(r *rand.Rand) []byte{
		"noise":    noise,
		"unclosed": text(`{"spec":{"hooks":`),
		"a number": text(`7`),
		"deep":     func(r *rand.Rand) []byte { return nested(10_001+r.IntN(20_000), `{"spec":`, `1`, `}`) },
		"huge": func(r *rand.Rand) []byte {
			return []byte(`{"spec":"` + strings.Repeat("x", 3<<20+r.IntN(1<<20)) + `"}`)
		},
	}
}

// oddities are wrong in other ways.
func oddities() map[string]func(r *rand.Rand) malformed {
	get := func(path string) func(*rand.Rand) malformed {
		return func(*rand.Rand) malformed { return malformed{method: http.MethodGet, path: path} }
	}
	post := func(path, body string) func(*rand.Rand) malformed {
		return func(*rand.Rand) malformed {
			return malformed{method: http.MethodPost, path: path, contentType: asJSON, body: []byte(body)}
		}
	}
	return map[string]func(r *rand.Rand) malformed{
		"a content type that is unknown": func(r *rand.Rand) malformed {
			types := []string{"text/html", "application/vnd.kubernetes.protobuf", "application/json; charset", "x", "multipart/form-data", "application/cbor"}
			return malformed{method: http.MethodPost, path: path, contentType: types[r.IntN(len(types))], body: noise(r)}
		},
		"a patch of an unknown type": func(r *rand.Rand) malformed {
			types := []string{"application/strategic-merge-patch+yaml", asJSON, "x/y"}
			return malformed{method: http.MethodPatch, path: existing, contentType: types[r.IntN(len(types))], body: []byte(`{}`)}
		},
		"an answer that nobody writes": func(*rand.Rand) malformed {
			return malformed{method: http.MethodGet, path: path, header: map[string]string{"Accept": "image/png"}}
		},
		"a path that is not there": func(r *rand.Rand) malformed {
			return malformed{method: http.MethodGet, path: fmt.Sprintf("/apis/metacontroller.k8s.io/v1alpha1/nothing%d/x", r.IntN(1000))}
		},
		"an object that is not there": func(r *rand.Rand) malformed {
			methods := []string{http.MethodGet, http.MethodDelete}
			return malformed{method: methods[r.IntN(2)], path: fmt.Sprintf("%s/nothing-%d", path, r.IntN(1000))}
		},
		"a name that is none": func(r *rand.Rand) malformed {
			return malformed{method: http.MethodGet, path: path + "/" + url.PathEscape(string(noise(r))[:8]) + "%00"}
		},
		"a subresource that is not there": get(existing + "/nothing"),
		"a long path": func(r *rand.Rand) malformed {
			return malformed{method: http.MethodGet, path: path + "/" + strings.Repeat("x", 1000+r.IntN(30_000))}
		},
		"a method that is unknown": func(r *rand.Rand) malformed {
			methods := []string{"TRACE", "BREW", "LINK", http.MethodOptions}
			return malformed{method: methods[r.IntN(len(methods))], path: existing}
		},
		"a collection that is replaced": func(*rand.Rand) malformed {
			return malformed{method: http.MethodPut, path: path, contentType: asJSON, body: valid()}
		},
		"an object that is posted": func(*rand.Rand) malformed {
			return malformed{method: http.MethodPost, path: existing, contentType: asJSON, body: valid()}
		},
		"a limit that is no number":      get(path + "?limit=many"),
		"a version that is no number":    get(path + "?resourceVersion=new"),
		"a match without version":        get(path + "?resourceVersionMatch=NotOlderThan"),
		"a continuation that is none":    get(path + "?limit=1&continue=x"),
		"a field selector that is none":  get(path + "?fieldSelector=nothing"),
		"a field that is not selectable": get(path + "?fieldSelector=spec.nothing%3Dx"),
		"a label selector that is none":  get(path + "?labelSelector=" + url.QueryEscape("a in (")),
		"a timeout that is no number":    get(path + "?watch=1&timeoutSeconds=long"),
		"a dry run of parts":             post(path+"?dryRun=Some", string(valid())),
		"a field manager that is too long": func(*rand.Rand) malformed {
			return malformed{method: http.MethodPost, path: path + "?fieldManager=" + strings.Repeat("x", 200), contentType: asJSON, body: valid()}
		},
		"a validation that is unknown": post(path+"?fieldValidation=Sometimes", string(valid())),
		"an unknown field, strictly":   post(path+"?fieldValidation=Strict", strings.Replace(string(valid()), `"spec":`, `"speck":1,"spec":`, 1)),
		"options that are none": func(r *rand.Rand) malformed {
			return malformed{method: http.MethodDelete, path: path + "/nothing", contentType: asJSON, body: noise(r)}
		},
		"preconditions that are wrong": func(*rand.Rand) malformed {
			return malformed{method: http.MethodDelete, path: existing, contentType: asJSON, body: []byte(`{"preconditions":{"uid":"other"}}`)}
		},
		"a plan that is none": post(existing+"/plan", `{"a":`),
		"a plan of noise": func(r *rand.Rand) malformed {
			return malformed{method: http.MethodPost, path: existing + "/plan", contentType: asJSON, body: noise(r)}
		},
		"a resync of nothing":     post(existing+"/resync", `[]`),
		"a rollback that is none": post(existing+"/rollback", `"x"`),
		"an identity that is claimed": func(*rand.Rand) malformed {
			return malformed{method: http.MethodGet, path: path, header: map[string]string{"Impersonate-Group": "x"}}
		},
	}
}

// valid is a controller, as JSON.
func valid() []byte {
	o := controller("malformed-new", nil)
	o.APIVersion, o.Kind = "metacontroller.k8s.io/v1alpha1", "CompositeController"
	encoded, err := json.Marshal(o)
	if err != nil {
		panic(err) // It is a constant.
	}
	return encoded
}

// with is valid with another value of a field.
func with(field string, value any) []byte {
	o := map[string]any{}
	if err := json.Unmarshal(valid(), &o); err != nil {
		panic(err)
	}
	o[field] = value
	encoded, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return encoded
}

// noise is no text, and begins like none.
func noise(r *rand.Rand) []byte {
	bytes := make([]byte, 16+r.IntN(2000))
	for i := range bytes {
		bytes[i] = byte(0x80 + r.IntN(0x40)) // Never the beginning of a character.
	}
	return bytes
}

// spoiled is valid but for one quotation mark or brace.
func spoiled(r *rand.Rand) []byte {
	whole := valid()
	for {
		if i := r.IntN(len(whole)); strings.IndexByte(`{}":`, whole[i]) >= 0 {
			whole[i] = 0x01
			return whole
		}
	}
}

func nested(depth int, open, inner, closing string) []byte {
	return []byte(strings.Repeat(open, depth) + inner + strings.Repeat(closing, depth))
}

// aliases is a small YAML text that would become a large object.
func aliases() []byte {
	var text strings.Builder
	text.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&text, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return []byte(text.String())
}
