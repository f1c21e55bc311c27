package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"gradnic/aggregation"
	"gradnic/codec"
	"gradnic/wire/native"
)

// Jobs with codecs over memory: what the workers get is what package aggregation says, byte for byte, whatever the lengths
// of contributions and results, on NICs whose frames take one chunk or several.
func TestNativeCodecs(t *testing.T) {
	for _, c := range []struct {
		codec, result      string
		workers, elements  int
		longer             bool // results than contributions
		chunk, lanes, most int
	}{
		{codec: "bfp16", workers: 3, elements: 1024},
		{codec: "bfp16", result: "none", workers: 2, elements: 300, longer: true},
		{codec: "none", result: "mxfp4", workers: 2, elements: 300},
		{codec: "qsgd", workers: 3, elements: 1000, lanes: 2},
		{codec: "int8", workers: 1, elements: 64},
		{codec: "topk=5", workers: 4, elements: 1000, longer: true},
		{codec: "topk=40", workers: 4, elements: 300, longer: true},
		{codec: "lossless", workers: 2, elements: 300},
		{codec: "topk=10", result: "none", workers: 2, elements: 2000, longer: true, chunk: 4096, most: 9014},
		{codec: "bfp16", result: "none", workers: 2, elements: 2000, longer: true, chunk: 2048, most: 9014},
		{codec: "none", result: "bfp16", workers: 3, elements: 2000, chunk: 2048, most: 9014},
	} {
		t.Run(fmt.Sprintf("%s-%s-%d", c.codec, c.result, c.elements), func(t *testing.T) {
			cfg := testConfig()
			if c.most > 0 {
				cfg = jumboConfig(c.chunk, 1)
			}
			if c.lanes > 0 {
				cfg.Lanes = c.lanes
			}
			spec := JobSpec{Workers: c.workers, Elements: c.elements, Slots: 4, Native: &NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked, Codec: c.codec, Result: c.result}}
			n, ws := nativeJob(t, cfg, spec)
			st, err := n.Job("j")
			if err != nil {
				t.Fatal(err)
			}
			in, out, err := st.Native.Codecs(c.workers, c.elements)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for round := range uint32(6) {
				slot := round % 4
				// By the order of ranks each pool gives the same, so a pool here says what must come.
				ps := n.poolSpec(&JobSpec{Workers: c.workers, Elements: c.elements, Slots: 4, Native: st.Native})
				lanes := uint32(max(c.lanes, 1))
				ps.Seed = uint64(slot % lanes)
				model, err := aggregation.NewPool(ps)
				if err != nil {
					t.Fatal(err)
				}
				want := make([]byte, ps.ResultBytes())
				sent := make([][]byte, c.workers)
				for _, w := range rng.Perm(c.workers) {
					sent[w] = encodeFor(t, in, w, rng, c.elements)
					model.Contribute(&aggregation.Contribution{Slot: int(slot / lanes), Round: round / 4, Worker: w, Values: sent[w]}, 0, want)
					f := ws[w].contribution(slot, round/4, sent[w])
					setCodec(f, in)
					mustSend(t, ws[w].port, f)
				}
				want = want[:model.ResultLen(int(slot/lanes), int(round/4)&1)]
				if c.codec != "lossless" && c.longer != (len(want) > len(sent[0])) {
					t.Errorf("contributions of %d bytes, results of %d", len(sent[0]), len(want))
				}
				for _, w := range ws {
					if v := w.result(want, 0); v.Codec() != idOf(out) {
						t.Fatalf("codec %d", v.Codec())
					}
				}
				// A worker that lost its result asks again.
				f := ws[0].contribution(slot, round/4, sent[0])
				setCodec(f, in)
				mustSend(t, ws[0].port, f)
				if v := ws[0].result(want, native.FlagResend); v.Codec() != idOf(out) {
					t.Fatalf("codec %d", v.Codec())
				}
			}
			// Of another codec, or no message of it: dropped, and nothing is counted.
			before := check(t, n)
			bad := ws[0].contribution(0, 2, make([]byte, 8))
			bad[45] = 14 - idOf(in)
			mustSend(t, ws[0].port, bad)
			bad = ws[0].contribution(0, 2, bytes.Repeat([]byte{0xff}, 7))
			setCodec(bad, in)
			mustSend(t, ws[0].port, bad)
			after := waitFor(t, n, func(s *Snapshot) bool { return s.Total.Dropped() == before.Total.Dropped()+2 })
			if after.Total.Drops["wrong-codec"] != 1 || after.Total.Drops["values-corrupt"]+after.Total.Drops["values-length"] != 1 {
				t.Errorf("drops %v", after.Total.Drops)
			}
			check(t, n)
		})
	}
}

func idOf(c codec.Codec) uint8 {
	if c == nil {
		return 0
	}
	return uint8(c.Info().ID)
}

// setCodec says in a frame how its values are compressed.
func setCodec(frame []byte, c codec.Codec) { frame[45] = idOf(c) }

// encodeFor makes a worker's contribution.
func encodeFor(t *testing.T, c codec.Codec, worker int, rng *rand.Rand, n int) []byte {
	t.Helper()
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	if c == nil {
		b, _ := binary.Append(nil, binary.LittleEndian, x)
		return b
	}
	b := make([]byte, c.MaxEncoded(n))
	k, err := c.Encode(b, x, codec.NewState(c, n, codec.StateOptions{Worker: uint32(worker)}))
	if err != nil {
		t.Fatal(err)
	}
	return b[:k]
}
