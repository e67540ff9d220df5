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

// Package etcdsnapshot saves and restores what the embedded etcd stores.
//
// Save asks the server that runs on a data directory, in another process, for its store as it is at one moment. Restore makes a data
// directory of a snapshot, on which a server starts. ReadStatus says what is in a snapshot, and whether it is whole.
//
// A snapshot is what etcdctl and etcdutl call one: the database, and a SHA-256 of it at the end. The caller is a subcommand of the server.
// This package starts no etcd, and knows nothing about the objects that are stored.
package etcdsnapshot
