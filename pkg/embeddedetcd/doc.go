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

// Package embeddedetcd runs a single-member etcd inside this process, for installations without an etcd of their own.
//
// Start takes a data directory, refuses it when another process holds it or when it is damaged, and returns a Server whose
// Endpoint is a unix socket in a directory that only this user may enter. Nothing listens on a network address. The Server
// watches over etcd until Close: when etcd dies, Done is closed and Err tells why, and it recovers by itself from a database
// that has reached its quota.
//
// The data directory holds:
//
//	LOCK     held locked as long as the process lives; names the process that holds it
//	run/     the socket, mode 0700; elsewhere when the path would be too long for a socket, see Options.Dir
//	member/  etcd's own database (snap/db) and write-ahead log (wal/)
//
// The caller is the command of the API server: it starts etcd first and closes it last, after the server has drained. This
// package imports nothing of ours and knows nothing about the objects that are stored.
package embeddedetcd
