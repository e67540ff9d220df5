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

// Package monitoring checks what artifacts/monitoring has for operators: that Prometheus accepts the alerts, that each alert fires when it
// should and not before, that each has a section in docs/operations/alerts.md, and that the list metrics.json has all metrics which alerts
// and dashboard name. The tests of test/integration/monitoring look for those of the list in a real scrape.
//
// It is a Go module of its own for the sake of Prometheus' libraries, and nobody imports it.
package monitoring
