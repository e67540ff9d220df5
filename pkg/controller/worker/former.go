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

package worker

import (
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
)

// Pool is Queue, as callers name it still.
type Pool = Queue

// DefaultGrace is Grace.
const DefaultGrace = Grace

// Enqueue is Add.
func (q *Queue) Enqueue(key parent.Key, p Priority) { q.Add(key, p) }

// EnqueueBecause is Add.
func (q *Queue) EnqueueBecause(key parent.Key, p Priority, why trigger.Trigger) { q.Add(key, p, why) }

// EnqueueAfter is AddAfter.
func (q *Queue) EnqueueAfter(key parent.Key, after time.Duration) { q.AddAfter(key, after) }
