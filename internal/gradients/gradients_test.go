package gradients

import (
	"math"
	"os"
	"testing"

	"gradnic/internal/npy"
)

func TestGradientsAreWhatThePageSays(t *testing.T) {
	var zeros int
	var largest float64
	for rank := range Workers {
		g, err := Load(rank)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range g {
			switch a := math.Abs(float64(v)); {
			case math.IsNaN(a) || math.IsInf(a, 0):
				t.Fatalf("worker %d element %d is %v", rank, i, v)
			case a == 0:
				zeros++
			default:
				largest = max(largest, a)
			}
		}
	}
	if share := float64(zeros) / (Workers * Elements); share < 0.028 || share > 0.030 {
		t.Errorf("%.2f %% are zeros, want about 2.9", 100*share)
	}
	if largest < 0.06 || largest > 0.08 {
		t.Errorf("largest magnitude %v, want about 0.07", largest)
	}
	for _, rank := range []int{-1, Workers} {
		if _, err := Load(rank); err == nil {
			t.Errorf("gradients of worker %d", rank)
		}
	}
}

func TestLayersFillTheArrays(t *testing.T) {
	layers, err := Layers()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range layers {
		n += l.Size()
	}
	if len(layers) != 9 || n != Elements || layers[0].Name != "emb.weight" {
		t.Errorf("%d layers with %d elements, the first is %q", len(layers), n, layers[0].Name)
	}
}

// The parameters of the same step lie beside the gradients, for optimizers; they are not compiled in.
func TestParametersMatchTheGradients(t *testing.T) {
	f, err := os.Open("testdata/params.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := npy.Read[float32](f)
	if err != nil || len(p) != Elements {
		t.Errorf("%d parameters, %v; want %d", len(p), err, Elements)
	}
}
