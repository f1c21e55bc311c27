package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gradnic/bench/report"
	"gradnic/internal/demo"
	"gradnic/internal/training"
)

// Whatever way gradients take, each worker gets about their mean, the same as all others; the packets and bytes that the table names
// are those of the values.
func TestMeans(t *testing.T) {
	n := training.DefaultSize.Parameters()
	for _, tt := range []struct {
		codec string
		off   float64 // of the largest value
		sent  float64 // bytes for each element
	}{
		{"none", 1e-6, 4}, {"bfp16", 0.01, 1.1}, {"topk", math.Inf(1), 0.08}, {"thc", 0.5, 1.2},
	} {
		t.Run(tt.codec, func(t *testing.T) {
			s, err := demo.NewSession(t.Context(), demo.Options{Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if _, err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			open := overCodec
			if tt.codec == "thc" {
				open = overTHC
			}
			w, err := open(t.Context(), s, tt.codec)
			if err != nil {
				t.Fatal(err)
			}
			var (
				wg   sync.WaitGroup
				errs [workers]error
				got  [workers][]float32
			)
			for rank := range workers {
				src := make([]float32, n)
				for i := range src {
					src[i] = float32(rank+1) * float32(1+i%7-3) / 16
				}
				got[rank] = make([]float32, n)
				wg.Go(func() { errs[rank] = w.mean(rank, got[rank], src) })
			}
			wg.Wait()
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			worst := 0.0
			for i, v := range got[0] {
				worst = max(worst, math.Abs(float64(v)-4.5*float64(1+i%7-3)/16))
				for rank := range workers {
					if got[rank][i] != v {
						t.Fatalf("element %d is %v at worker %d, %v at worker 0", i, got[rank][i], rank, v)
					}
				}
			}
			if worst > tt.off*4.5*4/16 {
				t.Errorf("off by %v", worst)
			}
			if sent := float64(w.sent) / float64(n); w.packets < 1 || sent > tt.sent*1.02 || sent < tt.sent*0.5 || w.received == 0 {
				t.Errorf("%d packets, %.2f bytes an element sent, %d received", w.packets, sent, w.received)
			}
			if err := w.leave(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The table has a line for each codec, held against the first one's, and goes into its page; the plot goes into a file.
func TestShow(t *testing.T) {
	r := report.New("make train")
	r.Notes = []string{"8 workers"}
	p := report.Plot{Title: "losses"}
	for i, codec := range []string{"none", "bfp16"} {
		k := 1 + float64(i)/100
		r.Add(report.Row{Name: "loss/" + codec, Against: "loss/none"}, []float64{2 * k}, []float64{2})
		r.Add(report.Row{Name: "held-back/" + codec, Against: "held-back/none"}, []float64{2.5 * k}, []float64{2.5})
		r.Add(report.Row{Name: "packets/" + codec}, []float64{150}, nil)
		r.Add(report.Row{Name: "sent/" + codec}, []float64{208_200}, nil)
		r.Add(report.Row{Name: "received/" + codec}, []float64{104_100}, nil)
		p.At(codec, 4, []float64{2 * k})
	}
	r.Plots = []report.Plot{p}
	dir := t.TempDir()
	svg, page := filepath.Join(dir, "x.svg"), filepath.Join(dir, "x.md")
	if err := os.WriteFile(page, []byte("before\n<!-- training -->\nold\n<!-- /training -->\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := show(r, svg, page); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(page)
	if text := string(b); err != nil || strings.Contains(text, "old") || !strings.HasSuffix(text, "after\n") || !strings.Contains(text, "8 workers.\n") ||
		!strings.Contains(text, "| `none` | 2.0000 | 1.0000 | 2.5000 | 1.0000 | 150 | 208.2 | 104.1 |\n| `bfp16` | 2.0200 | 1.0100 | 2.5250 | 1.0100 | 150 |") {
		t.Errorf("%v: %s", err, text)
	}
	if b, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(b), `<svg xmlns="http://www.w3.org/2000/svg"`) {
		t.Errorf("%v: %.100s", err, b)
	}
	if err := show(r, "", filepath.Join(dir, "x.svg")); err == nil || !strings.Contains(err.Error(), "no line") {
		t.Errorf("a page without the lines: %v", err)
	}
}

// A codec that is not there, and a training that is called off, are errors.
func TestRefuses(t *testing.T) {
	if _, err := run(t.Context(), []string{"zip"}, 1); err == nil || !strings.Contains(err.Error(), "codec zip") {
		t.Errorf("codec zip: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(ctx, []string{"none"}, 1); err == nil {
		t.Error("a run that was called off")
	}
}
