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

// Package inlinehooks is an admission plugin that compiles the inline hooks of new and changed controllers against the schemas of the
// cluster, those of custom kinds as they are defined. What does not fit is refused with its path, line and column. A kind that is not served, or
// whose schema cannot be read, is a warning: the engine compiles again when that changes.
package inlinehooks
