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

package reconciler

import "github.com/metacontroller/metacontroller-apiserver/pkg/metrics"

// Remembered returns what the controller remembers between syncs.
func (c *Controller) Remembered() metrics.Remembered { return c.remembered() }

// Permitted is what the controller does when its service account may do what it could not do before.
func (c *Controller) Permitted(released bool) { c.permitted(released) }
