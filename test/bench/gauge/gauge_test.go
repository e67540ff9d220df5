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

package gauge

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

const page = `# HELP apiserver_request_total Counter of requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="things",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="409",resource="things",subresource="status",verb="PATCH"} 1
apiserver_request_total{code="200",resource="things",subresource="",verb="WATCH"} 9
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 7
apiserver_request_total_sum{resource="things",verb="PATCH"} 100
rest_client_requests_total{code="200",host="127.0.0.1:1",method="GET"} 2
rest_client_requests_total{code="200",host="127.0.0.1:2",method="GET"} 5
go_memstats_mallocs_total 1.5e+06
odd{text="a \"quoted\" } and , comma"} 4 1700000000
`

func TestRequestsCountsVerbsOfResources(t *testing.T) {
	got, err := Requests([]byte(page), "things", "configmaps")
	if want := map[string]int64{"PATCH things/status": 4}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v: watches and other resources do not count, all codes do", got, err, want)
	}
}

func TestMethodsCountsOneHost(t *testing.T) {
	got, err := Methods([]byte(page), "127.0.0.1:1")
	if want := map[string]int64{"GET": 2}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v: the server talks to itself, too", got, err, want)
	}
}

func TestValue(t *testing.T) {
	for metric, want := range map[string]float64{"go_memstats_mallocs_total": 1.5e6, "absent": 0, "odd": 4} {
		if got, err := Value([]byte(page), metric); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", metric, got, err, want)
		}
	}
}

func TestSumRefusesWhatItCannotRead(t *testing.T) {
	for name, bad := range map[string]string{
		"OpenLabels": `m{a="b"`, "OpenQuote": `m{a="b} 1`, "NoNumber": `m{a="b"} x`, "NoValue": `m `,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Value([]byte(bad), "m"); err == nil {
				t.Errorf("got %v and no error for %q", got, bad)
			}
		})
	}
}

func FuzzSum(f *testing.F) {
	f.Add(page, "odd")
	f.Fuzz(func(t *testing.T, text, metric string) {
		sums, err := Sum([]byte(text), metric, func(map[string]string) string { return "all" })
		if err != nil && sums != nil {
			t.Errorf("both sums %v and error %v", sums, err)
		}
	})
}

func TestTallyUsesTheKeysOfTheServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	var tally Tally
	client := &http.Client{Transport: tally.Wrap(http.DefaultTransport)}
	for _, r := range []struct{ method, path string }{
		{"POST", "/apis/bench.example.com/v1/namespaces/a/things"},
		{"PATCH", "/apis/bench.example.com/v1/namespaces/a/things/p0/status"},
		{"GET", "/api/v1/configmaps"},
		{"GET", "/api/v1/configmaps?watch=true"},
		{"GET", "/api/v1/namespaces/a/configmaps/x"},
		{"DELETE", "/api/v1/namespaces/a/configmaps"},
		{"DELETE", "/api/v1/namespaces/a/configmaps/x"},
		{"POST", "/api/v1/namespaces"},
		{"GET", "/metrics"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), r.method, server.URL+r.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int64{
		"POST things": 1, "PATCH things/status": 1, "LIST configmaps": 1, "GET configmaps": 1, "DELETECOLLECTION configmaps": 1,
		"DELETE configmaps": 1, "POST namespaces": 1,
	}
	if got := tally.Counts(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestProcess(t *testing.T) {
	if cpu, err := cpuOf([]byte("7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0")); err != nil || cpu != 3 {
		t.Errorf("got %v s, %v, want 3 s: user and system time, whatever the program's name", cpu, err)
	}
	if rss, err := rssOf("VmSize:\t9 kB\nVmRSS:\t  2048 kB\n"); err != nil || rss != 2 {
		t.Errorf("got %v MB, %v, want 2 MB", rss, err)
	}
	if _, err := cpuOf([]byte("7 (a) S")); err == nil {
		t.Error("no error for a line that ends early")
	}
	if _, err := rssOf("Name: a"); err == nil {
		t.Error("no error where there is no VmRSS")
	}
	if rss, err := RSS(os.Getpid()); err != nil || rss <= 0 {
		t.Errorf("this process: got %v MB, %v", rss, err)
	}
	if cpu, err := CPU(os.Getpid()); err != nil || cpu < 0 {
		t.Errorf("this process: got %v s, %v", cpu, err)
	}
}
