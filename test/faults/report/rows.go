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

package report

// Row names a row of the table.
type Row string

// The rows of the table.
const (
	ServerKilled    Row = "server-killed"
	PowerCut        Row = "power-cut"
	Replicas        Row = "replicas"
	EtcdMembers     Row = "etcd-members"
	KubeAPIServer   Row = "kube-apiserver"
	APIService      Row = "apiservice"
	HookDown        Row = "hook-down"
	NoChildren      Row = "no-children"
	HostileHooks    Row = "hostile-hooks"
	ReleaseBlocked  Row = "release-blocked"
	Panics          Row = "panics"
	DiskFull        Row = "disk-full"
	Upgrade         Row = "upgrade"
	NodeLost        Row = "node-lost"
	Malformed       Row = "malformed"
	CertificateTurn Row = "certificates"
)

// description is what the table says of a row besides the figures.
type description struct {
	row            Row
	fault, promise string
}

// descriptions are in the order of the table.
var descriptions = []description{
	{ServerKilled, "SIGKILL of the server 20 times while 500 parents converge, are rolled out and are finalized", "nothing is lost, no child is duplicated, made again or orphaned, all converge each time"},
	{PowerCut, "SIGKILL during 1,000 writes of controllers to the embedded etcd, with what was not synced to the disk dropped", "every acknowledged write is there"},
	{Replicas, "two replicas over an etcd of three members: the leader killed, stopped for 60 s and resumed, cut off for 60 s", "failover in time; no two engines write the same object in between"},
	{EtcdMembers, "one of three members of an external etcd killed, then its leader, then all for 60 s", "serves through the first two; 503 with a cause in the third, which kubectl prints within 15 s and the APIService shows, no restart, recovers alone"},
	{KubeAPIServer, "the kube-apiserver down for 60 s, restarted with an empty watch cache, absent when the server starts", "waits or converges; nothing is deleted or made again; calls of hooks are bounded"},
	{APIService, "our APIService unavailable for 5 min", "reconciling goes on; the deletion of namespaces resumes after it"},
	{HookDown, "a hook down for 10 min with 1,000 parents", "every parent is tried again within 5 min of its return, never more at once than workers"},
	{NoChildren, "a hook that answers \"no children\" for all parents, with and without `deletionGuard`", "the guard holds"},
	{HostileHooks, "50 hostile hooks beside one healthy controller, with 512 MiB of memory", "the healthy one is at most twice as slow; no restart, not out of memory"},
	{ReleaseBlocked, "the release of a finalizer denied by a policy", "told in the status, bounded retries, the rest works"},
	{Panics, "a panic at every request that the engine makes", "told, tried again, the rest works"},
	{DiskFull, "the disk full under the embedded etcd, then space", "a clear error, recovers, nothing is corrupt"},
	{Upgrade, "rolling upgrade from an old version to this one and back, with live watches and load", "no request fails beyond retried ones, the state is whole both ways"},
	{NodeLost, "the node lost under the single-node shape, its Pod stuck Terminating", "the documented way back works"},
	{Malformed, "10,000 malformed requests: bodies, content types, paths, options, huge and deep", "4xx, never 5xx, no panic, memory is flat"},
	{CertificateTurn, "rotation of the serving certificate and of its CA under load", "no request fails"},
}
