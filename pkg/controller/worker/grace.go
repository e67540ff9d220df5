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

import "time"

// DefaultGrace is how long syncs that are under way may take after a controller is stopped, unless Config.Grace says otherwise.
// Then their context is canceled. Whoever stops controllers waits longer than that: cmd/metacontroller-apiserver/app adds a
// second to it, so that a canceled sync still ends before the API server that it writes to.
const DefaultGrace = 5 * time.Second
