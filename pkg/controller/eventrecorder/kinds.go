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

package eventrecorder

import (
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// maxObjects is of how many objects the kinds of messages are remembered.
	maxObjects = 4096
	// maxKinds is how many kinds of messages about one object have a limit of their own. All others have one in common.
	maxKinds = 16
	// kindAge is the time after which a kind that did not occur makes room for another one.
	kindAge = 10 * time.Minute
)

// kinds gives every kind of message about an object a limit of its own, and bounds how many there are. Not safe for
// concurrent use.
type kinds struct {
	clock   clock.PassiveClock
	objects *lru.Cache
}

func newKinds(c clock.PassiveClock) *kinds { return &kinds{clock: c, objects: lru.New(maxObjects)} }

// keyOf returns the key of the limit for an event.
func (k *kinds) keyOf(e *corev1.Event) string {
	o := &e.InvolvedObject
	// Normal events must not take the places of warnings.
	object := strings.Join([]string{o.APIVersion, o.Kind, o.Namespace, o.Name, string(o.UID), e.Type}, "/")
	kind := e.Reason + "/" + normalize(e.Message)
	now := k.clock.Now()
	seen, ok := k.seen(object)
	if !ok {
		seen = map[string]time.Time{}
		k.objects.Add(object, seen)
	}
	if _, known := seen[kind]; !known && len(seen) >= maxKinds && !forgetOldest(seen, now) {
		return object
	}
	seen[kind] = now
	return object + "/" + kind
}

// seen returns when each kind of message about an object occurred last.
func (k *kinds) seen(object string) (map[string]time.Time, bool) {
	value, _ := k.objects.Get(object)
	seen, ok := value.(map[string]time.Time)
	return seen, ok
}

// forgetOldest drops the kind that did not occur for the longest time; false if all occurred recently.
func forgetOldest(seen map[string]time.Time, now time.Time) bool {
	oldest, since := "", now.Add(-kindAge)
	for kind, at := range seen {
		if !at.After(since) {
			oldest, since = kind, at
		}
	}
	delete(seen, oldest)
	return oldest != ""
}

// combined is what client-go puts before the message of an event that stands for many.
const combined = "(combined from similar events): "

// varying matches what differs between messages of one kind: UIDs, hashes, and numbers.
var varying = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b[0-9a-fA-F]{8,}\b|[0-9]+`)

// normalize returns the message without what differs between messages of one kind.
func normalize(message string) string {
	return varying.ReplaceAllString(strings.TrimPrefix(message, combined), "#")
}
