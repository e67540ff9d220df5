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
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/verify"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
)

// walFile returns the newest file of the write-ahead log.
func walFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(datadir.ToWALDir(dir), "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found log files %v, error %v", files, err)
	}
	return slices.Max(files)
}

// overwrite writes garbage into a file.
func overwrite(t *testing.T, path string, offset int64, garbage []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(garbage, offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// written returns a data directory with some hundred keys, closed properly, and a copy for each test.
func written(t *testing.T) (keys []string, clone func(t *testing.T) string) {
	t.Helper()
	original := filepath.Join(t.TempDir(), "original")
	server := mustStart(t, Options{Dir: original})
	client := mustConnect(t, server)
	for n := range 400 {
		keys = append(keys, fmt.Sprintf("/test/%06d", n))
		mustPut(t, client, keys[n], strings.Repeat("x", 500))
	}
	_ = client.Close()
	mustDo(t, server.Close())
	return keys, func(t *testing.T) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "clone")
		mustDo(t, os.CopyFS(dir, os.DirFS(original)))
		return dir
	}
}

func TestDamagedDataIsNotServed(t *testing.T) {
	garbage := []byte(strings.Repeat("garbage ", 4096/8))
	keys, clone := written(t)
	for name, test := range map[string]struct {
		reason string
		damage func(t *testing.T, dir string)
		// want is part of the error; empty when the data is complete all the same.
		want string
	}{
		"Untouched": {
			reason: "The check must not refuse sound data.",
			damage: func(*testing.T, string) {},
		},
		"DatabaseTruncated": {
			reason: "Reading beyond the end of a mapped file is a signal, not an error.",
			damage: func(t *testing.T, dir string) { mustDo(t, os.Truncate(datadir.ToBackendFileName(dir), 20*4096)) },
			want:   "its end was lost",
		},
		"DatabaseTruncatedToOnePage": {
			reason: "A file shorter than its header is no database.",
			damage: func(t *testing.T, dir string) { mustDo(t, os.Truncate(datadir.ToBackendFileName(dir), 4096)) },
			want:   "file size too small",
		},
		"DatabaseHeadersOverwritten": {
			reason: "Without a valid header nothing in the file can be found.",
			damage: func(t *testing.T, dir string) {
				overwrite(t, datadir.ToBackendFileName(dir), 0, append(slices.Clone(garbage), garbage...))
			},
			want: "invalid database",
		},
		"DatabasePagesOverwritten": {
			reason: "bbolt asserts in a goroutine of its own when it opens such a file for writing.",
			damage: func(t *testing.T, dir string) {
				for page := int64(2); page < 40; page++ {
					overwrite(t, datadir.ToBackendFileName(dir), page*4096, garbage)
				}
			},
			want: "reading the stored data",
		},
		"DatabaseReplacedByText": {
			reason: "Somebody may have put something else there.",
			damage: func(t *testing.T, dir string) {
				mustDo(t, os.WriteFile(datadir.ToBackendFileName(dir), []byte(strings.Repeat("not a database\n", 10000)), 0o600))
			},
			want: "invalid database",
		},
		"DatabaseMissing": {
			reason: "This log goes back to the first entry, so etcd makes the database again from it.",
			damage: func(t *testing.T, dir string) { mustDo(t, os.Remove(datadir.ToBackendFileName(dir))) },
		},
		"LogMissing": {
			reason: "etcd would begin a new log at entry 1, and drop all writes up to the number that the database has seen.",
			damage: func(t *testing.T, dir string) { mustDo(t, os.RemoveAll(datadir.ToWALDir(dir))) },
			want:   "is missing, but there is a database that was written with one",
		},
		"LogTruncated": {
			reason: "As with a missing log: new writes would be taken for old ones.",
			damage: func(t *testing.T, dir string) { mustDo(t, os.Truncate(walFile(t, dir), 20_000)) },
			want:   "its end was lost",
		},
		"LogEmptied": {
			reason: "A log without its first record is no log.",
			damage: func(t *testing.T, dir string) { mustDo(t, os.Truncate(walFile(t, dir), 0)) },
			want:   "reading write-ahead log",
		},
		"LogOverwrittenInTheMiddle": {
			reason: "The checksums of the records chain them together.",
			damage: func(t *testing.T, dir string) { overwrite(t, walFile(t, dir), 40_000, garbage) },
			want:   "reading write-ahead log",
		},
		"LogWithOneFlippedByte": {
			reason: "A single wrong byte in an entry is found by its checksum.",
			damage: func(t *testing.T, dir string) { overwrite(t, walFile(t, dir), 50_000, []byte{0xff}) },
			want:   "mismatch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := clone(t)
			test.damage(t, dir)
			// In a process of its own: what the check does not find may take down the whole process, which is an answer too.
			output, err := childCommand(t, roleRead, dir).CombinedOutput()
			found := foundKeys(string(output))
			if test.want == "" {
				if err != nil || len(found) != len(keys) {
					t.Fatalf("%s\nprocess ended with %v and found %d keys of %d:\n%s", test.reason, err, len(found), len(keys), output)
				}
				return
			}
			if exit, failed := err.(*exec.ExitError); !failed || exit.ExitCode() != 1 { //nolint:errorlint // The error is exec's own.
				t.Fatalf("%s\nprocess ended with %v, want exit code 1; its output:\n%s", test.reason, err, output)
			}
			if len(found) > 0 {
				t.Errorf("%s\n%d keys were served", test.reason, len(found))
			}
			for _, want := range []string{"data directory " + dir + " is damaged", test.want, "restore a backup"} {
				if !strings.Contains(string(output), want) {
					t.Errorf("%s\nprocess does not say %q:\n%s", test.reason, want, output)
				}
			}
		})
	}
}

// TestRandomDamageIsAllOrNothing overwrites pages and records at random: either all keys are served, or none.
func TestRandomDamageIsAllOrNothing(t *testing.T) {
	keys, clone := written(t)
	refused := 0
	const rounds = 12
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 0))
		dir := clone(t)
		target := datadir.ToBackendFileName(dir)
		if seed%2 == 1 {
			target = walFile(t, dir)
		}
		garbage := make([]byte, 4096)
		for n := range garbage {
			garbage[n] = byte(random.Uint32())
		}
		// The used part of both files is about this long.
		overwrite(t, target, random.Int64N(60)*4096, garbage)
		output, err := childCommand(t, roleRead, dir).CombinedOutput()
		found := foundKeys(string(output))
		switch {
		case err != nil && len(found) == 0:
			refused++
		case err == nil && len(found) == len(keys):
		default:
			t.Errorf("seed %d: process ended with %v and served %d keys of %d:\n%s", seed, err, len(found), len(keys), output)
		}
	}
	if refused == 0 {
		t.Errorf("none of %d damaged directories was refused", rounds)
	}
}

func TestAFirstStartThatWasCutShortIsMadeAgain(t *testing.T) {
	for name, entries := range map[string][]*raftpb.Entry{
		"BeforeTheFirstEntry":            nil,
		"BeforeTheFirstEntryIsCommitted": {{Term: new(uint64(1)), Index: new(uint64(1)), Type: raftpb.EntryConfChange.Enum()}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustDo(t, os.MkdirAll(datadir.ToMemberDir(dir), 0o700))
			metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(1)), ClusterID: new(uint64(2))})
			mustDo(t, err)
			log, err := wal.Create(zap.NewNop(), datadir.ToWALDir(dir), metadata)
			mustDo(t, err)
			mustDo(t, log.Save(&raftpb.HardState{}, entries))
			mustDo(t, log.Close())
			client := mustConnect(t, mustStart(t, Options{Dir: dir}))
			mustPut(t, client, "/test/key", "value")
		})
	}
}

// What judge prints.
const refusedHere, acceptedByBoth = "refused here:", "accepted by both"

// judge returns the error of etcd's verification of a directory that ours accepts. It compares the index of the database with what the log
// says was committed, and checks the log.
func judge(dir string) error {
	if err := guarded(func() error { return verifyData(zap.NewNop(), dir) }); err != nil {
		fmt.Println(refusedHere, err)
		return nil
	}
	uncommitted, err := lastUncommitted(dir)
	if err != nil {
		return err
	}
	err = guarded(func() error { return verify.Verify(verify.Config{DataDir: dir, Logger: zap.NewNop()}) })
	if err != nil && (uncommitted == "" || !strings.Contains(err.Error(), uncommitted)) {
		return fmt.Errorf("etcd refuses what is accepted here: %w", err)
	}
	fmt.Println(acceptedByBoth)
	return nil
}

// lastUncommitted returns how etcd's verification calls the one state that it refuses although a killed server may leave it behind: the
// last entry is in the log and in the database, and the log does not say yet that it was committed. etcd writes that out together with
// the next entry only (raft.MustSync), and commits the entry again when it starts. Empty when the directory is in no such state.
func lastUncommitted(dir string) (string, error) {
	database, err := verifyDatabase(datadir.ToBackendFileName(dir))
	if err != nil {
		return "", err
	}
	log, err := verifyLog(zap.NewNop(), datadir.ToWALDir(dir))
	if err != nil {
		return "", err
	}
	index := database.consistentIndex
	if index != log.last || index != log.commit+1 {
		return "", nil
	}
	return fmt.Sprintf("backend.ConsistentIndex (%d) must be <= WAL.HardState.commit (%d)", index, log.commit), nil
}

// TestEtcdAcceptsWhatIsAcceptedHere has etcd's own verification as the oracle of ours, over data that is sound, that a killed server left
// behind, and that is damaged at random.
func TestEtcdAcceptsWhatIsAcceptedHere(t *testing.T) {
	_, clone := written(t)
	counts := map[string]int{}
	look := func(what, dir string) string {
		t.Helper()
		output, err := childCommand(t, roleJudge, dir).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", what, err, output)
			return ""
		}
		verdict := acceptedByBoth
		if strings.Contains(string(output), refusedHere) {
			verdict = refusedHere
		}
		counts[verdict]++
		return verdict
	}
	if verdict := look("untouched", clone(t)); verdict != acceptedByBoth {
		t.Errorf("sound data: %s", verdict)
	}
	for i, writes := range []int{1, 150} {
		dir := filepath.Join(t.TempDir(), "killed")
		writeAndKill(t, dir, writes)
		if verdict := look(fmt.Sprintf("killed %d", i), dir); verdict != acceptedByBoth {
			t.Errorf("data of a server that was killed after %d writes: %s", writes, verdict)
		}
	}
	dir := filepath.Join(t.TempDir(), "stored")
	acknowledged := runAndKill(t, roleStore, dir, 1)
	if verdict := look("killed once the key is stored", dir); verdict != acceptedByBoth {
		t.Errorf("data of a server that was killed once its write is in the database: %s", verdict)
	}
	output, err := childCommand(t, roleRead, dir).Output()
	if err != nil {
		t.Fatalf("starting again on that data: %v", err)
	}
	if found := foundKeys(string(output)); len(found) != 1 || found[acknowledged[0]] == "" {
		t.Errorf("after that start there are the keys %v, want %v", found, acknowledged)
	}
	for seed := range uint64(24) {
		random := rand.New(rand.NewPCG(seed, 3))
		dir := clone(t)
		target := datadir.ToBackendFileName(dir)
		if seed%2 == 1 {
			target = walFile(t, dir)
		}
		garbage := make([]byte, 1+random.IntN(4096))
		for n := range garbage {
			garbage[n] = byte(random.Uint32())
		}
		overwrite(t, target, random.Int64N(60*4096), garbage)
		look(fmt.Sprintf("seed %d", seed), dir)
	}
	t.Logf("%v", counts)
	if counts[refusedHere] == 0 {
		t.Error("no damage was found")
	}
}

// The tests start this test binary again as a child process, because a killed, locked out or crashed server cannot be had in
// the process of the test. These variables tell the child what to do.
const (
	childRoleVariable = "EMBEDDEDETCD_TEST_ROLE"
	childDirVariable  = "EMBEDDEDETCD_TEST_DIR"

	// roleWrite starts etcd and prints each key after it was acknowledged, until it is killed.
	roleWrite = "write"
	// roleStore starts etcd, writes one key into the database file, prints it, and waits until it is killed.
	roleStore = "store"
	// roleRead starts etcd, and prints all keys and values.
	roleRead = "read"
	// roleFill starts etcd, forbids itself to extend files, and writes until etcd ends.
	roleFill = "fill"
	// roleFull forbids itself to make files of some size, and starts etcd.
	roleFull = "full"
	// roleJudge has what our verification accepts verified by etcd's own.
	roleJudge = "judge"
)

func TestMain(m *testing.M) {
	role := os.Getenv(childRoleVariable)
	if role == "" {
		goleak.VerifyTestMain(m)
	}
	if err := child(role, os.Getenv(childDirVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func child(role, dir string) error {
	klog.LogToStderr(true)
	if role == roleJudge {
		return judge(dir)
	}
	if role == roleFull {
		if err := limitFiles(); err != nil {
			return err
		}
	}
	server, err := Start(context.Background(), Options{Dir: dir}) //nolint:forbidigo // This is the main of the child.
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		return err
	}
	switch role {
	case roleWrite:
		return writeForEver(client)
	case roleStore:
		return storeOne(client, server)
	case roleFill:
		if err := limitFiles(); err != nil {
			return err
		}
		go func() { _ = writeForEver(client) }()
		<-server.Done()
		return server.Err()
	default:
		return printAll(client, server)
	}
}

// limitFiles makes the kernel refuse to write beyond the first MiB of any file: as near to a full disk as an unprivileged
// process can get.
func limitFiles() error {
	signal.Ignore(syscall.SIGXFSZ)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20})
}

func writeForEver(client *clientv3.Client) error {
	filling := strings.Repeat("x", 2000)
	for n := 0; ; n++ {
		key := fmt.Sprintf("/test/%06d", n)
		if _, err := client.Put(context.Background(), key, filling); err != nil { //nolint:forbidigo // See child.
			return err
		}
		fmt.Println("acknowledged", key)
	}
}

// storeOne has a key in the database file while the log on disk does not say yet that the key was committed: etcd writes that out
// together with the next entry (raft.MustSync).
func storeOne(client *clientv3.Client, server *Server) error {
	const key = "/test/000000"
	if _, err := client.Put(context.Background(), key, "x"); err != nil { //nolint:forbidigo // See child.
		return err
	}
	if _, err := client.Defragment(context.Background(), server.Endpoint()); err != nil { //nolint:forbidigo // See child.
		return err
	}
	fmt.Println("acknowledged", key)
	<-server.Done()
	return server.Err()
}

func printAll(client *clientv3.Client, server *Server) error {
	response, err := client.Get(context.Background(), "/", clientv3.WithPrefix()) //nolint:forbidigo // See child.
	if err != nil {
		return err
	}
	for _, kv := range response.Kvs {
		fmt.Println("found", string(kv.Key), len(kv.Value))
	}
	return errors.Join(client.Close(), server.Close())
}

// childCommand returns the command for a child process, which is killed when it is still there after more than it takes on a busy machine.
func childCommand(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, os.Args[0])
	// The race detector waits a second at each exit for reports of other threads; a child has no use for that.
	command.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", childRoleVariable+"="+role, childDirVariable+"="+dir)
	return command
}

// writeAndKill runs a child that writes, kills it after some writes, and returns what was acknowledged.
func writeAndKill(t *testing.T, dir string, writes int) []string {
	t.Helper()
	return runAndKill(t, roleWrite, dir, writes)
}

// runAndKill is writeAndKill with the role of the child.
func runAndKill(t *testing.T, role, dir string, writes int) []string {
	t.Helper()
	command := childCommand(t, role, dir)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if key, found := strings.CutPrefix(lines.Text(), "acknowledged "); found {
			keys = append(keys, key)
		}
		if len(keys) == writes {
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := command.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v, want to have killed it", err)
	}
	if len(keys) < writes {
		t.Fatalf("child acknowledged %d writes, want at least %d", len(keys), writes)
	}
	return keys
}

// foundKeys returns the keys that a child with roleRead printed.
func foundKeys(output string) map[string]string {
	keys := map[string]string{}
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "found" {
			keys[fields[1]] = fields[2]
		}
	}
	return maps.Clone(keys)
}
