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
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// closeTimeout is how long Close waits for etcd, which itself gives requests in flight some seven seconds.
const closeTimeout = 15 * time.Second

// interruptGrace is how long a start that was called off may take to end.
const interruptGrace = 5 * time.Second

// maxRequestBytes is as much as etcd's client sends. etcd's default is the largest body of a request to the API server, to which come the key and
// what is stored with an object.
const maxRequestBytes = 2 << 20

// A Server is a running embedded etcd. Its methods may be called from several goroutines.
type Server struct {
	options Options
	logger  klog.Logger
	lock    *os.File
	run     runDirectory
	hook    *fatalHook
	// closing is set as soon as the end of etcd is wanted.
	closing *atomic.Bool
	etcd    *embed.Etcd

	// stop ends the watching goroutines.
	stop     context.CancelFunc
	watchers sync.WaitGroup

	done     chan struct{}
	doneOnce sync.Once
	// err is written before done is closed, and read only after.
	err       error
	closeOnce sync.Once
	closeErr  error
}

// Start starts etcd on the data directory and returns when it serves.
//
// ctx and Options.StartTimeout bound the start alone: the Server runs until Close. The error is an *InUseError when another
// process holds the directory, a *DamagedError when its content cannot be trusted, and a *NoSpaceError when the volume is
// full; errors.As finds them. After any error nothing is served. When etcd itself gave up or did not come up in time it cannot
// be stopped, so the directory stays locked until this process ends.
func Start(ctx context.Context, options Options) (*Server, error) {
	o, err := options.complete(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, classify(o.Dir, fmt.Errorf("making data directory: %w", err))
	}
	lock, err := acquireLock(o.Dir)
	if err != nil {
		return nil, err
	}
	run, err := newRunDirectory(o.Dir)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	s := &Server{
		options: o, logger: o.Logger.WithName("etcd"), lock: lock, run: run,
		hook: newFatalHook(), closing: &atomic.Bool{}, done: make(chan struct{}),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.StartTimeout, o.lateError())
	defer cancel()
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("starting embedded etcd: %w", err)
	}
	if err := publishEndpoint(lock, s.Endpoint()); err != nil {
		// Nobody but RunningEndpoint needs it.
		s.logger.Error(err, "Writing down where embedded etcd listens; no snapshot can be saved until the next start", "dir", o.Dir)
	}
	s.watch(context.WithoutCancel(ctx))
	s.logger.V(2).Info("Embedded etcd is serving", "dir", o.Dir, "socket", run.socket(), "quotaBytes", o.QuotaBytes)
	return s, nil
}

// Endpoint returns the address for clients, in the form that --etcd-servers and clientv3 take: unix:///directory/etcd.sock.
func (s *Server) Endpoint() string {
	u := s.run.url()
	return u.String()
}

// Done is closed when etcd has ended, on Close or by itself. When it happens without Close, nothing can be stored or read any
// more: the process should report Err and exit at once with a code other than zero, so that it is started again.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why etcd ended by itself. It is nil as long as etcd runs, and after Close of a healthy Server.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close stops etcd, waits for it, and releases the data directory. Everything acknowledged is on disk then. It may be called
// more than once. Close the clients first: open connections are given seven seconds. The error is that of Err, or says that
// etcd did not end; in both cases the directory stays locked until the process ends.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.closing.Store(true)
		s.stop()
		s.closeErr = s.Err()
		if s.closeErr == nil {
			s.closeErr = s.shutDown()
		}
		s.finish(s.closeErr)
	})
	return s.closeErr
}

// shutDown closes etcd and frees the directory.
func (s *Server) shutDown() error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.watchers.Wait()
		s.etcd.Close()
		s.release()
	}()
	select {
	case <-closed:
		return nil
	case <-s.hook.fired:
		return s.gaveUp()
	case <-time.After(closeTimeout):
		return fmt.Errorf("embedded etcd on %s did not stop within %s", s.options.Dir, closeTimeout)
	}
}

// start checks the data, and starts etcd when it is sound.
func (s *Server) start(ctx context.Context) error {
	lg := newZapLogger(s.logger, s.closing, s.hook)
	verify := func() error {
		err := guarded(func() error { return verifyData(lg, s.options.Dir) })
		if _, inUse := errors.AsType[*InUseError](err); err == nil || inUse || errors.Is(err, os.ErrPermission) {
			return err
		}
		return &DamagedError{Dir: s.options.Dir, Err: err}
	}
	launch := func() error {
		err := guarded(func() error { return s.launch(ctx, lg) })
		if _, panicked := errors.AsType[*panicError](err); panicked {
			return &DamagedError{Dir: s.options.Dir, Err: err}
		}
		return classify(s.options.Dir, err)
	}
	if err := s.await(ctx, verify); err != nil {
		return err
	}
	return s.await(ctx, launch)
}

// launch starts etcd and waits until it serves.
func (s *Server) launch(ctx context.Context, lg *zap.Logger) error {
	etcd, err := embed.StartEtcd(s.config(lg))
	if err != nil {
		return err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		err = context.Cause(ctx)
	case <-etcd.Server.StopNotify():
		err = errors.New("it stopped while it was starting")
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.closing.Store(true)
		etcd.Server.Stop()
		etcd.Close()
		return err
	}
	s.etcd = etcd
	return nil
}

// await calls f on a new goroutine and returns its error. Neither the check of the data nor the first part of etcd's start can
// be interrupted: when f does not end soon after ctx it is left behind, and the data directory with it.
func (s *Server) await(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	overdue := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		<-time.After(interruptGrace)
		close(overdue)
	})()
	select {
	case err := <-result:
		if err != nil {
			s.release()
		}
		return err
	case <-s.hook.fired:
		return s.gaveUp()
	case <-overdue:
		return fmt.Errorf("data directory %s: %w", s.options.Dir, context.Cause(ctx))
	}
}

// gaveUp returns the error for an etcd that has frozen in a fatal line of its log.
func (s *Server) gaveUp() error {
	err := s.hook.cause
	if isNoSpace(err) {
		return &NoSpaceError{Dir: s.options.Dir, Err: err}
	}
	return &DamagedError{Dir: s.options.Dir, Err: err}
}

// release gives the data directory back. Nothing of etcd may be running any more.
func (s *Server) release() {
	s.run.remove()
	_ = s.lock.Close()
}

// finish records the end of etcd; the first reason counts.
func (s *Server) finish(err error) {
	s.doneOnce.Do(func() {
		s.err = err
		close(s.done)
	})
}

// The identity of the member, which its data has in it.
const (
	// MemberName is the name of the only member.
	MemberName = "embedded"
	// MemberPeerURL is its address for other members, as which it has an identity; nothing listens there.
	MemberPeerURL = "http://" + memberHost

	memberHost = "127.0.0.1:2380"
)

// config returns the configuration of a single member that no other member can reach.
func (s *Server) config(lg *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = MemberName
	cfg.Dir = s.options.Dir
	socket := []url.URL{s.run.url()}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = socket, socket
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: memberHost}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(lg)
	cfg.EnableGRPCGateway = false
	// The member elects itself after this time, in milliseconds: it is most of the time of a start. No other member can be late.
	cfg.TickMs, cfg.ElectionMs = 50, 250
	cfg.QuotaBackendBytes = s.options.QuotaBytes
	cfg.MaxRequestBytes = maxRequestBytes
	cfg.UnsafeNoFsync = s.options.UnsafeNoFsync
	// The API server's watch cache asks for progress to answer consistent reads.
	cfg.WatchProgressNotifyInterval = 5 * time.Second
	// The API server compacts by itself.
	cfg.AutoCompactionRetention = "0"
	// Entries are kept in memory for members that lag behind. There are none.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 5000, 100
	// A start is the best time to give free pages back: no request waits yet. Unit: MB of free pages.
	cfg.BootstrapDefragThresholdMegabytes = 100
	return cfg
}

// watch starts the goroutines that look after a running etcd until Close.
func (s *Server) watch(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	s.watchers.Go(func() { s.watchEnd(ctx) })
	s.watchers.Go(func() { s.watchSpace(ctx) })
}

// watchEnd waits for the end of etcd and records it when it was not requested.
func (s *Server) watchEnd(ctx context.Context) {
	var err error
	select {
	case <-ctx.Done():
		return
	case <-s.hook.fired:
		err = s.gaveUp()
	case cause := <-s.etcd.Err():
		if cause == nil {
			cause = errors.New("its listener was closed")
		}
		err = classify(s.options.Dir, fmt.Errorf("embedded etcd on %s stopped: %w", s.options.Dir, cause))
	case <-s.etcd.Server.StopNotify():
		err = fmt.Errorf("embedded etcd on %s stopped by itself", s.options.Dir)
	}
	s.logger.Error(err, "Embedded etcd has ended; nothing can be stored or read any more", "dir", s.options.Dir)
	s.finish(err)
}

const (
	// socketName is the file name of the unix socket.
	socketName = "etcd.sock"
	// maxSocketPath is how many bytes the path of a unix socket may have: sun_path has 108 with the closing zero on Linux.
	maxSocketPath = 107
)

// A runDirectory is the private directory with the socket.
type runDirectory struct {
	path string
	// temporary directories are removed with everything in them when they are not needed any more.
	temporary bool
}

// newRunDirectory makes dir/run, or a private directory with a shorter name when a socket in dir/run could not be addressed.
func newRunDirectory(dir string) (runDirectory, error) {
	r := runDirectory{path: filepath.Join(dir, "run")}
	if !addressable(r.socket()) {
		short, err := os.MkdirTemp("", "metacontroller-etcd-")
		if err != nil {
			return runDirectory{}, classify(dir, fmt.Errorf("making a directory for the socket of embedded etcd: %w", err))
		}
		r = runDirectory{path: short, temporary: true}
		if !addressable(r.socket()) {
			r.remove()
			return runDirectory{}, fmt.Errorf("no place for the socket of embedded etcd: the paths %s and %s cannot be used for a "+
				"socket (at most %d bytes, no characters that a URL escapes); choose a shorter data directory or set TMPDIR",
				filepath.Join(dir, "run", socketName), r.socket(), maxSocketPath)
		}
	}
	if err := os.MkdirAll(r.path, 0o700); err != nil {
		return runDirectory{}, classify(dir, fmt.Errorf("making directory %s: %w", r.path, err))
	}
	// The socket itself is created with the umask's rights, so this directory is what keeps others out.
	if err := os.Chmod(r.path, 0o700); err != nil { //nolint:gosec // A directory needs the right to enter it.
		return runDirectory{}, fmt.Errorf("restricting directory %s: %w", r.path, err)
	}
	return r, nil
}

func (r runDirectory) socket() string { return filepath.Join(r.path, socketName) }

func (r runDirectory) url() url.URL { return url.URL{Scheme: "unix", Path: r.socket()} }

func (r runDirectory) remove() {
	if r.temporary {
		_ = os.RemoveAll(r.path)
	}
}

// addressable tells whether the kernel accepts the path for a socket, and clients find it by its URL.
func addressable(path string) bool {
	u := url.URL{Scheme: "unix", Path: path}
	return len(path) <= maxSocketPath && u.String() == "unix://"+path
}

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
	return slices.ContainsFunc(s.etcd.Server.Alarms(), func(alarm *etcdserverpb.AlarmMember) bool {
		return alarm.GetAlarm() == etcdserverpb.AlarmType_NOSPACE
	})
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
