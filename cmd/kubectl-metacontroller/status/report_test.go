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

package status

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func before(seconds int) metav1.Time {
	return metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))
}

// composite is a CompositeController of the second generation, of which the first conditions tell Ready.
func composite(status v1alpha1.ControllerStatus) controllerobject.Object {
	c := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 2}}
	c.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "websites"}
	c.Spec.ServiceAccountRef = &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "web"}
	c.Status.ControllerStatus = status
	return controllerobject.Object{Composite: c}
}

func condition(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message, ObservedGeneration: 2}
}

func TestWhatIsSaidOfAController(t *testing.T) {
	ready := condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning, "")
	not := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	}
	old := ready
	old.ObservedGeneration = 1
	for name, tc := range map[string]struct {
		status v1alpha1.ControllerStatus
		want   string
	}{
		"no status": {v1alpha1.ControllerStatus{}, `
CompositeController web was not taken up by the engine yet.
  Next:
    kubectl describe apiservice v1alpha1.metacontroller.k8s.io
`},
		"a new object": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, Message: "No server has looked at it.",
		}}}, `
CompositeController web was not taken up by the engine yet.
  Next:
    kubectl describe apiservice v1alpha1.metacontroller.k8s.io
`},
		"a change that is not taken up": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{old}}, `
CompositeController web has a change that the engine has not taken up yet (generation 2, observed 1).
  Next:
    kubectl wait --for=condition=Ready compositecontroller/web
`},
		"all is well": {v1alpha1.ControllerStatus{
			Conditions: []metav1.Condition{ready, condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonSettled, "")},
			Counters:   &v1alpha1.ControllerCounters{Parents: 3, Synced: 3, Syncs: 1},
			Hooks: []v1alpha1.HookStatus{
				{Name: "sync", Calls: 7, P50Milliseconds: new(int64(3)), P99Milliseconds: new(int64(9)), LastSuccessTime: new(before(5))},
				{Name: "finalize"},
			},
		}, `
CompositeController web is ready.
  Of 3 parents, 3 synced.
  Since the controller started: 1 sync, 0 failed.
  Hook sync: 7 calls, half of them within 3 ms, 99 of 100 within 9 ms; the last one succeeded 5s ago.
  Hook finalize: not called yet.
`},
		"much is wrong with parents": {v1alpha1.ControllerStatus{
			Conditions: []metav1.Condition{
				ready, condition(v1alpha1.ConditionDeletionsHeld, metav1.ConditionTrue, v1alpha1.ReasonLimitPassed, "12 deletions are held."),
				condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRollingUpdate, "2 children\nare left."),
			},
			Counters: &v1alpha1.ControllerCounters{
				Parents: 9, Synced: 3, Failing: 2, Pending: 1, Unsettled: 1, Syncs: 40, FailedSyncs: 4, RejectedAnswers: 1, Conflicts: 2, Flapping: 3,
			},
			LastErrors: []v1alpha1.ParentError{
				{Group: "example.com", Resource: "websites", Namespace: "shop", Name: "a", Time: before(70), Message: "no\nluck"},
				{Resource: "nodes", Name: "n", Time: before(3), Message: "none"},
			},
		}, `
CompositeController web is ready, but syncs of 2 parents fail.
  Of 9 parents, 3 synced, 2 failing, 1 waiting to be synced.
  Since the controller started: 44 syncs, 4 failed, 1 parent slowed down because of never settling, 1 response of hooks rejected, 2 creations stopped by an object of another owner, 3 children left alone because of changing back, or being deleted each time.
  DeletionsHeld is True (LimitPassed): 12 deletions are held.
  Progressing is True (RollingUpdate): 2 children are left.
  websites.example.com/shop/a, 70s ago: no luck
  nodes/n, 3s ago: none
  Next:
    kubectl -n default events --for compositecontroller/web   # its message has the command that confirms the deletions
    kubectl -n shop events --for websites.example.com/a
`},
		"a hook that fails": {v1alpha1.ControllerStatus{
			Conditions: []metav1.Condition{
				not(v1alpha1.ReasonHookFailing, "No sync can succeed. The sync hook fails: refused."),
				condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionFalse, v1alpha1.ReasonHookFailing, "The sync hook fails: refused."),
			},
			Hooks: []v1alpha1.HookStatus{{
				Name: "sync", Calls: 1, LastSuccessTime: new(before(60)), LastFailureTime: new(before(5)), LastFailure: "refused",
			}},
			LastErrors: []v1alpha1.ParentError{{Resource: "pods", Namespace: "a", Name: "b", Time: before(5), Message: "sync hook failed: refused"}},
		}, `
CompositeController web is not ready (HookFailing): No sync can succeed. The sync hook fails: refused.
  Hook sync: 1 call; the last one failed 5s ago.
  pods/a/b, 5s ago: sync hook failed: as above
  Next:
    kubectl -n a events --for pods/b
`},
		"a hook that fails, and no error of a parent": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
			ready, condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionFalse, v1alpha1.ReasonCredentialsMissing, "The sync hook cannot be called."),
		}}, `
CompositeController web is ready.
  HooksHealthy is False (CredentialsMissing): The sync hook cannot be called.
  Next:
    kubectl metacontroller parents cc/web --all --state=Failing
`},
		"parents that do not settle": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
			ready, condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionFalse, v1alpha1.ReasonResponsesDiffer, "1 parent does not settle."),
			condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonChangedBack, "2 parents do not settle."),
		}}, `
CompositeController web is ready.
  HooksHealthy is False (ResponsesDiffer): 1 parent does not settle.
  Progressing is True (ChangedBack): 2 parents do not settle.
  Next:
    kubectl metacontroller explain-loop cc/web NAMESPACE/PARENT   # of the parent that the condition names
`},
		"rights that are missing": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
			not(v1alpha1.ReasonRightMissing, "It is held."), condition(v1alpha1.ConditionPermitted, metav1.ConditionFalse, v1alpha1.ReasonRightMissing, "Grant list."),
		}}, `
CompositeController web is not ready (RightMissing): It is held.
  Permitted is False (RightMissing): Grant list.
  Next:
    kubectl metacontroller rbac cc/web | kubectl apply -f -   # with --server-account=NAMESPACE/NAME, unless the server's account is metacontroller/metacontroller-apiserver
`},
		"a cluster-scoped parent": {v1alpha1.ControllerStatus{
			Conditions: []metav1.Condition{ready},
			LastErrors: []v1alpha1.ParentError{{Resource: "nodes", Name: "n", Time: before(3), Message: "none"}},
		}, `
CompositeController web is ready.
  nodes/n, 3s ago: none
  Next:
    kubectl -n default events --for nodes/n
`},
		"no service account": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
			not(v1alpha1.ReasonServiceAccountNotFound, "It is held."),
			condition(v1alpha1.ConditionPermitted, metav1.ConditionFalse, v1alpha1.ReasonServiceAccountNotFound, "It is held."),
		}}, `
CompositeController web is not ready (ServiceAccountNotFound): It is held.
  Next:
    kubectl -n team create serviceaccount web
`},
		"a kind that is not served": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
			not(v1alpha1.ReasonResourceNotFound, "No things."),
			condition(v1alpha1.ConditionEstablished, metav1.ConditionFalse, v1alpha1.ReasonResourceNotFound, "No things."),
			condition(v1alpha1.ConditionResourcesServed, metav1.ConditionFalse, v1alpha1.ReasonResourceNotFound, "No things."),
			condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionUnknown, v1alpha1.ReasonNotRunning, ""),
		}}, `
CompositeController web is not ready (ResourceNotFound): No things.
  Next:
    kubectl api-resources   # the plural names and groups of what is served
`},
		"a kind that is not served, by which the hook fails": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
			not(v1alpha1.ReasonHookFailing, "No sync can succeed. The sync hook fails: LookupError."),
			condition(v1alpha1.ConditionHooksHealthy, metav1.ConditionFalse, v1alpha1.ReasonHookFailing, "The sync hook fails: LookupError."),
			condition(v1alpha1.ConditionEstablished, metav1.ConditionFalse, v1alpha1.ReasonResourceNotFound, "No things."),
		}}, `
CompositeController web is not ready (HookFailing): No sync can succeed. The sync hook fails: LookupError.
  Established is False (ResourceNotFound): No things.
  Next:
    kubectl api-resources   # the plural names and groups of what is served
    kubectl metacontroller parents cc/web --all --state=Failing
`},
		"paused": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
			not(v1alpha1.ReasonPaused, "It is paused."), condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused, "It is paused."),
		}}, `
CompositeController web is paused.
  Next:
    kubectl metacontroller resume cc/web
`},
		"no parents": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{ready}, Counters: &v1alpha1.ControllerCounters{}}, `
CompositeController web is ready.
  It has no parents.
  Next:
    kubectl get websites.example.com --all-namespaces   # the controller selects none of them
`},
		"another reason": {v1alpha1.ControllerStatus{Conditions: []metav1.Condition{not(v1alpha1.ReasonNotSelected, "Not selected.")}}, `
CompositeController web is not ready (NotSelected): Not selected.
  Next:
    kubectl -n default events --for compositecontroller/web
`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), report(composite(tc.status), nil, nil, now, true)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// In the list of all controllers, hooks are told of where something is wrong only.
func TestTheListIsShort(t *testing.T) {
	status := v1alpha1.ControllerStatus{
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning, "")},
		Hooks:      []v1alpha1.HookStatus{{Name: "sync"}},
	}
	if got := report(composite(status), nil, nil, now, false); strings.Contains(got, "Hook") {
		t.Errorf("got\n%s", got)
	}
	status.LastErrors = []v1alpha1.ParentError{{Resource: "pods", Name: "b", Time: before(5), Message: "no"}}
	if got := report(composite(status), nil, nil, now, false); !strings.Contains(got, "Hook sync") {
		t.Errorf("got\n%s", got)
	}
}

// The status of a controller is written from time to time; its parents are as they are now.
func TestParentsAreThoseOfNow(t *testing.T) {
	object := composite(v1alpha1.ControllerStatus{
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning, "")},
		Counters:   &v1alpha1.ControllerCounters{Parents: 1, Synced: 1, FailedSyncs: 8},
	})
	object.Composite.ManagedFields = []metav1.ManagedFieldsEntry{
		{Subresource: "status", Time: new(before(99))}, {Subresource: "status", Time: new(before(25))}, {Time: new(before(2))},
	}
	const old = `CompositeController web is ready.
  Of 1 parent, 1 synced (as of 25s ago).
  Since the controller started: 8 syncs, 8 failed (as of 25s ago).
`
	if diff := cmp.Diff(old, report(object, nil, nil, now, false)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const failure = "calling http://localhost:1/sync: connection refused, as it is when nobody listens"
	reference := v1alpha1.ParentReference{Group: "example.com", Resource: "websites", Namespace: "shop", Name: "a"}
	second := reference
	second.Name = "b"
	live := &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{
		{ParentReference: reference, State: v1alpha1.ParentFailing, LastError: "sync hook failed: " + failure[:50] + "…", LastSyncTime: new(before(3))},
		{ParentReference: second, State: v1alpha1.ParentFailing, LastError: "sync hook failed: " + failure, LastSyncTime: new(before(4))},
		{State: v1alpha1.ParentPaused},
		{State: v1alpha1.ParentHeld},
		{State: v1alpha1.ParentWaiting},
		{State: v1alpha1.ParentSyncing},
	}}
	object.Status().Hooks = []v1alpha1.HookStatus{{Name: "sync", Calls: 8, LastFailureTime: new(before(3)), LastFailure: failure}}
	const want = `CompositeController web is ready, but syncs of 2 parents fail.
  Of 6 parents, 0 synced, 2 failing, 1 waiting to be synced, 1 waiting for something else, 1 held, 1 paused.
  Since the controller started: 8 syncs, 8 failed (as of 25s ago).
  Hook sync: 8 calls; the last one failed 3s ago: calling http://localhost:1/sync: connection refused, as it is when nobody listens
  websites.example.com/shop/a, 3s ago: sync hook failed: as above
  websites.example.com/shop/b, 4s ago: sync hook failed: as above
  Next:
    kubectl -n shop events --for websites.example.com/a
`
	if diff := cmp.Diff(want, report(object, live, nil, now, false)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The finalize hook may keep a parent while nothing fails.
func TestWhatParentsWaitForIsShownByACommand(t *testing.T) {
	object := composite(v1alpha1.ControllerStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning, "")}})
	live := &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{{State: v1alpha1.ParentWaiting}}}
	const want = `CompositeController web is ready.
  Of 1 parent, 0 synced, 1 waiting for something else.
  Next:
    kubectl metacontroller parents cc/web --all --state=Waiting   # for what they wait
`
	if diff := cmp.Diff(want, report(object, live, nil, now, false)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A response that is rejected fails the hook and the parent with one sentence.
func TestWhatIsSaidOfAResponseIsNotRepeated(t *testing.T) {
	const why = `children: must be a list, is an object`
	for message, want := range map[string]string{
		"sync hook failed (version=v2): " + why:                    "sync hook failed (version=v2): as above",
		"sync hook failed (version=v2): status: must be an object": "sync hook failed (version=v2): status: must be an object",
		"sync hook failed (version=v2): ":                          "sync hook failed (version=v2): ",
	} {
		if got := brief(message, nil, "  Hook sync: 6 calls; the last one failed 0s ago: calling http://a/sync: "+why+"; correct the response of the hook\n"); got != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
}

// cluster has a controller of each kind.
var cluster = connectiontest.Documents{
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers":     `{"kind":"CompositeControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"web"}}]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers":     `{"kind":"DecoratorControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"labels"}}]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web": `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"web"}}`,
}

func TestControllersAreThemselvesPrintedInFormats(t *testing.T) {
	for what, tc := range map[string]struct {
		args []string
		want string
		err  string
	}{
		"no format":                  {[]string{"cc/web"}, "CompositeController web was not taken up by the engine yet.\n", ""},
		"a name":                     {[]string{"cc/web", "-o", "name"}, "compositecontroller.metacontroller.k8s.io/web\n", ""},
		"names":                      {[]string{"-o", "name"}, "compositecontroller.metacontroller.k8s.io/web\ndecoratorcontroller.metacontroller.k8s.io/labels\n", ""},
		"a path":                     {[]string{"-o", "jsonpath={.items[*].metadata.name}"}, "web labels", ""},
		"a template alone":           {[]string{"--template", "{{range .items}}{{.kind}} {{end}}"}, "CompositeController DecoratorController ", ""},
		"a format that is not known": {[]string{"cc/none", "-o", "wide"}, "", `--output: "wide" is not known: use one of json, `},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, NewCommand, cluster, tc.args...)
			if !strings.HasPrefix(printed, tc.want) || (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("printed %q, error %v; want %q, %q", printed, err, tc.want, tc.err)
			}
		})
	}
}

// A fight ends with the command that names both sides.
func TestAParentThatDoesNotSettleIsExplained(t *testing.T) {
	object := composite(v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
		condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning, ""),
		condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonChangedBack, "1 parent does not settle."),
	}})
	live := &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{
		{ParentReference: v1alpha1.ParentReference{Namespace: "shop", Name: "a"}, State: v1alpha1.ParentHeld, Message: "1 deletion is held"},
		{ParentReference: v1alpha1.ParentReference{Namespace: "shop", Name: "b"}, State: v1alpha1.ParentHeld, Message: "it does not settle, and is held back"},
	}}
	if got, want := report(object, live, nil, now, true), "    kubectl metacontroller explain-loop cc/web shop/b\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant at its end\n%s", got, want)
	}
}

func TestWarningsAreOfTheControllerAndLately(t *testing.T) {
	const mine = "metacontroller.io/compositecontroller-web"
	of := func(controller, kind, message string, seconds int) Warning {
		return Warning{controller: controller, kind: kind, name: "web", about: "shop/web", reason: "ChildWarning", message: message, time: before(seconds)}
	}
	got := warningLines(composite(v1alpha1.ControllerStatus{}), []Warning{
		of(mine, "Website", "first", 3), of(mine, "Website", "first", 4), of("metacontroller.io/compositecontroller-other", "Website", "of another", 5),
		of("metacontroller", "CompositeController", "second", 6), of(mine, "Website", "third", 7), of(mine, "Website", "fourth", 8),
	}, now)
	want := []string{
		"ChildWarning, Website shop/web, 3s ago: first", "ChildWarning, CompositeController shop/web, 6s ago: second",
		"ChildWarning, Website shop/web, 7s ago: third",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if old := warningLines(composite(v1alpha1.ControllerStatus{}), []Warning{of(mine, "Website", "old", 3601)}, now); len(old) != 0 {
		t.Errorf("got %q of more than an hour ago", old)
	}
}

func TestWarningsAreReadFromEvents(t *testing.T) {
	events := connectiontest.Documents{
		"/api/v1/events": `{"kind":"EventList","apiVersion":"v1","items":[
			{"kind":"Event","apiVersion":"v1","metadata":{"name":"a"},"reason":"SyncError","message":"told above","lastTimestamp":"` + time.Now().UTC().Format(time.RFC3339) + `",
				"involvedObject":{"kind":"Website","namespace":"shop","name":"a"},"reportingComponent":"metacontroller.io/compositecontroller-web"},
			{"kind":"Event","apiVersion":"v1","metadata":{"name":"c"},"reason":"CreateError","message":"told above","lastTimestamp":"` + time.Now().UTC().Format(time.RFC3339) + `",
				"involvedObject":{"kind":"CompositeController","name":"web"},"reportingComponent":"metacontroller.io/compositecontroller-web"},
			{"kind":"Event","apiVersion":"v1","metadata":{"name":"b"},"reason":"ChildWarning","message":"unknown field","lastTimestamp":"` + time.Now().UTC().Format(time.RFC3339) + `",
				"involvedObject":{"kind":"Website","namespace":"shop","name":"a"},"reportingComponent":"metacontroller.io/compositecontroller-web"}]}`,
	}
	maps.Copy(events, cluster)
	printed, err := connectiontest.Run(t, NewCommand, events, "cc/web")
	if err != nil || !strings.Contains(printed, "  Warnings of the last hour, which may be over:\n    ChildWarning, Website shop/a, ") || !strings.Contains(printed, " ago: unknown field\n") || strings.Contains(printed, "told above") {
		t.Errorf("printed %q, error %v", printed, err)
	}
}
