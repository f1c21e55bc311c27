package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gradnic/codec"
	"gradnic/codec/fidelity"
	"gradnic/internal/gradients"
	"gradnic/internal/npy"
)

// execute runs the command tree and returns what it printed.
func executeTree(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRootCmd()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func TestCodecEvalOnRealGradients(t *testing.T) {
	x, err := gradients.Load(0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, html := filepath.Join(dir, "g.npy"), filepath.Join(dir, "g.html")
	if err := npy.Save(file, x); err != nil {
		t.Fatal(err)
	}
	out, err := executeTree(t, "codec", "eval", file, "-j", "--html", html, "--repeats", "1")
	if err != nil {
		t.Fatal(err)
	}
	var d fidelity.Document
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if d.Data.Elements != gradients.Elements || len(d.Codecs) != len(codec.All()) {
		t.Fatalf("%d elements, %d codecs", d.Data.Elements, len(d.Codecs))
	}
	for _, c := range d.Codecs {
		if c.Share > 1 || c.Flagged != 0 {
			t.Errorf("%s: part of bound %g, flagged %d", c.Codec, c.Share, c.Flagged)
		}
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(page), "<svg") != 3 {
		t.Error("the page has not three plots")
	}
	out, err = executeTree(t, "codec", "eval", file, "--codec", "bfp16,topk:0.1", "--message", "256", "--repeats", "0")
	if err != nil || !strings.Contains(out, "topk:0.1") || strings.Contains(out, "qsgd") {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(out, "copy - GB/s") || strings.Count(out, "  -\n") != 2 {
		t.Errorf("rates that were not measured are not dashes: %s", out)
	}
}

func TestCodecEvalErrors(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.npy")
	if err := npy.Save(empty, []float32{}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"codec", "eval"},
		{"codec", "eval", empty},
		{"codec", "eval", "/nonexistent.npy"},
		{"codec", "eval", "x.npy", "--codec", "zip"},
		{"codec", "eval", "x.npy", "--message", "-1"},
		{"codec", "zip"},
		{"codec"},
	} {
		if out, err := executeTree(t, args...); err == nil {
			t.Errorf("%v succeeded: %s", args, out)
		}
	}
}

func TestShowCodecs(t *testing.T) {
	out, err := executeTree(t, "show", "codecs", "-j")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Codecs []struct {
			Name    string
			ID      int
			Default bool
		}
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if len(d.Codecs) != len(codec.All()) || d.Codecs[1].Name != "bfp16" || !d.Codecs[1].Default {
		t.Fatalf("%+v", d.Codecs)
	}
	if out, err = executeTree(t, "show", "codecs"); err != nil || !strings.Contains(out, "mxfp8-e4m3") {
		t.Fatalf("%v: %s", err, out)
	}
}
