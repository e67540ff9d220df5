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

package artifacts

import "embed"

// Base holds the files of the folder base.
//
//go:embed base/*.yaml
var Base embed.FS

// SDK holds the modules for authors of hooks, without their tests and packaging.
//
//go:embed sdk/python/metacontroller_hook/*.py sdk/javascript/index.js sdk/javascript/*.d.ts
//go:embed sdk/go/metacontroller/children.go sdk/go/metacontroller/doc.go sdk/go/metacontroller/replay.go sdk/go/metacontroller/server.go sdk/go/metacontroller/types.go
var SDK embed.FS
