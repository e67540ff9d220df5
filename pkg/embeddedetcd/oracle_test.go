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
	if err := guarded(func() error { return verify.Verify(verify.Config{DataDir: dir, Logger: zap.NewNop()}) }); err != nil {
		return fmt.Errorf("etcd refuses what is accepted here: %w", err)
	}
	fmt.Println(acceptedByBoth)
	return nil
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
