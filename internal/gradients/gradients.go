// Package gradients holds real gradients for the demo, the tests and the benchmarks: those of eight workers in one
// data-parallel step of a small language model.
//
// The model is a character-level one, after 200 steps of training on licence texts that were split into eight shards:
// Embedding(128, 64), GRU(64 to 160, unrolled over 32 characters), Linear(160, 256), ReLU, Linear(256, 128); cross
// entropy, AdamW with a rate of 3e-3, 16 sequences a worker and step. A worker's gradients are one array of float32, the
// parameters of [Layers] one after the other.
//
// They are what made-up numbers are not: their magnitudes span the float32 range block by block, about 2.9 % of them are
// exact zeros (rows of the embedding that a batch did not use), the largest is about 0.07, and their count is no multiple
// of a packet.
package gradients

import (
	"embed"
	"encoding/json"
	"fmt"

	"gradnic/internal/npy"
)

const (
	// Workers is how many workers' gradients there are.
	Workers = 8
	// Elements is how many each has.
	Elements = 190784
)

//go:embed testdata/grad-w?.npy testdata/layers.json
var files embed.FS

// Load returns a fresh copy of one worker's gradients; rank is 0 to Workers-1.
func Load(rank int) ([]float32, error) {
	if rank < 0 || rank >= Workers {
		return nil, fmt.Errorf("gradients of worker %d: there are %d workers", rank, Workers)
	}
	f, err := files.Open(fmt.Sprintf("testdata/grad-w%d.npy", rank))
	if err != nil {
		return nil, fmt.Errorf("gradients of worker %d: %w", rank, err)
	}
	defer f.Close()
	g, err := npy.Read[float32](f)
	if err != nil {
		return nil, fmt.Errorf("gradients of worker %d: %w", rank, err)
	}
	if len(g) != Elements {
		return nil, fmt.Errorf("gradients of worker %d: %d elements, want %d", rank, len(g), Elements)
	}
	return g, nil
}

// Layer is one parameter of the model.
type Layer struct {
	Name  string
	Shape []int
}

// Size returns the number of elements.
func (l Layer) Size() int {
	n := 1
	for _, d := range l.Shape {
		n *= d
	}
	return n
}

// Layers returns the model's parameters in the order in which the arrays hold them.
func Layers() ([]Layer, error) {
	doc, err := files.ReadFile("testdata/layers.json")
	if err != nil {
		return nil, fmt.Errorf("layers of the gradients: %w", err)
	}
	var pairs [][2]json.RawMessage
	if err := json.Unmarshal(doc, &pairs); err != nil {
		return nil, fmt.Errorf("layers of the gradients: %w", err)
	}
	layers := make([]Layer, len(pairs))
	for i, p := range pairs {
		if err := json.Unmarshal(p[0], &layers[i].Name); err != nil {
			return nil, fmt.Errorf("name of layer %d: %w", i, err)
		}
		if err := json.Unmarshal(p[1], &layers[i].Shape); err != nil {
			return nil, fmt.Errorf("shape of layer %d: %w", i, err)
		}
	}
	return layers, nil
}
