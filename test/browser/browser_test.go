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

package browser

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/e2e/dashboard"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

var (
	pictures = flag.String("pictures", "", "folder for a picture of each page, in each width and color scheme")
	update   = flag.Bool("update", false, "write the pictures of docs/how-to/dashboard.md")
	crowd    = flag.Int("crowd", 10_000, "how many parents the largest controller has; with -short at most 1,000")
)

// patience is how long a test waits for the browser.
const patience = cluster.Limit

// maxPeak is how many MiB of memory the dashboard may have with 10,000 parents: two to three times what it was seen to have.
const maxPeak = 150

// chromium is the program of the browser, empty if there is none.
var chromium string

func TestMain(m *testing.M) {
	flag.Parse()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && chromium == "" {
			chromium = path
		}
	}
	if chromium == "" {
		fmt.Println("test/browser is left out, since there is no Chromium: 'apt-get install chromium' gets one")
		os.Exit(0)
	}
	os.Exit(terminal.Main(m))
}

// pages are those that are looked at.
var pages = map[string]string{
	"controllers": "/", "controller": "/controller?c=cc/website", "failing": "/controller?c=cc/invoice", "held": "/controller?c=cc/queue",
	"paused":     "/controller?c=cc/mailer",
	"parent":     "/parent?" + parent("website", "websites", "blog"),
	"error":      "/parent?" + parent("invoice", "invoices", "first"),
	"fight":      "/parent?" + parent("cache", "caches", "sessions"),
	"rollout":    "/parent?" + parent("database", "databases", "orders"),
	"finalizing": "/parent?" + parent("backup", "backups", "nightly"),
	"guard":      "/plan?" + parent("queue", "queues", "mail"),
	"plan":       "/plan?" + parent("website", "websites", "blog"),
	"requests":   "/hooks?" + parent("website", "websites", "blog"),
	"confirm":    "/confirm?action=rollback&" + parent("database", "databases", "orders"),
	"decorator":  "/controller?c=dc/badge",
	"nothing":    "/controller?c=cc/nothing",
}

func parent(controller, plural, name string) string {
	return url.Values{"c": {"cc/" + controller}, "resource": {plural + ".example.com"}, "ns": {dashboard.Namespace}, "name": {name}}.Encode()
}

func TestPagesInChromium(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{Resources: dashboard.Resources()})
	s := dashboard.New(t, e)
	b := start(t, s.Serve(t))
	axe := axeCore(t)
	if *update {
		b.documents(t)
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		t.Run(name, func(t *testing.T) { b.look(t, name, pages[name], axe) })
	}
	t.Run("Forbidden", func(t *testing.T) { start(t, s.Serve(t, "--as", "nobody")).look(t, "forbidden", "/", axe) })
	t.Run("Live", func(t *testing.T) { live(t, s, b) })
	t.Run("HostileTextsAreTexts", func(t *testing.T) { hostile(t, b) })
	t.Run("OtherOrigins", func(t *testing.T) { origins(t, b) })
	t.Run("WithoutScript", func(t *testing.T) { withoutScript(t, b) })
	t.Run("Action", func(t *testing.T) { action(t, s, b) })
	t.Run("Crowd", func(t *testing.T) { manyParents(t, s, b, axe) })
}

// browser is Chromium with the cookie of a dashboard.
type browser struct {
	context.Context

	root, token string
}

// start starts Chromium, and opens the address.
func start(t *testing.T, address string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true))
	allocated, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		end()
		stop()
	})
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{ctx, "http://" + at.Host, at.Query().Get("token")}
	// The browser ends with the context in which it is used first.
	if err := chromedp.Do(b, chromedp.Navigate(address), chromedp.WaitReady("main")); err != nil {
		t.Fatalf("starting %s: %v", chromium, err)
	}
	return b
}

func (b *browser) run(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// script runs a text in the page.
func script(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](text + "\n;({})")
}

// scheme has the page in a color scheme.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	})
}

// scripts switches the scripts of pages on or off.
func scripts(on bool) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return err
	})
}

// value evaluates an expression in the page.
func value[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	found, err := evaluate[T](b, expression)
	if err != nil {
		t.Fatalf("%s: %v", expression[:min(len(expression), 200)], err)
	}
	return found
}

func evaluate[T any](b *browser, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await waits until an expression is true in the page. While another page is loaded, there may be no body, not what the expression looks at, or
// the page leaves in the middle of it.
func (b *browser) await(t *testing.T, expression string) {
	t.Helper()
	cluster.Eventually(t, patience, expression, func(context.Context) (bool, string) {
		is, err := evaluate[bool](b, "(() => { try { return "+expression+" } catch (e) { if (e instanceof TypeError) return false; throw e } })()")
		if err != nil {
			return false, err.Error()
		}
		body, err := evaluate[string](b, `document.body?.innerText ?? "no body"`)
		if err != nil {
			body = err.Error()
		}
		return is, body
	})
}

func (b *browser) open(t *testing.T, path string) {
	t.Helper()
	b.run(t, chromedp.Navigate(b.root+path), chromedp.WaitReady("main"))
}

// look checks a page in each width and color scheme.
func (b *browser) look(t *testing.T, name, path, axe string) {
	t.Helper()
	for _, colors := range []string{"light", "dark"} {
		b.run(t, scheme(colors))
		for _, width := range []int64{360, 1280, 2000} {
			b.run(t, chromedp.EmulateViewport(width, 900))
			b.open(t, path)
			b.await(t, `!document.getElementById("main").dataset.stream || document.getElementById("live").textContent === "live"`)
			if wide := value[int64](t, b, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%s is %d wide in a window of %d: %s", path, wide, width, value[string](t, b, tooWide))
			}
			if problem := value[string](t, b, "document.querySelector('main').innerText"); strings.Contains(problem, "cannot be shown") {
				t.Errorf("%s: %s", path, problem)
			}
			if *pictures != "" && width < 2000 {
				b.picture(t, fmt.Sprintf("%s-%d-%s", name, width, colors))
			}
			if axe != "" && width < 2000 {
				b.accessible(t, path, axe)
			}
		}
	}
}

// tooWide names what is wider than the window.
const tooWide = `[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map((e) => e.outerHTML.slice(0, 200)).join("\n")`

func (b *browser) picture(t *testing.T, name string) {
	t.Helper()
	shot, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), shot, 0o644); err != nil {
		t.Fatal(err)
	}
}

// documents has the pictures of docs/how-to/dashboard.md: pages in a window of a size, in a color scheme.
func (b *browser) documents(t *testing.T) {
	for name, of := range map[string]struct {
		colors        string
		width, height int64
	}{
		"controllers": {"light", 1100, 900}, "failing": {"light", 1000, 900}, "fight": {"light", 1000, 820}, "rollout": {"dark", 1000, 760},
		"requests": {"dark", 1000, 760}, "guard": {"light", 1000, 760},
	} {
		b.run(t, scheme(of.colors), chromedp.EmulateViewport(of.width, of.height))
		b.open(t, pages[name])
		b.await(t, `(document.getElementById("live")?.textContent ?? "live") === "live"`) // Plans and requests do not change by themselves.
		shot, err := chromedp.Run(b, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cluster.Root(), "docs", "how-to", "dashboard", name+".png"), compact(t, shot), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// compact returns a picture with as few colors as the eye needs: a page has a few, and their shades around letters.
func compact(t *testing.T, shot []byte) []byte {
	t.Helper()
	whole, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.Color]int{}
	bounds := whole.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[whole.At(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	small := image.NewPaletted(bounds, most[:min(len(most), 128)])
	draw.Draw(small, bounds, whole, bounds.Min, draw.Src)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// accessible runs axe-core on the page.
func (b *browser) accessible(t *testing.T, path, axe string) {
	t.Helper()
	b.run(t, script(axe))
	found := value[string](t, b, `axe.run().then((r) => JSON.stringify(r.violations.map((v) =>
		v.id + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join(" | "))))`)
	var violations []string
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		t.Fatalf("axe-core returns %s: %v", found, err)
	}
	for _, violation := range violations {
		t.Errorf("%s: %s", path, violation)
	}
}

// axeCore is the program of axe-core, empty where npm cannot get it.
func axeCore(t *testing.T) string {
	t.Helper()
	file := filepath.Join("axe", "node_modules", "axe-core", "axe.min.js")
	text, err := os.ReadFile(file)
	if err != nil {
		npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		npm.Dir = "axe"
		if output, err := npm.CombinedOutput(); err != nil {
			t.Logf("accessibility is not checked, since npm does not get axe-core: %v %s", err, output)
			return ""
		}
		if text, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return string(text)
}

// live changes the cluster, and waits for it on the page without a reload.
func live(t *testing.T, s *dashboard.Stage, b *browser) {
	b.open(t, pages["fight"])
	b.await(t, `document.getElementById("live").textContent === "live"`)
	b.run(t, script(`window.loaded = true; document.querySelector("main a").focus()`))
	before := value[int64](t, b, written)
	began := time.Now()
	s.ChangeBack("16Mi")
	b.await(t, fmt.Sprintf("%s > %d", written, before))
	t.Logf("a change is seen after %s", time.Since(began).Round(time.Millisecond))
	if !value[bool](t, b, "window.loaded === true") {
		t.Error("the page was loaded again")
	}
	if !value[bool](t, b, `document.activeElement === document.querySelector("main a")`) {
		t.Errorf("the focus is lost: %s", value[string](t, b, "document.activeElement.outerHTML"))
	}
}

// written is how many writes of the controller the fight view counts.
const written = `Number(/wrote it in (\d+) syncs/.exec(document.getElementById("fights").innerText)[1])`

// hostile shows errors with markup in it.
func hostile(t *testing.T, b *browser) {
	for _, name := range []string{"controllers", "failing", "error"} {
		b.open(t, pages[name])
		b.await(t, `document.body.innerText.includes("document.title=")`)
		if title := value[string](t, b, "document.title"); strings.Contains(title, "harmed") {
			t.Errorf("%s: a script ran", name)
		}
		if n := value[int64](t, b, `document.querySelectorAll("main script, main img").length`); n > 0 {
			t.Errorf("%s: there are %d elements that are none of the page's", name, n)
		}
		if value[bool](t, b, `document.body.innerText.includes("\u202e")`) {
			t.Errorf("%s: the text is turned around", name)
		}
	}
}

// origins has a page of another origin try what it can.
func origins(t *testing.T, b *browser) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<title>other</title><iframe id=f src="%[1]s/"></iframe><form id=g method=post action="%[1]s/act"><input name=action value=pause><input name=c value=cc/website></form>`, b.root)
	}))
	t.Cleanup(other.Close)
	b.run(t, chromedp.Navigate(other.URL), chromedp.WaitReady("form"))
	for _, try := range []string{
		fmt.Sprintf(`fetch("%s/", {credentials: "include"}).then((r) => r.text()).catch(() => "nothing")`, b.root),
		fmt.Sprintf(`fetch("%s/events?page=/", {credentials: "include"}).then((r) => r.text()).catch(() => "nothing")`, b.root),
		fmt.Sprintf(`fetch("%s/act", {method: "POST", credentials: "include", body: new URLSearchParams({action: "pause", c: "cc/website"})}).then((r) => r.text()).catch(() => "nothing")`, b.root),
	} {
		if got := value[string](t, b, "new Promise((done) => {"+try+".then(done)})"); got != "nothing" {
			t.Errorf("%s gets %s", try, got)
		}
	}
	b.run(t, script(`document.getElementById("g").submit()`))
	b.await(t, `document.body.innerText.includes("not the address") || document.body.innerText.includes("Open the address")`)
	b.run(t, chromedp.Navigate(b.root+"/?token=wrong"))
	b.await(t, `document.body.innerText.includes("controllers") || true`)
}

// withoutScript uses the pages with scripts switched off.
func withoutScript(t *testing.T, b *browser) {
	b.run(t, scripts(false))
	defer b.run(t, scripts(true))
	b.run(t, chromedp.Navigate(b.root+pages["controller"]), chromedp.SendKeys("input[name=q]", "intra"), chromedp.Click("form.filter button"))
	// Only the page that is filtered has the text in its field: a link of the one before may leave while it is clicked.
	b.run(t, chromedp.WaitReady(`input[name=q][value="intra"]`), chromedp.Click(`//a[contains(., "intranet")]`), chromedp.WaitVisible("#timeline"), chromedp.WaitVisible("#tree"))
}

// action pauses a parent by the keyboard.
func action(t *testing.T, s *dashboard.Stage, b *browser) {
	b.open(t, pages["parent"])
	b.run(t, script(`[...document.querySelectorAll("a.button")].find((a) => a.textContent === "Pause…").focus()`), chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.querySelector("button.primary") !== null`)
	b.run(t, script(`document.querySelector("button.primary").focus()`), chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.querySelector("p.done") !== null`)
	if got := s.Kubectl(t, "-n", dashboard.Namespace, "get", "website/blog", "-o", `jsonpath={.metadata.annotations.metacontroller\.k8s\.io/paused}`); got != "true" {
		t.Errorf("the parent is not paused: %q", got)
	}
	b.open(t, pages["parent"])
	b.await(t, `document.getElementById("state").innerText.includes("Paused")`)
}

// manyParents filters and searches among many parents, page by page.
func manyParents(t *testing.T, s *dashboard.Stage, b *browser, axe string) {
	if testing.Short() {
		*crowd = min(*crowd, 1000)
	}
	s.Crowd(*crowd)
	began := time.Now()
	b.look(t, "crowd", "/controller?c=cc/stock", axe)
	t.Logf("%d parents: the page in every width and color was looked at in %s", *crowd, time.Since(began).Round(time.Millisecond))
	if n := value[int64](t, b, `document.querySelectorAll("#parents tbody tr").length`); n != 100 {
		t.Errorf("a page has %d parents", n)
	}
	b.run(t, script(`[...document.querySelectorAll("a")].find((a) => a.textContent === "Next page").click()`))
	b.await(t, `document.getElementById("parents").innerText.includes("item-00100")`)
	last := fmt.Sprintf("item-%05d", *crowd-1)
	began = time.Now()
	b.run(t, chromedp.KeyEvent("/"), chromedp.KeyEvent(last+kb.Enter))
	b.await(t, fmt.Sprintf(`document.querySelectorAll("#parents tbody tr").length === 1 && document.getElementById("parents").innerText.includes(%q)`, last))
	t.Logf("one of %d was found in %s", *crowd, time.Since(began).Round(time.Millisecond))
	// All parents are in it only as long as a page is made of them.
	if peak := s.Peak(t); peak > maxPeak {
		t.Errorf("the dashboard had %d MiB of memory at most, and %d are enough", peak, maxPeak)
	} else {
		t.Logf("the dashboard had %d MiB of memory at most", peak)
	}
}
