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

package gitops

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/engine"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// waiting is how Flux waits, more often than it does.
var waiting = ssa.WaitOptions{Interval: 200 * time.Millisecond, Timeout: limit, FailFast: true}

// newFlux returns what Flux's kustomize-controller applies and waits with.
func newFlux(t *testing.T, c *cluster.Cluster) *ssa.ResourceManager {
	t.Helper()
	config := c.Config(t)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatalf("making an HTTP client: %v", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		t.Fatalf("reading the cluster's resources: %v", err)
	}
	objects, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	poller := polling.NewStatusPoller(objects, mapper, polling.Options{
		CustomStatusReaders: []engine.StatusReader{healthChecks(t)(mapper)},
	})
	return ssa.NewResourceManager(objects, poller, ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"})
}

// applied applies the objects of an application, and returns what became of each.
func applied(t *testing.T, flux *ssa.ResourceManager, app string, objects []*unstructured.Unstructured) *ssa.ChangeSet {
	t.Helper()
	flux.SetOwnerLabels(objects, app, "flux-system")
	options := ssa.DefaultApplyOptions()
	options.WaitInterval, options.WaitTimeout = waiting.Interval, waiting.Timeout
	changes, err := flux.ApplyAllStaged(t.Context(), objects, options)
	if err != nil {
		t.Fatalf("applying %s: %v", app, err)
	}
	return changes
}

func awaitCurrent(t *testing.T, flux *ssa.ResourceManager, changes *ssa.ChangeSet) {
	t.Helper()
	if err := flux.WaitForSetWithContext(t.Context(), changes.ToObjMetadataSet(), waiting); err != nil {
		t.Fatalf("waiting: %v", err)
	}
}

// changed are the objects that an application of the folder has changed.
func changed(changes *ssa.ChangeSet) []string {
	var found []string
	for _, entry := range changes.Entries {
		if entry.Action != ssa.UnchangedAction {
			found = append(found, entry.String())
		}
	}
	slices.Sort(found)
	return found
}

// deployedByFlux takes an application through its life.
func deployedByFlux(t *testing.T, a *application) {
	flux := newFlux(t, a.Cluster)
	awaitCurrent(t, flux, applied(t, flux, a.name, a.objects(t)))
	a.awaitChildren(t, "ConfigMap/blog", "ConfigMap/shop", "ServiceAccount/blog", "ServiceAccount/shop")
	before := a.state(t)

	t.Run("a second sync changes nothing", func(t *testing.T) {
		if found := changed(applied(t, flux, a.name, a.objects(t))); len(found) > 0 {
			t.Errorf("Flux has changed %s", strings.Join(found, ", "))
		}
		if found := differences(before, a.state(t)); len(found) > 0 {
			t.Errorf("these differ after a second sync:\n%s", strings.Join(found, "\n"))
		}
	})
	t.Run("self-heal restores what others change and touches no child", func(t *testing.T) {
		defaced := patch(t, a.parents(), "blog", `{"spec":{"text":"defaced"}}`)
		if found, err := status.Compute(defaced); err != nil || found.Status != status.InProgressStatus {
			t.Errorf("a parent that was not synced since it changed is %+v, %v", found, err)
		}
		unstructured.RemoveNestedField(defaced.Object, "status", "observedGeneration")
		if found, err := status.Compute(defaced); err != nil || found.Status != status.CurrentStatus {
			t.Errorf("without the generation that was observed nobody could tell that, and it is %+v, %v", found, err)
		}
		a.awaitText(t, "blog", "defaced")
		changes := applied(t, flux, a.name, a.objects(t))
		if found := strings.Join(changed(changes), ", "); found != "Website/"+a.name+"/blog configured" {
			t.Errorf("Flux has changed %s", found)
		}
		awaitCurrent(t, flux, changes)
		a.awaitText(t, "blog", "hello")
		a.sameChildren(t, before)
	})
	t.Run("garbage collection takes a parent with its children and no other child", func(t *testing.T) {
		var gone []*unstructured.Unstructured
		for _, o := range a.objects(t) {
			if o.GetKind() == "Website" && o.GetName() == "blog" {
				gone = append(gone, o)
			}
		}
		options := ssa.DefaultDeleteOptions()
		options.Inclusions = flux.GetOwnerLabels(a.name, "flux-system")
		if _, err := flux.DeleteAll(t.Context(), gone, options); err != nil {
			t.Fatalf("deleting: %v", err)
		}
		if err := flux.WaitForTermination(gone, waiting); err != nil {
			t.Fatalf("waiting for the deletion: %v", err)
		}
		a.awaitChildren(t, "ConfigMap/shop", "ServiceAccount/shop")
		a.sameChildren(t, before)
	})
	t.Run("the folder goes with all that is in it", func(t *testing.T) {
		all := a.objects(t)
		if _, err := flux.DeleteAll(t.Context(), all, ssa.DefaultDeleteOptions()); err != nil {
			t.Fatalf("deleting: %v", err)
		}
		if err := flux.WaitForTermination(without(all, "Namespace", a.name), waiting); err != nil {
			t.Fatalf("waiting for the deletion: %v", err)
		}
	})
}

// controllersFirst applies the controllers before anything of what they name is there.
func controllersFirst(t *testing.T, a *application) {
	flux := newFlux(t, a.Cluster)
	var controllers []*unstructured.Unstructured
	for _, o := range a.objects(t) {
		if strings.HasSuffix(o.GetKind(), "Controller") {
			controllers = append(controllers, o)
		}
	}
	applied(t, flux, a.name, controllers)
	cluster.Eventually(t, limit, "the controller to wait for its parents", func(ctx context.Context) (bool, string) {
		reason, err := a.Field(ctx, "", "compositecontroller/"+a.name+"-pages", `{.status.conditions[?(@.type=="Ready")].reason}`)
		return reason == "ResourceNotFound" && err == nil, reason
	})
	awaitCurrent(t, flux, applied(t, flux, a.name, a.objects(t)))
	a.awaitChildren(t, "ConfigMap/blog", "ConfigMap/shop", "ServiceAccount/blog", "ServiceAccount/shop")
}
