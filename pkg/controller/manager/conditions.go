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

package manager

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// state decides what is true of a controller, under which reason, and what people are told to do. It is pure: when conditions are written is
// the business of report.
type state struct{ *reconciler.State }

// conditions returns the conditions of a running controller, without generation and time: Ready is the first.
func (s state) conditions() []metav1.Condition {
	return []metav1.Condition{s.ready(), s.established(), s.hooksHealthy(), s.permitted(), s.progressing()}
}

// conditionsNotRunning returns the conditions of a controller that does not run, and why: Ready is the first. Releasing says how far the release
// of finalizers is, empty if none is under way.
func conditionsNotRunning(reason, message, releasing string) []metav1.Condition {
	idle := state{&reconciler.State{Releasing: releasing}}
	progressing := idle.progressing()
	if releasing == "" {
		progressing = condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonNotRunning, "The controller does not run.")
	}
	return []metav1.Condition{
		condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message),
		condition(v1alpha1.ConditionEstablished, metav1.ConditionFalse, reason, message),
		condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionUnknown, v1alpha1.ReasonNotRunning, "The controller does not run and calls no hook."),
		condition(v1alpha1.ConditionPermitted, metav1.ConditionUnknown, v1alpha1.ReasonNotRunning, "The controller does not run and uses no right."),
		progressing,
	}
}

// conditionNotServing returns the condition about the resources of a controller that does not run for a reason other than theirs.
func conditionNotServing() metav1.Condition {
	return condition(v1alpha1.ConditionResourcesServed, metav1.ConditionUnknown, v1alpha1.ReasonNotRunning, "The controller does not run.")
}

// conditionServed returns the condition about the resources that the definition names.
func conditionServed(missing []string) metav1.Condition {
	if len(missing) > 0 {
		return condition(v1alpha1.ConditionResourcesServed, metav1.ConditionFalse, v1alpha1.ReasonResourceNotFound, lacking(missing))
	}
	return condition(v1alpha1.ConditionResourcesServed, metav1.ConditionTrue, v1alpha1.ReasonServed,
		"The cluster serves every resource that the definition names.")
}

func lacking(missing []string) string {
	return fmt.Sprintf("The cluster does not serve %s. The controller runs without, and takes up what appears. Install what is missing, "+
		"or remove it from spec.", strings.Join(missing, ", "))
}

func (s state) ready() metav1.Condition {
	is := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	}
	switch reason, starting := s.starting(); {
	case s.Paused:
		return is(v1alpha1.ReasonPaused, s.pause())
	case starting != "":
		return is(reason, starting)
	case s.Permission.Held:
		permitted := s.permitted()
		return is(permitted.Reason, permitted.Message)
	case slices.ContainsFunc(s.Hooks, func(h reconciler.FailingHook) bool { return h.Blocking }):
		return is(s.reason(), "No sync can succeed. "+s.failures())
	case s.SyncsFailing && len(s.Hooks) > 0:
		return is(s.reason(), "The last sync of every parent has failed. "+s.failures())
	case s.SyncsFailing:
		return is(v1alpha1.ReasonSyncsFailing, fmt.Sprintf("The last sync of every parent has failed, for the longest time that of %s. Correct what "+
			"the error names; syncs are retried. See also status.lastErrors, and the events of the parents.", s.Error))
	}
	return condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning, "The controller runs.")
}

// waiting are the reasons for which Ready is False until something else happens that is under way, or was asked for.
var waiting = []string{
	v1alpha1.ReasonStarting, v1alpha1.ReasonResourceNotFound, v1alpha1.ReasonRightsUnknown, v1alpha1.ReasonTerminating, v1alpha1.ReasonPaused,
}

// stalled reports whether a controller is stalled for the reason of its condition Ready, and returns the condition that says so.
func stalled(ready metav1.Condition) (metav1.Condition, bool) {
	is := ready.Status == metav1.ConditionFalse && !slices.Contains(waiting, ready.Reason)
	return condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, ready.Reason, ready.Message), is
}

// starting says why parents are not reconciled yet, nothing if they are.
func (s state) starting() (reason, message string) {
	switch {
	case s.Problem != nil:
		if apierrors.IsForbidden(s.Problem) {
			return v1alpha1.ReasonRightMissing, fmt.Sprintf("Cannot watch: %v. Allow the user get, list and watch of it by a ClusterRole; "+
				"the controller starts by itself then.", s.Problem)
		}
		return v1alpha1.ReasonStarting, fmt.Sprintf("Cannot watch: %v", s.Problem)
	case !s.Started:
		return v1alpha1.ReasonStarting, "Reading the objects that the controller watches."
	case asking(&s.Permission):
		return v1alpha1.ReasonStarting, fmt.Sprintf("Asking the cluster what the service account %s may do.", s.Permission.Account)
	}
	return "", ""
}

// reason is why hooks fail: credentials are not the reason unless they are for all.
func (s state) reason() string {
	if slices.ContainsFunc(s.Hooks, func(h reconciler.FailingHook) bool { return !h.Credentials }) {
		return v1alpha1.ReasonHookFailing
	}
	return v1alpha1.ReasonCredentialsMissing
}

func (s state) failures() string {
	sentences := make([]string, len(s.Hooks))
	for i, h := range s.Hooks {
		verb := "fails"
		if h.Credentials {
			verb = "cannot be called"
		}
		sentences[i] = fmt.Sprintf("The %s hook %s since %s: %s.", h.Name, verb, h.Since.UTC().Format(time.RFC3339), strings.TrimSuffix(h.Cause, "."))
	}
	return strings.Join(sentences, " ")
}

func (s state) established() metav1.Condition {
	is := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionEstablished, metav1.ConditionFalse, reason, message)
	}
	switch reason, starting := s.starting(); {
	case starting != "":
		return is(reason, starting)
	case len(s.Missing) > 0:
		return is(v1alpha1.ReasonResourceNotFound, lacking(s.Missing))
	}
	return condition(v1alpha1.ConditionEstablished, metav1.ConditionTrue, v1alpha1.ReasonEstablished,
		"The cluster serves every resource that the definition names, and the caches are filled.")
}

func (s state) hooksHealthy() metav1.Condition {
	switch {
	case len(s.Hooks) > 0:
		return condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionFalse, s.reason(), s.failures())
	case s.Differing > 0:
		return condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionFalse, v1alpha1.ReasonResponsesDiffer, fmt.Sprintf(
			"%s not settle, since each response of the hook differs from the one before. Lately %s.", parentsDo(s.Differing),
			strings.TrimSuffix(s.DiffersAt, ".")))
	case !s.Called:
		return condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionUnknown, v1alpha1.ReasonNotCalled, "No hook was called yet.")
	}
	return condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionTrue, v1alpha1.ReasonResponding, "The hooks return responses that can be used.")
}

func (s state) progressing() metav1.Condition {
	var reason string
	var sentences []string
	add := func(r, sentence string) {
		if reason == "" {
			reason = r
		}
		sentences = append(sentences, sentence)
	}
	if s.Unsynced > 0 {
		add(v1alpha1.ReasonFirstSync, fmt.Sprintf("Syncing every parent once since the start; %d of %d left.", s.Unsynced, s.Parents))
	}
	if s.Rolling > 0 {
		add(v1alpha1.ReasonRollingUpdate, fmt.Sprintf("Updating children to the latest revision; %d left, of %s. The condition Updated "+
			"of a parent says what it waits for.", s.Outdated, countOf(s.Rolling)))
	}
	if s.Finalizing > 0 {
		add(v1alpha1.ReasonFinalizing, fmt.Sprintf("The finalize hook has not returned \"finalized\": true for %s, and they stay until it does. See the "+
			"log of the hook, or what an inline one has in finalized, and the events of the parents, or of this object where their namespace is being deleted. It takes longest for %s.",
			countOf(s.Finalizing), strings.TrimSuffix(s.FinalizingAt, ".")))
	}
	if s.ChangedBack > 0 {
		add(v1alpha1.ReasonChangedBack, fmt.Sprintf("%s not settle, since another client writes as well. Lately %s.",
			parentsDo(s.ChangedBack), strings.TrimSuffix(s.ChangedBackAt, ".")))
	}
	if s.Releasing != "" {
		add(v1alpha1.ReasonReleasing, s.Releasing)
	}
	still := func(reason, sentence string) metav1.Condition {
		return condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, reason, strings.Join(append([]string{sentence}, sentences...), " "))
	}
	switch {
	case s.Paused && s.UnderWay == 0:
		return still(v1alpha1.ReasonPaused, "Nothing is done while the controller is paused.")
	case s.Permission.Held && s.UnderWay == 0 && s.Releasing == "":
		return still(s.permitted().Reason, "Nothing is done until the service account may read what hooks are shown: see the condition Permitted.")
	}
	if reason == "" {
		return condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonSettled, "Nothing is under way.")
	}
	return condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, reason, strings.Join(sentences, " "))
}

func countOf(n int) string {
	if n == 1 {
		return "1 parent"
	}
	return fmt.Sprintf("%d parents", n)
}

// parentsDo begins a sentence about what some parents do not do.
func parentsDo(n int) string {
	if n == 1 {
		return "1 parent does"
	}
	return fmt.Sprintf("%d parents do", n)
}

func condition(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message}
}

// asking reports whether the cluster has not responded for the first time.
func asking(p *access.State) bool { return p.Account != "" && !p.Known && p.Problem == nil }

// untilThen ends a message about a controller that is held.
const untilThen = " No parent is synced until then."

// permitted returns the condition about the rights of the controller's service account.
func (s state) permitted() metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionPermitted, status, reason, message)
	}
	switch p := &s.Permission; {
	case p.Account == "":
		return is(metav1.ConditionTrue, v1alpha1.ReasonServerRights,
			"The controller acts with the rights of the server, since it has no spec.serviceAccountRef.")
	case asking(p):
		return is(metav1.ConditionUnknown, v1alpha1.ReasonStarting, fmt.Sprintf("Asking the cluster what the service account %s may do.", p.Account))
	case !p.Known:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonRightsUnknown, fmt.Sprintf("The cluster does not say what the service account %s may "+
			"do: %v. The server needs the ClusterRole system:auth-delegator and get on serviceaccounts; it asks again every few seconds."+untilThen,
			p.Account, p.Problem))
	case p.NotFound:
		return is(metav1.ConditionFalse, v1alpha1.ReasonServiceAccountNotFound, fmt.Sprintf("The service account %s does not exist. Create it, "+
			"or change spec.serviceAccountRef."+untilThen, p.Account))
	case p.NotImpersonated:
		return is(metav1.ConditionFalse, v1alpha1.ReasonRightMissing, fmt.Sprintf("The server lacks: impersonate serviceaccounts %s. Grant it to the "+
			"server; \"metacontroller-apiserver rbac %s\" prints how."+untilThen, p.Account, s.Object))
	case len(p.Missing) > 0:
		until := ""
		if p.Held {
			until = " No parent is synced before the account may list and watch what hooks are shown."
		}
		return is(metav1.ConditionFalse, v1alpha1.ReasonRightMissing, fmt.Sprintf("The service account %s lacks, in all namespaces unless one is "+
			"named: %s. Grant that to it; \"metacontroller-apiserver rbac %s\" prints all that the controller needs. The server looks again "+
			"every 30 seconds."+until, p.Account, p.Lacks(), s.Object))
	}
	return is(metav1.ConditionTrue, v1alpha1.ReasonPermitted, fmt.Sprintf("The service account %s has the rights that the controller is known to need.",
		s.Permission.Account))
}

// holding returns the condition DeletionsHeld.
func (s state) holding() metav1.Condition {
	if s.Held == "" {
		return condition(v1alpha1.ConditionDeletionsHeld, metav1.ConditionFalse, v1alpha1.ReasonNoneHeld, "No deletion is held.")
	}
	return condition(v1alpha1.ConditionDeletionsHeld, metav1.ConditionTrue, v1alpha1.ReasonLimitPassed, s.Held)
}

// pausing returns the condition Paused.
func (s state) pausing() metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionPaused, status, reason, message)
	}
	switch {
	case !s.Paused:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNotPaused, "spec.paused is not true.")
	case s.UnderWay > 0:
		return is(metav1.ConditionFalse, v1alpha1.ReasonPausing, fmt.Sprintf("spec.paused is true. Ending what is under way: %d left.", s.UnderWay))
	}
	return is(metav1.ConditionTrue, v1alpha1.ReasonPaused, s.pause())
}

// pause says what a pause is, and how it ends.
func (s state) pause() string {
	return fmt.Sprintf("spec.paused is true: no hook is called, and nothing is written to parents, children and revisions. Changes are noted, "+
		"and synced when it is false again: kubectl patch %s --type=merge -p '{\"spec\":{\"paused\":false}}'", s.Object)
}
