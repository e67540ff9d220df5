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

package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Directions of a move.
const (
	forward   = "forward"
	backward  = "back"
	finishing = "finish"
)

// state is what has to be known of a move when it goes on in another process.
type state struct {
	// Direction is where to, and Step the last step in this direction that is done. Empty: none.
	Direction string `json:"direction"`
	Step      string `json:"step,omitempty"`
	// Done says that the direction has ended.
	Done bool `json:"done,omitempty"`
	// Source is the digest of the objects that were copied.
	Source string `json:"source,omitempty"`
	// Workload is that of Metacontroller, as kind/namespace/name, and Replicas those that it had.
	Workload string `json:"workload,omitempty"`
	Replicas int32  `json:"replicas,omitempty"`
	// Former is who held the Lease, and FormerSeconds how long it counts without a renewal.
	Former        string `json:"former,omitempty"`
	FormerSeconds int32  `json:"formerSeconds,omitempty"`
	// Began says that this server's controllers may have run with the objects, so that its store has the latest ones.
	Began bool `json:"began,omitempty"`
}

// step is a part of a move. It may be run again after it was interrupted anywhere.
type step struct {
	name, sentence string
	run            func(ctx context.Context) error
}

// proceed runs the steps that follow the one that is done, and has each saved when it is.
func proceed(ctx context.Context, steps []step, done string, save func(ctx context.Context, name string) error, say func(string)) error {
	next := 0
	if done != "" {
		next = slices.IndexFunc(steps, func(s step) bool { return s.name == done }) + 1
		if next == 0 {
			return fmt.Errorf("the state names a step %q that this version does not have: go on with the version that began", done)
		}
	}
	for _, s := range steps[next:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		say(s.name + ": " + s.sentence)
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := save(ctx, s.name); err != nil {
			return err
		}
	}
	return nil
}

const (
	// ConfigMapName is the name of the ConfigMap with the state of a move, in the namespace of this server.
	ConfigMapName = "metacontroller-apiserver-migration"
	stateKey      = "state"
)

// stateStore keeps the state in a ConfigMap. What another process wrote meanwhile is a conflict: two moves at once are none.
type stateStore struct {
	client  typedcorev1.ConfigMapInterface
	version string
	// removed says that the move has ended, and leaves nothing.
	removed bool
}

// load returns the state, nil if there is none.
func (s *stateStore) load(ctx context.Context) (*state, error) {
	found, err := s.client.Get(ctx, ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // There is none.
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	s.version = found.ResourceVersion
	loaded := &state{}
	if err := json.Unmarshal([]byte(found.Data[stateKey]), loaded); err != nil {
		return nil, fmt.Errorf("reading the state in ConfigMap %s: %w", ConfigMapName, err)
	}
	return loaded, nil
}

func (s *stateStore) save(ctx context.Context, current *state) error {
	if s.removed {
		return nil
	}
	text, err := json.Marshal(current)
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, ResourceVersion: s.version},
		Data: map[string]string{
			stateKey: string(text), "written": time.Now().UTC().Format(time.RFC3339),
			"about": "metacontroller-apiserver migrate goes on from here; do not edit this",
		},
	}
	var saved *corev1.ConfigMap
	if s.version == "" {
		saved, err = s.client.Create(ctx, object, metav1.CreateOptions{})
	} else {
		saved, err = s.client.Update(ctx, object, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another process moves at the same time: let one end: %s", err) //nolint:errorlint // It is no conflict that another try would end.
	}
	if err != nil {
		return fmt.Errorf("saving the state in ConfigMap %s: %w", ConfigMapName, err)
	}
	s.version = saved.ResourceVersion
	return nil
}

func (s *stateStore) remove(ctx context.Context) error {
	err := s.client.Delete(ctx, ConfigMapName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ConfigMap %s: %w", ConfigMapName, err)
	}
	s.removed = true
	return nil
}
