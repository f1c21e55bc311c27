package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gradnic/internal/plot"
)

//go:embed page.html
var pageSource string

// style is added to plot.Style: what a page of tables needs on a narrow screen.
const style template.CSS = `
body{max-width:min(76em,94vw)}figure,p,dl{max-width:60em}.wide{overflow-x:auto}td,th{white-space:nowrap}td.text,th.text{white-space:normal;text-align:left;min-width:14em}
figure{margin:1.5em 0}figcaption{font-weight:600}.unit{font-weight:400;opacity:.75}.note{border-left:3px solid #d55e00;padding-left:.7em}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1em}dt{opacity:.7}dd{margin:0;overflow-wrap:anywhere}
code{overflow-wrap:anywhere}.against{font-size:.85em;opacity:.75}.met{color:#00805c}.short{color:#c64b00}
@media(prefers-color-scheme:dark){.met{color:#3fd0a4}.short{color:#ff9d5c}}
@media(max-width:40em){body{margin:1em auto;font-size:14px;padding:0 .6em}h1{font-size:1.5em}svg text{font-size:20px}
td.text,th.text{min-width:36em}td,th{padding-left:.3em;padding-right:.3em}.against{white-space:normal;overflow-wrap:anywhere}}`

// HTML is the report as one page that needs nothing else: plots, rows, the machine.
func (r *Report) HTML() ([]byte, error) {
	funcs := template.FuncMap{
		"figure": figure, "percent": func(share float64) float64 { return 100 * share },
		"ratio": func(v float64) string { return fmt.Sprintf("%.2fx", v) },
		"join":  func(a, b string) string { return strings.Trim(a+"; "+b, "; ") },
		"verdict": func(row Row) string {
			switch {
			case row.Goal == 0:
				return ""
			case row.Missed():
				return "short"
			}
			return "met"
		},
	}
	t, err := template.New("page").Funcs(funcs).Parse(pageSource)
	if err != nil {
		return nil, fmt.Errorf("report: page: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, struct {
		*Report
		Style                            template.CSS
		Ratios, Goals, CPU, Load, Bounds bool // rows have them
	}{
		r, plot.Style + style, r.some(func(row Row) bool { return row.Against != "" }), r.some(func(row Row) bool { return row.Goal != 0 }),
		r.some(func(row Row) bool { return row.CPU != 0 }), r.some(func(row Row) bool { return row.Load != 0 }),
		r.some(func(row Row) bool { return row.Bound != "" || row.Note != "" }),
	}); err != nil {
		return nil, fmt.Errorf("report: page: %w", err)
	}
	return b.Bytes(), nil
}

func (r *Report) some(f func(Row) bool) bool { return slices.ContainsFunc(r.Rows, f) }

// WriteHTML writes the page to a file, making the folder where it is missing.
func (r *Report) WriteHTML(path string) error {
	b, err := r.HTML()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
