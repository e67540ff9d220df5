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

// Package monitoring looks in a scrape of the real server, and in one of the kube-apiserver, for the metrics that the alerts and the
// dashboard of artifacts/monitoring use. The list of these, with their labels, is test/monitoring/metrics.json, which the tests of that
// module keep up to date.
package monitoring
