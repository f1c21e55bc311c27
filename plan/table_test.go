package plan

import (
	"slices"
	"strings"
	"testing"
)

// The shapes again, by another way than the tables were made: totals that the
// sources state.
func TestShippedTables(t *testing.T) {
	if got := Tables(); !slices.Equal(got, []string{"gpt2-124m", "mlp-20x2048", "resnet-50"}) {
		t.Fatalf("shipped are %v", got)
	}
	for _, c := range []struct {
		name       string
		layers     int
		parameters int64
		forward    float64 // operations a sample
	}{
		{"mlp-20x2048", 20, 20 * 2048 * 2048, 20 * 2 * 2048 * 2048},
		{"gpt2-124m", 27, 124439808, 1024 * (2*(12*12*768*768+50257*768) + 12*4*1024*768)},
		{"resnet-50", 54, 25557032, 2 * 4089184256},
	} {
		l := table(t, c.name)
		var forward float64
		for _, layer := range l.Layers {
			forward += layer.FLOPs
		}
		if l.Name != c.name || len(l.Layers) != c.layers || l.Parameters() != c.parameters || forward != c.forward {
			t.Errorf("%s: name %q, %d layers, %d parameters, %g operations", c.name, l.Name, len(l.Layers), l.Parameters(), forward)
		}
		if l.FLOPs() != 3*forward {
			t.Errorf("%s: forward and backward are %g, not three times %g", c.name, l.FLOPs(), forward)
		}
		if l.Bytes(l.Layers[0]) != 4*l.Layers[0].Parameters {
			t.Errorf("%s: gradients are not float32", c.name)
		}
	}
	if l := table(t, "mlp-20x2048"); l.Layers[0].Name != "fc-1" || l.Layers[19].Name != "fc-20" {
		t.Errorf("repeated layers are named %q to %q", l.Layers[0].Name, l.Layers[19].Name)
	}
	for _, name := range Systems() {
		if s, err := ShippedSystem(name); err != nil || s.Name != name {
			t.Errorf("system %s: %v", name, err)
		}
	}
	if _, err := ShippedTable("alexnet"); err == nil || !strings.Contains(err.Error(), "resnet-50") {
		t.Errorf("an unknown table: %v", err)
	}
	if _, err := ShippedSystem("moon"); err == nil || !strings.Contains(err.Error(), "paper") {
		t.Errorf("an unknown system: %v", err)
	}
}

func TestReadTableIsStrict(t *testing.T) {
	const head = "name: x\nsource: test\nbatch: 1\n"
	for name, c := range map[string]struct{ text, says string }{
		"unknown key":      {head + "colour: red\nlayers: [{name: a, flops: 1}]", "colour"},
		"repeated key":     {head + "batch: 2\nlayers: [{name: a, flops: 1}]", "batch"},
		"no source":        {"name: x\nbatch: 1\nlayers: [{name: a, flops: 1}]", "source"},
		"no layers":        {head, "layers"},
		"no work":          {head + "layers: [{name: a, parameters: 1}]", "computes"},
		"no name":          {head + "layers: [{flops: 1}]", "name"},
		"negative":         {head + "layers: [{name: a, flops: -1}]", "flops"},
		"not a number":     {head + "layers: [{name: a, flops: .nan}]", "flops"},
		"negative size":    {head + "layers: [{name: a, parameters: -1, flops: 1}]", "parameters"},
		"half measured":    {head + "measured_batch: 1\nlayers: [{name: a, forward_ms: 1}]", "together"},
		"both":             {head + "measured_batch: 1\nlayers: [{name: a, flops: 1, forward_ms: 1, backward_ms: 1}]", "not both"},
		"no batch of it":   {head + "layers: [{name: a, forward_ms: 1, backward_ms: 1}]", "measured_batch"},
		"too many":         {head + "layers: [{name: a, repeat: 9999, flops: 1}, {name: b, repeat: 9, flops: 1}]", "at most"},
		"gradient too big": {head + "gradient_bytes: 16\nlayers: [{name: a, flops: 1}]", "gradient_bytes"},
		"not YAML":         {"{", ""},
		"nothing":          {"", "name"},
		"too long":         {"#" + strings.Repeat("x", maxFile), "more than"},
	} {
		_, err := ReadTable("file.yaml", strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "file.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
	l, err := ReadTable("x", strings.NewReader(head+"gradient_bytes: 2\nbackward_ratio: 1.5\nlayers: [{name: a, repeat: 2, parameters: 3, flops: 4}]"))
	if err != nil || len(l.Layers) != 2 || l.Layers[1].Name != "a-2" || l.FLOPs() != 20 || l.Bytes(l.Layers[0]) != 6 {
		t.Errorf("%+v: %v", l, err)
	}
}

func TestReadSystemIsStrict(t *testing.T) {
	good, err := shipped.ReadFile("systems/paper.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSystem("good", strings.NewReader(string(good))); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"link_gbit: 40", "link_gbit: -1"},
		{"link_gbit: 40", "link: 40"},
		{"share: 0.51", "share: 2"},
		{"nodes: 6", "nodes: 1"},
		{"slowdown: 1.11", "slowdown: .inf"},
		{"step_us: 120", "step_us: -1"},
		{"link_share: 1", "link_share: 0"},
		{"name: paper", "name: ''"},
		{"slice_bytes: 32768", "slice_bytes: -5"},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		if _, err := ReadSystem("bad", strings.NewReader(bad)); bad == string(good) || err == nil {
			t.Errorf("%q was accepted", change[1])
		}
	}
}

func FuzzReadTable(f *testing.F) {
	for _, name := range Tables() {
		text, err := shipped.ReadFile("tables/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	s, err := ShippedSystem("paper")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ReadTable("fuzz", strings.NewReader(string(text)))
		if err != nil {
			return
		}
		for _, kind := range []Kind{Naive, Overlapped, Ideal, NIC} {
			it, err := s.Iterate(l, 3, l.Batch, Mode{Kind: kind})
			if err != nil {
				t.Fatal(err)
			}
			if !(it.Exposed >= 0 && it.Total >= it.Exposed) {
				t.Fatalf("exposed %g of %g", it.Exposed, it.Total)
			}
		}
	})
}
