package metrics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"gradnic/control"
	"gradnic/dataplane"
	"gradnic/internal/tooltest"
)

// The page in a real browser: it shows what is there, and what comes while it is open,
// since it takes itself again. GRADNIC_SCREENSHOT names a file to write a picture to.
func TestPageInBrowser(t *testing.T) {
	tooltest.Need(t, "chromium")
	r := newRig(t, false)
	r.send(t, 0)
	r.send(t, 9)
	api, err := control.New(control.Options{NIC: r.nic, Version: "v-test"})
	if err != nil {
		t.Fatal(err)
	}
	inner := servePage(api)
	var taken atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/" {
			http.NotFound(w, q)
			return
		}
		if taken.Add(1) == 2 { // it is open: a job comes
			if _, err := api.Jobs().Install(dataplane.JobSpec{Name: "later", Tenant: "b", Workers: 3}, control.OriginAPI); err != nil {
				t.Error(err)
			}
		}
		inner(w, q)
	}))
	defer site.Close()
	browse := func(flag string) string {
		t.Helper()
		return tooltest.Browse(t, site.URL+"/", "--virtual-time-budget=7000", "--window-size=1100,900", flag)
	}
	dom := browse("--dump-dom")
	for _, want := range []string{"<td>later</td>", "<td>unknown-worker</td>", `<p class="dim" id="state">live</p>`, "gradnic 10.50.0.254"} {
		if !strings.Contains(dom, want) {
			t.Errorf("no %s in the page after it was open for a while:\n%s", want, dom)
		}
	}
	if n := taken.Load(); n < 2 {
		t.Errorf("the page was taken %d times: it does not keep itself up to date", n)
	}
	if file := os.Getenv("GRADNIC_SCREENSHOT"); file != "" {
		browse("--screenshot=" + file)
	}
}
