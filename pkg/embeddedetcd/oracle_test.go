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
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/verify"
	"go.uber.org/zap"
)

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
