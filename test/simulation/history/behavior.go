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
	"strconv"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// behaviors are the ways in which hooks behave for a number of calls. In between, their responses are those of package hooks.
var behaviors = []string{"lag", "fail", "flap", "refuse", "invalid", "malformed", "short", "finalized"}

// restlessBehaviors are those of hooks that return something new with each call, with every other one that does not fail, or with one of some.
var restlessBehaviors = []string{"anew", "alternate", "anew-children"}

// behavior is how the hooks of one controller behave.
type behavior struct {
	how  string
	left int
	// turns counts the calls, by hook and parent.
	turns map[string]int
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
	case "anew", "anew-children", "alternate":
		return b.restless(how, name, r)
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
			return respond(name, recolored(r, "flipped"), false)
		}
	}
	return respond(name, r, true)
}

// restless replies something new to each call, or to each that does not fail.
func (b *behavior) restless(how string, name hook.Name, r *hooks.Request) reply {
	if b.turns == nil {
		b.turns = map[string]int{}
	}
	key := string(name) + hooks.Meta(r.Parent, "uid")
	b.turns[key]++
	turn := b.turns[key]
	switch {
	case how == "anew-children":
		return respond(name, recolored(r, "anew-"+strconv.Itoa(turn)), false)
	case how == "alternate" && turn%2 == 0 && name != hook.Customize:
		return reply{code: http.StatusInternalServerError, body: []byte("one of the replicas of the hook fails")}
	default:
		return encoded(anew(name, r, turn), false)
	}
}

// shortened drops the last child of a response.
func shortened(r *hooks.Response) *hooks.Response {
	r.Children = r.Children[:max(0, len(r.Children)-1)]
	r.Attachments = r.Attachments[:max(0, len(r.Attachments)-1)]
	return r
}

// anew returns a response that says how many there were: in the status, or in an annotation of a target.
func anew(name hook.Name, r *hooks.Request, turn int) *hooks.Response {
	response, text := hooks.Respond(name, r), "turn "+strconv.Itoa(turn)
	switch {
	case name == hook.Customize:
	case r.Decorator:
		response.Annotations[hooks.Group+"/"+hooks.Meta(r.Controller, "name")] = &text
	default:
		response.Status["by"] = text
	}
	return response
}

// recolored returns a request whose parent wants another color.
func recolored(r *hooks.Request, color string) *hooks.Request {
	other := *r
	other.Parent = map[string]any{}
	maps.Copy(other.Parent, r.Parent)
	for _, field := range []string{"spec", "data"} {
		if m, ok := r.Parent[field].(map[string]any); ok {
			changed := map[string]any{}
			maps.Copy(changed, m)
			changed["color"] = color
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
