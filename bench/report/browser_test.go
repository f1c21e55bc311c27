package report

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"testing"

	"gradnic/internal/tooltest"
)

// In a real browser the page fits its window, wide or narrow: what is too wide scrolls by itself. GRADNIC_SCREENSHOT names
// a file to write a picture to, of the report that GRADNIC_REPORT names.
func TestPageFitsTheWindow(t *testing.T) {
	tooltest.Need(t, "chromium")
	r := example()
	if path := os.Getenv("GRADNIC_REPORT"); path != "" {
		var err error
		if r, err = Read(path); err != nil {
			t.Fatal(err)
		}
	}
	page, err := r.HTML()
	if err != nil {
		t.Fatal(err)
	}
	const frames = `<!doctype html><body><iframe id="a" src="/page" width="400" height="800"></iframe><iframe id="b" src="/page" width="1280" height="800"></iframe>
<script>onload=()=>{document.title=["a","b"].map(i=>{let d=document.getElementById(i).contentDocument;return d.documentElement.scrollWidth+":"+d.querySelectorAll("svg circle").length}).join(",")}</script>`
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		body := []byte(frames)
		if q.URL.Path == "/page" {
			body = page
		}
		if _, err := w.Write(body); err != nil {
			t.Log(err)
		}
	}))
	defer site.Close()
	dom := tooltest.Browse(t, site.URL+"/", "--hide-scrollbars", "--virtual-time-budget=3000", "--dump-dom")
	m := regexp.MustCompile(`<title>(\d+):(\d+),(\d+):(\d+)</title>`).FindStringSubmatch(dom)
	if m == nil {
		t.Fatalf("no measures in %s", dom)
	}
	for i, width := range []int{400, 1280} {
		got, _ := strconv.Atoi(m[1+2*i])
		points, _ := strconv.Atoi(m[2+2*i])
		if got > width || points < 9 {
			t.Errorf("in a window of %d pixels the page is %d wide and shows %d points", width, got, points)
		}
	}
	if file := os.Getenv("GRADNIC_SCREENSHOT"); file != "" {
		scheme := os.Getenv("GRADNIC_SCHEME") // 0: dark, 1: light
		width := os.Getenv("GRADNIC_WIDTH")
		tooltest.Browse(t, site.URL+"/page", "--hide-scrollbars", "--screenshot="+file, fmt.Sprintf("--window-size=%s,1400", width), "--blink-settings=preferredColorScheme="+scheme)
	}
}
