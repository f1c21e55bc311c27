package plan

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"gradnic/internal/strictyaml"
)

// Table is what a model's layers compute and how many gradients they have.
type Table struct {
	Name string `yaml:"name"`
	// Source says where the figures are from; a table without is refused.
	Source string `yaml:"source"`
	// Sample is what a batch counts: images, sequences of 1024 tokens.
	Sample string `yaml:"sample"`
	// Batch is the usual number of samples a node and iteration, for callers
	// that give none.
	Batch int `yaml:"batch"`
	// GradientBytes is the size of one gradient in the host's memory, 1 to 8;
	// 0 stands for 4 (float32). The wire's format is the system's.
	GradientBytes int `yaml:"gradient_bytes"`
	// BackwardRatio is a backward pass's work over the forward pass's: 0 stands
	// for 2, a product each for the gradients of weights and of inputs.
	BackwardRatio float64 `yaml:"backward_ratio"`
	// MeasuredBatch is the batch at which the layers' forward_ms and backward_ms
	// were measured. Required when a layer has them.
	MeasuredBatch int `yaml:"measured_batch"`
	// Layers are in the order of the forward pass.
	Layers []Layer `yaml:"layers"`
}

// Layer is one unit of the all-reduce.
type Layer struct {
	Name string `yaml:"name"`
	// Repeat stands for so many equal layers one after the other, NAME-1 and so
	// on; 0 and 1 are one layer.
	Repeat int `yaml:"repeat"`
	// Parameters is how many gradients the layer sends; 0: nothing is sent.
	Parameters int64 `yaml:"parameters"`
	// FLOPs are floating-point operations of the forward pass a sample; a
	// multiplication and its addition are two.
	FLOPs float64 `yaml:"flops"`
	// ForwardMs and BackwardMs are measured times at Table.MeasuredBatch, in
	// milliseconds. They take the place of FLOPs: give both or neither.
	ForwardMs  float64 `yaml:"forward_ms"`
	BackwardMs float64 `yaml:"backward_ms"`
}

func (l Layer) measured() bool { return l.ForwardMs > 0 || l.BackwardMs > 0 }

// Limits of what a file may ask for, so that a wrong one fails at once.
const (
	maxFile   = 1 << 20
	maxLayers = 10000
	maxNodes  = 1 << 16
	maxBatch  = 1 << 30
)

//go:embed tables/*.yaml systems/*.yaml
var shipped embed.FS

// Tables are the names of the shipped tables.
func Tables() []string { return names("tables") }

// Systems are the names of the shipped systems.
func Systems() []string { return names("systems") }

func names(folder string) (out []string) {
	entries, err := shipped.ReadDir(folder)
	if err != nil {
		panic(err) // the folder is in the binary
	}
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return out
}

// ShippedTable returns the table of a name in [Tables].
func ShippedTable(name string) (*Table, error) {
	f, err := shipped.Open("tables/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("table %q: shipped are %s", name, strings.Join(Tables(), ", "))
	}
	defer f.Close()
	return ReadTable(name, f)
}

// ReadTable reads a table in YAML. Unknown and repeated keys are errors, as are
// figures that cannot be. name is the file's, for errors. Repeated layers come
// back one by one, and defaults filled in.
func ReadTable(name string, r io.Reader) (*Table, error) {
	t := new(Table)
	if err := readStrict(name, r, t); err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if t.GradientBytes == 0 {
		t.GradientBytes = 4
	}
	if t.BackwardRatio == 0 {
		t.BackwardRatio = 2
	}
	var all []Layer
	for _, l := range t.Layers {
		n := l.Repeat
		l.Repeat = 0
		if n <= 1 {
			all = append(all, l)
			continue
		}
		for i := range n {
			one := l
			one.Name = fmt.Sprintf("%s-%d", l.Name, i+1)
			all = append(all, one)
		}
	}
	t.Layers = all
	return t, nil
}

func readStrict(name string, r io.Reader, into any) error {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFile {
		return fmt.Errorf("%s: more than %d bytes", name, maxFile)
	}
	return strictyaml.Unmarshal(name, text, into)
}

// finite says whether every number is neither NaN nor infinite nor negative.
func finite(vs ...float64) bool {
	for _, v := range vs {
		if !(v >= 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

func (t *Table) check() error {
	switch {
	case t.Name == "":
		return errors.New("name is missing")
	case t.Source == "":
		return errors.New("source is missing: say where the figures are from")
	case t.Batch < 1 || t.Batch > maxBatch:
		return fmt.Errorf("batch %d: from 1 to %d", t.Batch, maxBatch)
	case t.GradientBytes < 0 || t.GradientBytes > 8:
		return fmt.Errorf("gradient_bytes %d: from 1 to 8", t.GradientBytes)
	case !finite(t.BackwardRatio):
		return fmt.Errorf("backward_ratio %g: at least 0", t.BackwardRatio)
	case t.MeasuredBatch < 0 || t.MeasuredBatch > maxBatch:
		return fmt.Errorf("measured_batch %d: from 1 to %d", t.MeasuredBatch, maxBatch)
	case len(t.Layers) == 0:
		return errors.New("layers is empty")
	}
	count, work := 0, 0.0
	for i, l := range t.Layers {
		where := fmt.Sprintf("layer %d (%s)", i+1, l.Name)
		if l.Repeat < 0 || l.Repeat > maxLayers {
			return fmt.Errorf("%s: repeat %d: from 1 to %d", where, l.Repeat, maxLayers)
		}
		count += max(1, l.Repeat)
		switch {
		case l.Name == "":
			return fmt.Errorf("layer %d: name is missing", i+1)
		case l.Parameters < 0 || l.Parameters > 1<<50:
			return fmt.Errorf("%s: parameters %d: from 0 to 2^50", where, l.Parameters)
		case !finite(l.FLOPs, l.ForwardMs, l.BackwardMs):
			return fmt.Errorf("%s: flops, forward_ms and backward_ms are at least 0", where)
		case l.measured() && (l.ForwardMs == 0 || l.BackwardMs == 0):
			return fmt.Errorf("%s: forward_ms and backward_ms go together", where)
		case l.measured() && l.FLOPs > 0:
			return fmt.Errorf("%s: flops or measured times, not both", where)
		case l.measured() && t.MeasuredBatch == 0:
			return fmt.Errorf("%s: measured times need measured_batch", where)
		}
		work += l.FLOPs + l.ForwardMs
	}
	if count > maxLayers {
		return fmt.Errorf("%d layers: at most %d", count, maxLayers)
	}
	if work == 0 {
		return errors.New("no layer computes anything: give flops or measured times")
	}
	return nil
}

// Parameters is the sum over the layers.
func (t *Table) Parameters() (n int64) {
	for _, l := range t.Layers {
		n += l.Parameters
	}
	return n
}

// FLOPs is the sum of an iteration's forward and backward passes over the layers
// whose times were not measured, a sample.
func (t *Table) FLOPs() (n float64) {
	for _, l := range t.Layers {
		n += l.FLOPs * (1 + t.BackwardRatio)
	}
	return n
}

// Bytes is the size of a layer's gradients in the host's memory.
func (t *Table) Bytes(l Layer) int64 { return l.Parameters * int64(t.GradientBytes) }
