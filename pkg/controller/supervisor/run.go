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

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// checkInterval is how often the problems of a running instance are read.
const checkInterval = 2 * time.Second

// errEnded says that an instance ended before its context did.
var errEnded = errors.New("the controller ended by itself")

// run runs an instance until its spec changes, the resources that it depends on change, or ctx ends. The error says that it
// ended by itself.
func (s *Supervisor) run(ctx context.Context, d definition.Definition, fingerprint []string, instance Instance) error {
	logger, name := klog.FromContext(ctx), d.Meta.Name
	s.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStarting, "Starting controller: "+name)
	s.report.starting(d, instance)

	running, stop := context.WithCancel(ctx)
	var instances sync.WaitGroup
	ended := make(chan error, 1)
	instances.Go(func() {
		ended <- recovery.Call(running, "running the controller", func() error {
			instance.Run(running)
			return errEnded
		})
	})
	defer func() {
		s.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStopping, "Stopping controller: "+name)
		stop()
		instances.Wait()
		s.report.stopped()
		logger.V(2).Info("Controller stopped", "generation", d.Meta.Generation)
		s.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStopped, "Stopped controller: "+name)
	}()

	checks := time.NewTicker(checkInterval)
	defer checks.Stop()
	started := instance.Started()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-started:
			started = nil
			logger.V(2).Info("Controller runs", "generation", d.Meta.Generation)
			s.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStarted, "Started controller: "+name)
			s.check(ctx, d, instance, true)
		case <-checks.C:
			s.check(ctx, d, instance, started == nil)
		case <-s.wake:
			latest, fits := s.reconsider(ctx, d, fingerprint, instance)
			if !fits {
				return nil
			}
			d = latest
		}
	}
}

// reconsider decides whether the running instance still fits the latest definition, which it returns.
func (s *Supervisor) reconsider(
	ctx context.Context, d definition.Definition, fingerprint []string, instance Instance,
) (latest definition.Definition, fits bool) {
	latest = s.latest()
	if latest.Meta.DeletionTimestamp != nil || !latest.SameSpec(d) ||
		changed(fingerprint, s.config.Builder.Fingerprint(ctx, latest)) {
		return latest, false
	}
	if !latest.SameToHooks(d) {
		if err := instance.Redefine(latest); err != nil {
			klog.FromContext(ctx).Error(err, "Hooks still see the former metadata of the controller")
		}
	}
	return latest, true
}

// check publishes whether the instance sees its objects, and does what could not be done before.
func (s *Supervisor) check(ctx context.Context, d definition.Definition, instance Instance, started bool) {
	s.report.served(d, instance.Missing())
	problem := instance.Problem()
	switch {
	case problem != nil:
		if s.report.notReady(d, v1alpha1.ReasonStarting, fmt.Sprintf("Cannot watch: %v", problem)) {
			s.config.Recorder.Warning(d.Reference(), eventrecorder.ReasonSyncError, "Cannot watch: "+problem.Error())
		}
	case started:
		s.report.ready(d)
	}
	if err := s.hold(ctx, s.latest()); err != nil {
		klog.FromContext(ctx).V(2).Info("Finalizer of the controller object is not written yet", "err", err)
	}
}
