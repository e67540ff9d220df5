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

package history

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// behaviors are the ways in which hooks behave for a number of calls. In between, their responses are those of package hooks.
var behaviors = []string{"lag", "fail", "flap", "refuse", "invalid", "malformed", "short", "finalized"}

// behavior is how the hooks of one controller behave.
type behavior struct {
	how  string
	left int
	// last are the requests of the last calls, by hook and parent.
	last map[string]*hooks.Request
}

// reply is what a hook replies.
type reply struct {
	code       int
	retryAfter string
	body       []byte
	// response is what the body says, nil if the engine cannot use it.
	response *hooks.Response
	// pure says that the response is that of the request alone.
	pure bool
}

// reply replies to a call.
func (b *behavior) reply(name hook.Name, r *hooks.Request) reply {
	key := string(name) + hooks.Meta(r.Parent, "uid")
	former := b.last[key]
	if b.last == nil {
		b.last = map[string]*hooks.Request{}
	}
	b.last[key] = r
	how := b.how
	if b.left == 0 {
		how = ""
	} else {
		b.left--
	}
	switch how {
	case "fail":
		return reply{code: http.StatusInternalServerError, body: []byte("the hook fails")}
	case "refuse":
		return reply{code: http.StatusTooManyRequests, retryAfter: "3"}
	case "malformed":
		return reply{code: http.StatusOK, body: []byte(`{"children": 7, "attachments": 7, "relatedResources": 7}`)}
	case "invalid":
		// A child of a kind that no controller declares.
		return reply{code: http.StatusOK, body: []byte(`{"children": [{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}],` +
			`"attachments": [{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}], "relatedResources": [{"apiVersion":"v1"}]}`)}
	case "lag":
		// What a customize hook says is remembered until the parent changes (docs/reference/contract.md#s16): nobody would ask again.
		if former != nil && name != hook.Customize {
			lagging := *former
			// What is declared is that of now, or the response would be invalid.
			lagging.Controller, lagging.Finalizing = r.Controller, r.Finalizing
			return respond(name, &lagging, false)
		}
	case "short":
		if b.left%2 == 0 && name == hook.Sync {
			return encoded(shortened(hooks.Respond(name, r)), false)
		}
	case "finalized":
		// Before anybody asked for it.
		if name == hook.Sync {
			response := hooks.Respond(name, r)
			response.Finalized = true
			return encoded(response, false)
		}
	case "flap":
		if b.left%2 == 0 && name == hook.Sync {
			return respond(name, flipped(r), false)
		}
	}
	return respond(name, r, true)
}

// shortened drops the last child of a response.
func shortened(r *hooks.Response) *hooks.Response {
	r.Children = r.Children[:max(0, len(r.Children)-1)]
	r.Attachments = r.Attachments[:max(0, len(r.Attachments)-1)]
	return r
}

// flipped returns a request whose parent wants another color.
func flipped(r *hooks.Request) *hooks.Request {
	other := *r
	other.Parent = map[string]any{}
	maps.Copy(other.Parent, r.Parent)
	for _, field := range []string{"spec", "data"} {
		if m, ok := r.Parent[field].(map[string]any); ok {
			changed := map[string]any{}
			maps.Copy(changed, m)
			changed["color"] = "flipped"
			other.Parent[field] = changed
		}
	}
	return &other
}

func respond(name hook.Name, r *hooks.Request, pure bool) reply {
	return encoded(hooks.Respond(name, r), pure)
}

// encoded returns the reply with a response.
func encoded(response *hooks.Response, pure bool) reply {
	body, err := json.Marshal(response)
	if err != nil {
		return reply{code: http.StatusInternalServerError, body: []byte(err.Error())}
	}
	return reply{code: http.StatusOK, body: body, response: response, pure: pure}
}
