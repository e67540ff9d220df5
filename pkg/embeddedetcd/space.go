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

package embeddedetcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

const (
	// reclaimTimeout bounds one attempt to make space in the database.
	reclaimTimeout = 5 * time.Minute
	// reclaimPause is the least time between two attempts, in intervals between two looks: each rewrites the whole database.
	reclaimPause = 12
	// fillWarning is the part of the quota, in percent of objects really stored, from which on the log warns.
	fillWarning = 80
)

// watchSpace looks after the quota of the database.
//
// At the quota etcd raises an alarm and refuses every write that needs space, for ever, although old versions of objects and
// free pages may be most of it. Nobody else administers this etcd, so old versions are compacted, the file is rewritten
// without the free pages, and the alarm is taken back when that has made enough space.
func (s *Server) watchSpace(ctx context.Context) {
	client := v3client.New(s.etcd.Server)
	defer func() { _ = client.Close() }()
	ticker := time.NewTicker(s.options.SpaceCheckInterval)
	defer ticker.Stop()
	var lastAttempt time.Time
	warned := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.done:
			return
		case <-ticker.C:
		}
		warned = s.warnWhenFilling(warned)
		if !s.spaceAlarm() || time.Since(lastAttempt) < reclaimPause*s.options.SpaceCheckInterval {
			continue
		}
		if err := s.reclaim(ctx, client); err != nil && ctx.Err() == nil {
			s.logger.Error(err, "Embedded etcd is full and refuses writes; delete objects without finalizers that are not needed, or use an external etcd",
				"dir", s.options.Dir, "quotaBytes", s.options.QuotaBytes)
		}
		// Taken at the end: an attempt may take longer than the pause.
		lastAttempt = time.Now()
	}
}

// spaceAlarm tells whether etcd refuses writes because of the quota.
func (s *Server) spaceAlarm() bool {
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.GetAlarm() == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// warnWhenFilling logs once when the stored objects come near to the quota, and returns whether they are near.
func (s *Server) warnWhenFilling(warned bool) bool {
	used := s.etcd.Server.Backend().SizeInUse()
	near := used > s.options.QuotaBytes/100*fillWarning
	if near && !warned {
		s.logger.Info("The database of embedded etcd is filling up; at its quota it refuses writes",
			"dir", s.options.Dir, "usedBytes", used, "quotaBytes", s.options.QuotaBytes)
	}
	return near
}

// reclaim gives up old versions and free pages, and lets etcd take writes again when that made enough space.
func (s *Server) reclaim(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	before := s.etcd.Server.Backend().Size()
	s.logger.Info("Embedded etcd has reached its quota; compacting and defragmenting",
		"dir", s.options.Dir, "databaseBytes", before, "quotaBytes", s.options.QuotaBytes)
	// Watches that lag behind, and lists in pages, are answered with "too old" after this, and start again.
	if kv := s.etcd.Server.KV(); kv.FirstRev() < kv.Rev() {
		if _, err := client.Compact(ctx, kv.Rev(), clientv3.WithCompactPhysical()); err != nil {
			return fmt.Errorf("compacting the database: %w", err)
		}
	}
	// Not through the client: a client within the process has no other server to use while this one does not serve.
	if err := s.etcd.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragmenting the database: %w", err)
	}
	after := s.etcd.Server.Backend().Size()
	if after >= s.options.QuotaBytes {
		return fmt.Errorf("%d bytes of objects are stored, and the quota is %d", after, s.options.QuotaBytes)
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("taking back the alarm: %w", err)
	}
	s.logger.Info("Embedded etcd takes writes again", "dir", s.options.Dir, "freedBytes", before-after, "databaseBytes", after)
	return nil
}
