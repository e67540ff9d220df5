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

// Package barrier lets a parent wait until the cache shows what its own previous sync wrote.
//
// A sync that started earlier would see the past: it would create children that are there, and its hook would be called
// once for every event of its own writes. The wait is bounded, since an event may never
// come, for example when the object no longer matches an informer's selector.
package barrier
