package fidelity

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"gradnic/codec"
)

func data(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)*1.7) * math.Exp(math.Sin(float64(i)/37)*3) * 1e-3)
		if i%40 == 0 {
			x[i] = 0
		}
	}
	return x
}

func TestEvaluateAll(t *testing.T) {
	x := data(10000)
	rs, err := Evaluate(x, codec.All(), Options{Seed: 1, Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Limits from the formats: half a step of 2^-6 below the block maximum and
	// the like, with room for how this data is spread.
	limits := map[string]struct{ nmse, ratio float64 }{
		"none": {0, 1}, "lossless": {0, 1.05}, "bfp16": {2e-4, 3.7}, "bfp16-intel": {1e-3, 3.6}, "fp16": {1e-6, 2}, "bf16": {1e-5, 2},
		"mxfp8-e4m3": {2e-3, 3.8}, "mxfp8-e5m2": {6e-3, 3.8}, "mxfp4": {3e-2, 7.4}, "mxint8": {2e-4, 3.8}, "int8": {1e-3, 3.7},
		"block16e8m4s": {3e-2, 7}, "topk": {0.9, 12}, "qsgd": {2e-2, 3.9}, "thc": {0.05, 7.5},
	}
	for _, r := range rs {
		l, ok := limits[r.Codec]
		if !ok {
			t.Errorf("no limit for %s", r.Codec)
			continue
		}
		if r.NMSE > l.nmse || r.Ratio < l.ratio || r.Flagged != 0 || r.Share > 1 {
			t.Errorf("%s: NMSE %g (limit %g), ratio %g (limit %g), flagged %d, part of bound %g", r.Codec, r.NMSE, l.nmse, r.Ratio, l.ratio, r.Flagged, r.Share)
		}
		if l.nmse == 0 != (r.MaxError == 0) || r.Cosine < math.Sqrt(1-math.Min(l.nmse, 1))-0.01 || r.Cosine > 1+1e-12 {
			t.Errorf("%s: max error %g, cosine %g", r.Codec, r.MaxError, r.Cosine)
		}
		if r.Encode <= 0 || r.Decode <= 0 {
			t.Errorf("%s: no rates", r.Codec)
		}
	}
	// The card's format is biased downwards, ours is not.
	by := map[string]Result{}
	for _, r := range rs {
		by[r.Codec] = r
	}
	if b := by["bfp16-intel"].RelativeBias; b > -1e-3 {
		t.Errorf("bias of bfp16-intel %g", b)
	}
	if b := by["bfp16"].RelativeBias; math.Abs(b) > 1e-3 {
		t.Errorf("bias of bfp16 %g", b)
	}
}

func TestFiguresByHand(t *testing.T) {
	var r Result
	nan := float32(math.NaN())
	err := r.compare([]float32{3, -4, 0, nan, 1}, []float32{3, -3, 0, nan, float32(math.Inf(1))}, []float64{1, 2, 0, math.Inf(1), math.Inf(1)})
	if err != nil {
		t.Fatal(err)
	}
	want := Result{NMSE: 1 / 25., MaxError: 1, Share: 0.5, Bias: 1 / 3., RelativeBias: (1 / 3.) / math.Sqrt(25/3.), Cosine: 21 / math.Sqrt(25*18), Flagged: 2}
	for what, d := range map[string]float64{"NMSE": r.NMSE - want.NMSE, "max": r.MaxError - want.MaxError, "share": r.Share - want.Share,
		"bias": r.Bias - want.Bias, "relative": r.RelativeBias - want.RelativeBias, "cosine": r.Cosine - want.Cosine, "flagged": float64(r.Flagged - want.Flagged)} {
		if math.Abs(d) > 1e-12 {
			t.Errorf("%s is off by %g", what, d)
		}
	}
	if err := r.compare([]float32{1}, []float32{2}, []float64{0.5}); err == nil {
		t.Error("an error over the bound went unseen")
	}
	d := Describe([]float32{1, 1.5, -0.25, 0, nan}, Options{Repeats: -1})
	if d.Elements != 5 || d.Zeros != 1 || d.NonFinite != 1 || d.MaxAbs != 1.5 || d.Exponents[0] != 2 || d.Exponents[-2] != 1 || d.Copy != 0 {
		t.Errorf("described as %+v", d)
	}
}

// broken decodes to something else than it encoded.
type broken struct{ codec.Codec }

func (broken) Decode(dst []float32, _ []byte, _ *codec.State) error {
	for i := range dst {
		dst[i] = 1e9
	}
	return nil
}

func TestABrokenCodecIsFound(t *testing.T) {
	c, err := codec.ByName("bfp16")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Evaluate(data(100), []codec.Codec{broken{c}}, Options{Repeats: -1}); err == nil || !strings.Contains(err.Error(), "bfp16") {
		t.Fatalf("error %v", err)
	}
}

func TestMessagesAndEdges(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		for _, m := range []int{0, 256, 5000} {
			rs, err := Evaluate(data(n), codec.All(), Options{Repeats: -1, Message: m})
			if err != nil {
				t.Fatalf("%d elements in messages of %d: %v", n, m, err)
			}
			if len(rs) != len(codec.All()) {
				t.Fatalf("%d results", len(rs))
			}
			if rs[0].Bytes != 4*n {
				t.Fatalf("plain float32: %d bytes for %d elements", rs[0].Bytes, n)
			}
		}
	}
	bad := data(300)
	bad[7] = float32(math.Inf(1))
	rs, err := Evaluate(bad, codec.All(), Options{Repeats: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Flagged == 0 {
			t.Errorf("%s: an infinity left no flag", r.Codec)
		}
	}
}

func TestDocumentForms(t *testing.T) {
	x := data(2000)
	rs, err := Evaluate(x, codec.All(), Options{Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := Document{File: `<script>"x"&`, Data: Describe(x, Options{Repeats: 1}), Message: 2000, Codecs: rs}
	var table, html bytes.Buffer
	if err := d.Table(&table); err != nil {
		t.Fatal(err)
	}
	if err := d.Page(&html); err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if !strings.Contains(table.String(), r.Codec) || !strings.Contains(html.String(), "<td>"+r.Codec) {
			t.Errorf("%s is missing", r.Codec)
		}
	}
	if n := strings.Count(html.String(), "<svg") + strings.Count(html.String(), "<table"); n != 4 || n != strings.Count(html.String(), `<div class="wide"><`) {
		t.Errorf("of %d plots and tables some do not scroll by themselves", n)
	}
	if strings.Contains(html.String(), "<script>") {
		t.Error("the file's name is not escaped")
	}
	// The plots are well-formed XML without NaN coordinates.
	rest := html.String()
	plots := 0
	for {
		i := strings.Index(rest, "<svg")
		if i < 0 {
			break
		}
		j := strings.Index(rest, "</svg>") + len("</svg>")
		plot := rest[i:j]
		rest = rest[j:]
		plots++
		dec := xml.NewDecoder(strings.NewReader(plot))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("plot %d: %v", plots, err)
			}
		}
		if strings.Contains(plot, "NaN") || strings.Contains(plot, "Inf") {
			t.Errorf("plot %d has coordinates that are no numbers", plots)
		}
	}
	if plots != 3 {
		t.Errorf("%d plots", plots)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Fatal(err)
	}
	var empty Document
	if err := empty.Page(io.Discard); err != nil {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	list := List()
	defaults := 0
	for _, c := range list {
		if c.Default {
			defaults++
		}
		if c.Ratio <= 0 || c.Bytes.Packet256 <= 0 || c.FeedbackState != 8 {
			t.Errorf("%+v", c)
		}
	}
	if defaults != 1 || len(list) != len(codec.All()) {
		t.Errorf("%d defaults in %d codecs", defaults, len(list))
	}
	b, err := json.Marshal(list[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"name":"bfp16"`, `"id":1`, `"ratio":3.76`, `"bits_per_value":8.5`, `"worst_case_bytes":{"64":68,"256":272,"8192":8704}`} {
		if !strings.Contains(string(b), key) {
			t.Errorf("%s is not in %s", key, b)
		}
	}
	var table bytes.Buffer
	if err := TableList(&table, list); err != nil || strings.Count(table.String(), "\n") != len(list)+1 {
		t.Errorf("table %q: %v", table.String(), err)
	}
}
