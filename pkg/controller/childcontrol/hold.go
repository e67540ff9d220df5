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

package childcontrol

import (
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// hold takes the deletions out of a plan unless they may be carried out. It reports whether it did.
func (c *Control) hold(key parent.Key, owner *object.Object, p plan.Plan) (plan.Plan, bool) {
	deletions := p.Deletions()
	admitted, first, news := c.config.Guard.Admit(key, deletions, time.Now())
	if admitted {
		return p, false
	}
	if held, ok := c.config.Guard.Held(); ok && news {
		message := held.Explain(c.config.KubectlName)
		c.config.Recorder.Warning(Reference(owner), nil, eventrecorder.ReasonDeletionsHeld, loopguard.CountDeletions(len(deletions))+" held. "+message)
		if first {
			c.config.Recorder.Warning(c.config.Controller, nil, eventrecorder.ReasonDeletionsHeld, message)
		}
	}
	return p.WithoutDeletions(), true
}

// deleted tells the guard which deletions were carried out, or may have been, and which were not.
func (c *Control) deleted(outcomes []plan.Outcome) {
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case !o.Deletes():
		case o.Done || o.Unknown:
			c.config.Guard.Done(o.Observed.UID())
		default:
			c.config.Guard.Undone(o.Observed.UID(), time.Now())
		}
	}
}
