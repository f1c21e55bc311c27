package ringtrain

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/internal/clib"
	"gradnic/internal/netlab/netlabtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTrain: a few steps of a small model on three nodes. Without compression the ring of NICs gives the losses and the
// parameters of a sum in the ring's order to the last bit. Behind GRADNIC_TRAIN_RING: gloo, which adds in another order, gives
// them within float32's rounding; with compression they are near; with two nodes there is but one order, and gloo's are equal.
func TestTrain(t *testing.T) {
	netlabtest.NeedRoot(t)
	if exec.Command("/usr/bin/python3", "-c", "import torch").Run() != nil {
		t.Skip("NOT RUN: no torch for /usr/bin/python3 (python3-torch)")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := os.Getenv("GRADNIC_TRAIN_RING") != ""
	limit := 4 * time.Minute // a run takes some ten seconds on two busy cores
	if all {
		limit = 9 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	o := Options{Root: root, Library: clib.Build(t), Nodes: 3, Steps: 6, Warm: 1, Embed: 16, Hidden: 64, Batch: 4, Length: 16, Bucket: 0.05, Seed: 3}
	train := func(nodes int, how, codec string) *Outcome {
		o.Nodes, o.How, o.Codec = nodes, how, codec
		r, err := Run(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if !r.SameWeights || r.Step <= 0 || (r.NICBusy > 0) != (how == NIC) || r.Losses[o.Steps-1] > r.Losses[0] {
			t.Errorf("%d nodes, %s: %+v", nodes, how, r)
		}
		return r
	}
	nic, ordered := train(3, NIC, "none"), train(3, Ordered, "none")
	if far := Far(nic, ordered); far != 0 || nic.Digest != ordered.Digest {
		t.Errorf("against the ring's order: losses %g apart, parameters %s, %s", far, nic.Digest, ordered.Digest)
	}
	if !all {
		t.Log("with compression, and against gloo: NOT RUN: make test-train-ring")
		return
	}
	if far := Far(nic, train(3, NIC, "bfp16")); far == 0 || far > 0.02 {
		t.Errorf("compressed losses are %g apart", far)
	}
	if far := Far(nic, train(3, Gloo, "none")); far > 1e-5 {
		t.Errorf("gloo's losses are %g apart: more than rounding", far)
	}
	two, gloo := train(2, NIC, "none"), train(2, Gloo, "none")
	if far := Far(two, gloo); far != 0 || two.Digest != gloo.Digest {
		t.Errorf("two nodes against gloo: losses %g apart", far)
	}
}
