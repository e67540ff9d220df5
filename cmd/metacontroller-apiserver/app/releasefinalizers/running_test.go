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

package releasefinalizers

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leases returns a Lease as it is at a time after the first look; nil if there is none.
type leases struct {
	coordinationclient.LeaseInterface

	at    func(since time.Duration) (*coordinationv1.LeaseSpec, error)
	begun time.Time
}

func (l *leases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	if l.begun.IsZero() {
		l.begun = time.Now()
	}
	spec, err := l.at(time.Since(l.begun))
	if err != nil {
		return nil, err
	}
	if spec == nil {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "x")
	}
	return &coordinationv1.Lease{Spec: *spec}, nil
}

// held is a Lease of 15 seconds that was renewed at a time.
func held(holder string, at time.Duration) *coordinationv1.LeaseSpec {
	return &coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Unix(1000, 0).Add(at)},
	}
}

var errNotYou = errors.New("not you")

func TestWhoRenewsALease(t *testing.T) {
	for name, test := range map[string]struct {
		at    func(since time.Duration) (*coordinationv1.LeaseSpec, error)
		want  string
		fails bool
		// after is the longest time that it takes.
		after time.Duration
	}{
		"there is none":      {at: func(time.Duration) (*coordinationv1.LeaseSpec, error) { return nil, nil }, fails: true},
		"it was released":    {at: func(time.Duration) (*coordinationv1.LeaseSpec, error) { return held("", 0), nil }},
		"it may not be read": {at: func(time.Duration) (*coordinationv1.LeaseSpec, error) { return nil, errNotYou }, fails: true},
		"a server renews it every two seconds": {
			at: func(since time.Duration) (*coordinationv1.LeaseSpec, error) {
				return held("web-0", since.Truncate(2*time.Second)), nil
			},
			want: "web-0", after: 2 * time.Second,
		},
		"a server renews it rarely": {
			at: func(since time.Duration) (*coordinationv1.LeaseSpec, error) {
				return held("web-0", since.Truncate(9*time.Second)), nil
			},
			want: "web-0", after: 10 * time.Second,
		},
		"another server takes it when its time is over": {
			at: func(since time.Duration) (*coordinationv1.LeaseSpec, error) {
				if since > 15*time.Second {
					return held("web-1", since), nil
				}
				return held("web-0", 0), nil
			},
			want: "web-1", after: 17 * time.Second,
		},
		"its holder went without a word": {
			at: func(time.Duration) (*coordinationv1.LeaseSpec, error) { return held("web-0", 0), nil }, after: 17 * time.Second,
		},
		"its holder lets go of it": {
			at: func(since time.Duration) (*coordinationv1.LeaseSpec, error) {
				if since > 3*time.Second {
					return held("", since), nil
				}
				return held("web-0", 0), nil
			}, after: 4 * time.Second,
		},
		"it says nothing of its time": {
			at: func(time.Duration) (*coordinationv1.LeaseSpec, error) {
				spec := held("web-0", 0)
				spec.LeaseDurationSeconds, spec.RenewTime = nil, nil
				return spec, nil
			}, after: 17 * time.Second,
		},
		"it cannot be read any more": {
			at: func(since time.Duration) (*coordinationv1.LeaseSpec, error) {
				if since > 0 {
					return nil, errNotYou
				}
				return held("web-0", 0), nil
			}, fails: true, after: 2 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, waited := time.Now(), false
				got, err := renewing(t.Context(), &leases{at: test.at}, "x", func(string, time.Duration) { waited = true })
				if got != test.want || (err != nil) != test.fails {
					t.Errorf("got %q, %v; want %q, an error: %v", got, err, test.want, test.fails)
				}
				if took := time.Since(begun); took > test.after || waited != (test.after > 0) {
					t.Errorf("it took %s and said that it waits: %v; want %s at most", took, waited, test.after)
				}
			})
		})
	}
}

func TestLookingAtALeaseEndsWithTheCommand(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errNotYou)
	all := &leases{at: func(time.Duration) (*coordinationv1.LeaseSpec, error) { return held("web-0", 0), nil }}
	if got, err := renewing(ctx, all, "x", func(string, time.Duration) {}); got != "" || !errors.Is(err, errNotYou) {
		t.Errorf("got %q, %v", got, err)
	}
}

var parents = []object{
	{name: "blog", controller: controllerobject.Reference{Kind: controllerobject.Composite, Name: "websites"}},
	{name: "wiki", controller: controllerobject.Reference{Kind: controllerobject.Composite, Name: "websites"}},
	{name: "node", controller: controllerobject.Reference{Kind: controllerobject.Decorator, Name: "nodes"}},
}

func TestWhatIsLeftAlone(t *testing.T) {
	for name, test := range map[string]struct {
		runners runners
		force   bool
		free    int
		// printed and refused are in what is printed and in the error; empty for nothing at all.
		printed, refused string
	}{
		"nobody runs": {free: 3},
		"a server has one controller": {
			runners: runners{served: map[controllerobject.Reference]bool{parents[0].controller: true}}, free: 1,
			refused: "compositecontroller/websites exists, and a server runs it; left alone: 2 objects.",
		},
		"a server that the cluster does not reach": {
			runners: runners{hidden: "web-0_1", lease: "team/lease"},
			refused: "a server runs controllers, although the cluster does not reach it: web-0_1 renews the Lease team/lease; left alone: 3 objects.",
		},
		"the same by force": {runners: runners{hidden: "web-0_1", lease: "team/lease"}, force: true, free: 3},
		"it is not known": {
			runners: runners{unknown: errNotYou}, free: 3, printed: "It is not known whether a server still runs that the cluster does not reach: not you. ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := report{out: &out, runners: test.runners, force: test.force}
			if free := r.plan(parents); len(free) != test.free {
				t.Errorf("%d objects may be released, want %d", len(free), test.free)
			}
			if !strings.HasPrefix(out.String(), test.printed) || test.printed == "" && out.Len() > 0 {
				t.Errorf("printed %q, want %q", out.String(), test.printed)
			}
			err := r.refused()
			if (err == nil) != (test.refused == "") || err != nil && !strings.HasPrefix(err.Error(), test.refused) {
				t.Errorf("got %v, want %q", err, test.refused)
			}
		})
	}
}

// A server that the cluster does not reach is looked for by its Lease.
func TestWhatIsLookedAtWhenNoServerIsAvailable(t *testing.T) {
	const (
		service = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.metacontroller.k8s.io"
		lease   = "/apis/coordination.k8s.io/v1/namespaces/team/leases/lease"
		down    = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","status":{"conditions":[{"type":"Available","status":"False"}]}}`
	)
	for name, test := range map[string]struct {
		lease   string
		found   []object
		status  int
		looked  bool
		unknown bool
	}{
		"nobody holds it":        {lease: "team/lease", found: parents, status: http.StatusOK, looked: true},
		"it is not there":        {lease: "team/lease", found: parents, status: http.StatusNotFound, looked: true, unknown: true},
		"it may not be read":     {lease: "team/lease", found: parents, status: http.StatusForbidden, looked: true, unknown: true},
		"there is nothing to do": {lease: "team/lease", status: http.StatusForbidden},
		"nobody wants it":        {found: parents, status: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			looked := false
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Path {
				case service:
					_, _ = w.Write([]byte(down))
				case lease:
					looked = true
					w.WriteHeader(test.status)
					if test.status == http.StatusOK {
						_, _ = w.Write([]byte(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{}}`))
					}
				default:
					t.Errorf("asked for %s", r.URL.Path)
				}
			}))
			defer server.Close()
			c, err := newCluster(&rest.Config{Host: server.URL}, 1)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.running(t.Context(), test.found, test.lease, &bytes.Buffer{})
			if err != nil || looked != test.looked || (got.unknown != nil) != test.unknown || got.run(parents[0].controller) {
				t.Errorf("got %+v, %v; looked at the Lease: %v", got, err, looked)
			}
		})
	}
}

func TestALeaseHasANamespaceAndAName(t *testing.T) {
	cmd := NewCommand()
	cmd.SetArgs([]string{"--lease=metacontroller-apiserver"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), `--lease: "metacontroller-apiserver" is not NAMESPACE/NAME`) {
		t.Errorf("got %v", err)
	}
}

func TestWhichFinalizersAreMeant(t *testing.T) {
	meta := &metav1.ObjectMeta{Name: "web", Namespace: "team", UID: "uid", Finalizers: []string{
		"metacontroller.io/compositecontroller-web", "foregroundDeletion", "metacontroller.io/decoratorcontroller-web",
		"metacontroller.io/compositecontroller-other", "metacontroller.io/compositecontroller-", "example.com/compositecontroller-web",
	}}
	for name, test := range map[string]struct {
		wanted []controllerobject.Reference
		want   []string
	}{
		"All": {nil, []string{
			"metacontroller.io/compositecontroller-web", "metacontroller.io/decoratorcontroller-web", "metacontroller.io/compositecontroller-other",
		}},
		"ANameOfBothKinds": {
			[]controllerobject.Reference{{Name: "web"}},
			[]string{"metacontroller.io/compositecontroller-web", "metacontroller.io/decoratorcontroller-web"},
		},
		"OneKind":  {[]controllerobject.Reference{{Kind: controllerobject.Decorator, Name: "web"}}, []string{"metacontroller.io/decoratorcontroller-web"}},
		"NoneHere": {[]controllerobject.Reference{{Kind: controllerobject.Decorator, Name: "other"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range objectsOf(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "websites"}, meta, test.wanted) {
				got = append(got, o.finalizer)
				if o.String() != "websites.example.com/web in namespace team" {
					t.Errorf("it is called %s", &o)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
