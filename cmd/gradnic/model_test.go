package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gradnic/plan/forecast"
)

func TestModelPrintsThePapersFigures(t *testing.T) {
	html := filepath.Join(t.TempDir(), "model.html")
	out, err := executeTree(t, "model", "-j", "--html", html)
	if err != nil {
		t.Fatal(err)
	}
	var d forecast.Document
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if d.Table != "mlp-20x2048" || math.Abs(d.Ratio-2048./544) > 1e-9 || len(d.Published) != 7 || len(d.Modes) != 5 {
		t.Errorf("table %s, ratio %g, %d published, %d modes", d.Table, d.Ratio, len(d.Published), len(d.Modes))
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(page), "<svg") != 3 {
		t.Error("the page has not three plots")
	}
	out, err = executeTree(t, "model", "--timeline", "naive")
	if err != nil || !strings.Contains(out, "naive, backward, layer by layer") || !strings.Contains(out, "2.5") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestModelFlags(t *testing.T) {
	predict := func(args ...string) (d forecast.Document) {
		t.Helper()
		out, err := executeTree(t, append([]string{"model", "-j"}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := predict("--table", "gpt2-124m", "--nodes", "16", "--by-nodes", "4,64", "--batch", "2,8", "--codec", "none",
		"--link-gbit", "100", "--host-gbit", "200", "--tflops", "50", "--software-step-us", "7", "--software-share", "0.5", "--slowdown", "1.5", "--pad")
	s := d.System
	if d.Table != "gpt2-124m" || d.Nodes != 16 || d.Batch != 2 || len(d.ByNodes) != 4 || d.ByNodes[3].Nodes != 64 || d.ByNodes[3].Batch != 8 || d.Ratio != 1 || d.TFLOPS != 50 ||
		s.LinkGbit != 100 || s.HostGbit != 200 || s.Overlapped.StepUs != 7 || s.Overlapped.LinkShare != 0.5 || s.Slowdown != 1.5 || !s.PadBlocks || !strings.Contains(s.Name, "changed") {
		t.Errorf("%+v", d)
	}
	if d := predict("--share", "0.25"); math.Abs(d.Modes[0].Communication/d.Modes[0].Iteration-0.25) > 1e-9 {
		t.Errorf("a share of 0.25 became %g", d.Modes[0].Communication/d.Modes[0].Iteration)
	}
	if d := predict("--ratio", "2", "--codec", "topk"); d.Ratio != 2 || d.Codec != "topk" {
		t.Errorf("codec %s with ratio %g", d.Codec, d.Ratio)
	}
	// A file of one's own, with gradients of 2 bytes: the ratio is of those.
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte("name: mine\nsource: test\nbatch: 4\ngradient_bytes: 2\nmeasured_batch: 4\n"+
		"layers: [{name: a, parameters: 1000000, forward_ms: 3, backward_ms: 5}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = predict("--table", file)
	if d.Modes[3].Forward != 3 || d.Modes[3].Backward != 5 || d.GradientBytes != 2e6 || math.Abs(d.Ratio-1024./544) > 1e-9 {
		t.Errorf("forward %g, backward %g, %d bytes, ratio %g", d.Modes[3].Forward, d.Modes[3].Backward, d.GradientBytes, d.Ratio)
	}
}

func TestModelErrors(t *testing.T) {
	for _, args := range [][]string{
		{"--table", "alexnet"},
		{"--table", "/nonexistent.yaml"},
		{"--system", "moon"},
		{"--codec", "zip"},
		{"--ratio", "0.5"},
		{"--nodes", "0"},
		{"--by-nodes", "0"},
		{"--batch", "-1"},
		{"--share", "1"},
		{"--share", "0.5", "--tflops", "1"},
		{"--link-gbit", "0"},
		{"--timeline", "tomorrow"},
		{"--html", "/nonexistent/page.html"},
		{"argument"},
	} {
		if out, err := executeTree(t, append([]string{"model"}, args...)...); err == nil {
			t.Errorf("%v succeeded: %s", args, out)
		}
	}
	for says, args := range map[string][]string{
		"--ratio NaN: a number from 1 up":  {"--ratio", "nan"},
		"--ratio +Inf: a number from 1 up": {"--ratio", "inf"},
		"say with --ratio":                 {"--codec", "lossless"},
	} {
		if _, err := executeTree(t, append([]string{"model"}, args...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
