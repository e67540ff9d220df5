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
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/health"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/utils/tracing"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

const (
	// trackingLabel is how Argo CD finds the objects of an application unless it is told otherwise.
	trackingLabel = "app.kubernetes.io/instance"
	argoManager   = "argocd-controller"
)

// argoCD is what Argo CD's application controller has for a cluster.
type argoCD struct {
	config  *rest.Config
	kubectl *kube.KubectlCmd
	cache   cache.ClusterCache
	health  health.HealthOverride
	// serverSide has objects applied so.
	serverSide bool
}

// newArgoCD reads the cluster into a new cache. The cache ends with the process: one that is invalidated while an APIService changes panics.
func newArgoCD(t *testing.T, c *cluster.Cluster, serverSide bool) *argoCD {
	t.Helper()
	config := c.Config(t)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	argo := &argoCD{
		config: config, kubectl: &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}},
		health: scripts(t), serverSide: serverSide,
	}
	argo.cache = cache.NewClusterCache(config, cache.SetLogr(logr.Discard()), cache.SetKubectl(argo.kubectl),
		cache.SetPopulateResourceInfoHandler(func(o *unstructured.Unstructured, _ bool) (any, bool) {
			return o.GetLabels()[trackingLabel], true
		}))
	if err := argo.cache.EnsureSynced(); err != nil {
		t.Fatalf("reading the cluster: %v", err)
	}
	return argo
}

// managed reports which objects of the cluster carry the label of an application.
func managed(app string) func(*cache.Resource) bool {
	return func(r *cache.Resource) bool { return r.Info == app }
}

// tracked puts the label of an application on its objects.
func tracked(app string, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, o := range objects {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[trackingLabel] = app
		o.SetLabels(labels)
	}
	return objects
}

// retries is how often Argo CD begins an automated sync again that has failed: a kind that was just defined may not be served everywhere yet.
const retries = 5

// sync deploys objects, and prunes what is the application's and not among them. Like Argo CD it looks at the cluster again before each step.
func (argo *argoCD) sync(t *testing.T, app string, objects []*unstructured.Unstructured) {
	t.Helper()
	phase, message, results, started := common.OperationRunning, "", []common.ResourceSyncResult(nil), metav1.Now()
	failures := 0
	cluster.Eventually(t, limit, "the sync of "+app+" to end", func(ctx context.Context) (bool, string) {
		pairs, err := argo.compare(app, objects)
		if err != nil {
			return false, err.Error()
		}
		step, cleanup, err := sync.NewSyncContext("revision", pairs, argo.config, argo.config, argo.kubectl, app,
			sync.WithInitialState(phase, message, results, started),
			sync.WithLogr(logr.Discard()), sync.WithPrune(true), sync.WithHealthOverride(argo.health),
			sync.WithServerSideApply(argo.serverSide), sync.WithServerSideApplyManager(argoManager))
		if err != nil {
			return false, err.Error()
		}
		defer cleanup()
		step.Sync(ctx)
		phase, message, results = step.GetState()
		seen := fmt.Sprintf("%s: %s: %v", phase, message, results)
		if phase.Completed() && !phase.Successful() && failures < retries {
			failures++
			phase, message, results, started = common.OperationRunning, "", nil, metav1.Now()
		}
		return phase.Completed(), seen
	})
	if phase != common.OperationSucceeded {
		t.Fatalf("the sync of %s is %s: %s: %v", app, phase, message, results)
	}
}

// compare pairs the objects of an application with those of the cluster.
func (argo *argoCD) compare(app string, objects []*unstructured.Unstructured) (sync.ReconciliationResult, error) {
	live, err := argo.cache.GetManagedLiveObjs(tracked(app, objects), managed(app))
	if err != nil {
		return sync.ReconciliationResult{}, err
	}
	return sync.Reconcile(objects, live, app, argo.cache), nil
}

// comparisons are the ways in which Argo CD compares.
var comparisons = map[string]func(*argoCD, diff.KubeApplier) []diff.Option{
	"client-side": func(*argoCD, diff.KubeApplier) []diff.Option { return nil },
	"server-side": func(argo *argoCD, applier diff.KubeApplier) []diff.Option {
		return []diff.Option{
			diff.WithServerSideDiff(true), diff.WithManager(argoManager), diff.WithGVKParser(argo.cache.GetGVKParser()),
			diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier)),
		}
	},
}

// outOfSync are the objects that a comparison finds different, missing or to be pruned, with both states.
func (argo *argoCD) outOfSync(t *testing.T, way, app string, objects []*unstructured.Unstructured) []string {
	t.Helper()
	pairs, err := argo.compare(app, objects)
	if err != nil {
		return []string{err.Error()}
	}
	applier, cleanup, err := argo.kubectl.ManageServerSideDiffDryRuns(argo.config)
	if err != nil {
		t.Fatalf("preparing dry runs: %v", err)
	}
	defer cleanup()
	options := append(comparisons[way](argo, applier), diff.WithLogr(logr.Discard()))
	found, err := diff.DiffArray(t.Context(), pairs.Target, pairs.Live, options...)
	if err != nil {
		return []string{err.Error()}
	}
	var different []string
	for i, d := range found.Diffs {
		if d.Modified || pairs.Target[i] == nil || pairs.Live[i] == nil {
			o := pairs.Target[i]
			if o == nil {
				o = pairs.Live[i]
			}
			different = append(different, fmt.Sprintf("%s/%s: %s, not %s", o.GetKind(), o.GetName(), d.NormalizedLive, d.PredictedLive))
		}
	}
	slices.Sort(different)
	return different
}

// awaitInSync waits until the cache has seen what was synced, and no comparison finds a difference.
func (argo *argoCD) awaitInSync(t *testing.T, app string, objects []*unstructured.Unstructured) {
	t.Helper()
	for way := range comparisons {
		cluster.Eventually(t, limit, app+" to be in sync by the "+way+" comparison", func(context.Context) (bool, string) {
			different := argo.outOfSync(t, way, app, objects)
			return len(different) == 0, strings.Join(different, "\n")
		})
	}
}

// awaitHealthy waits until each object of an application is healthy, or has no health.
func (argo *argoCD) awaitHealthy(t *testing.T, app string, objects []*unstructured.Unstructured) {
	t.Helper()
	cluster.Eventually(t, limit, app+" to be healthy", func(context.Context) (bool, string) {
		pairs, err := argo.compare(app, objects)
		if err != nil {
			return false, err.Error()
		}
		for i, live := range pairs.Live {
			if live == nil {
				return false, pairs.Target[i].GetName() + " is missing"
			}
			found, err := health.GetResourceHealth(live, argo.health)
			if err != nil || found != nil && found.Status != health.HealthStatusHealthy {
				return false, fmt.Sprintf("%s/%s: %+v, %v", live.GetKind(), live.GetName(), found, err)
			}
		}
		return true, ""
	})
}

// tree has what Argo CD shows below the objects of an application, as "owner > object". The names of ControllerRevisions are left out: they end by hashes.
func (argo *argoCD) tree(app string) []string {
	var roots []kube.ResourceKey
	for key, r := range argo.cache.FindResources("", managed(app)) {
		if len(r.OwnerRefs) == 0 {
			roots = append(roots, key)
		}
	}
	var edges []string
	argo.cache.IterateHierarchyV2(roots, func(r *cache.Resource, _ map[kube.ResourceKey]*cache.Resource) bool {
		for _, owner := range r.OwnerRefs {
			object := r.Ref.Kind
			if object != "ControllerRevision" {
				object += "/" + r.Ref.Name
			}
			edges = append(edges, fmt.Sprintf("%s/%s > %s", owner.Kind, owner.Name, object))
		}
		return true
	})
	slices.Sort(edges)
	return slices.Compact(edges)
}

// deployedByArgoCD takes an application through its life.
func deployedByArgoCD(t *testing.T, a *application, serverSide bool) {
	argo := newArgoCD(t, a.Cluster, serverSide)
	argo.sync(t, a.name, a.objects(t))
	argo.awaitHealthy(t, a.name, a.objects(t))
	argo.awaitInSync(t, a.name, a.objects(t))
	before := a.state(t)

	t.Run("a wave waits for the controllers of the one before", func(t *testing.T) {
		a.parentsAreYounger(t)
	})
	t.Run("a second sync changes nothing", func(t *testing.T) {
		argo.sync(t, a.name, a.objects(t))
		if found := differences(before, a.state(t)); len(found) > 0 {
			t.Errorf("these differ after a second sync:\n%s", strings.Join(found, "\n"))
		}
	})
	t.Run("parents, children and revisions form a tree", func(t *testing.T) {
		want := []string{
			"Website/blog > ConfigMap/blog", "Website/blog > ControllerRevision", "Website/blog > ServiceAccount/blog",
			"Website/shop > ConfigMap/shop", "Website/shop > ControllerRevision", "Website/shop > ServiceAccount/shop",
		}
		cluster.Eventually(t, limit, "the tree to have all of them", func(context.Context) (bool, string) {
			found := argo.tree(a.name)
			return slices.Equal(found, want), strings.Join(found, "\n")
		})
	})
	t.Run("self-heal restores what others change and touches no child", func(t *testing.T) {
		patch(t, a.parents(), "blog", `{"spec":{"text":"defaced"}}`)
		patch(t, a.composites(), a.name+"-pages",
			`{"spec":{"childResources":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"OnDelete"}}]}}`)
		cluster.Eventually(t, limit, "both differences to be seen", func(context.Context) (bool, string) {
			different := argo.outOfSync(t, "client-side", a.name, a.objects(t))
			return len(different) == 2 && strings.HasPrefix(different[0], "CompositeController/") && strings.HasPrefix(different[1], "Website/blog"),
				strings.Join(different, "\n")
		})
		argo.sync(t, a.name, a.objects(t))
		argo.awaitHealthy(t, a.name, a.objects(t))
		argo.awaitInSync(t, a.name, a.objects(t))
		a.awaitText(t, "blog", "hello")
		a.sameChildren(t, before)
	})
	t.Run("pruning takes a parent with its children and no other child", func(t *testing.T) {
		rest := without(a.objects(t), "Website", "blog")
		argo.sync(t, a.name, rest)
		a.awaitChildren(t, "ConfigMap/shop", "ServiceAccount/shop")
		argo.awaitInSync(t, a.name, rest)
		a.sameChildren(t, before)
	})
	t.Run("a child without owner reference would be pruned", func(t *testing.T) {
		stray := parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: stray, namespace: `+a.name+`, labels: {`+trackingLabel+`: `+a.name+`}}}`)[0]
		configMaps := a.Dynamic.Resource(children[0]).Namespace(a.name)
		if _, err := configMaps.Create(t.Context(), stray, metav1.CreateOptions{}); err != nil {
			t.Fatalf("creating %s: %v", stray.GetName(), err)
		}
		cluster.Eventually(t, limit, "Argo CD to want to prune it", func(context.Context) (bool, string) {
			different := argo.outOfSync(t, "client-side", a.name, without(a.objects(t), "Website", "blog"))
			return len(different) == 1 && strings.HasPrefix(different[0], "ConfigMap/stray"), strings.Join(different, "\n")
		})
	})
}
