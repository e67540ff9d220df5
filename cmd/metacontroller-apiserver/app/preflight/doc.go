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

// Package preflight holds the subcommand preflight, which says before a server is started or upgraded what would keep it from working:
// whether the cluster answers, has an aggregation layer and a version that is supported, which rights are missing, what already serves the
// group, and whether certificates and etcd are usable. Each check returns a Finding, a sentence with the next step; a Report is printed as
// text or JSON and decides the exit status. It reads, and changes nothing.
package preflight
