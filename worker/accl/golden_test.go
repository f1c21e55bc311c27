package accl_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"gradnic/internal/acclcheck"
	wire "gradnic/wire/accl"
	. "gradnic/worker/accl"
)

// golden are the packets of one all-reduce of 17 float32 by two ranks, as the card's emulator sent them.
func golden(t testing.TB) []acclcheck.Packet {
	t.Helper()
	all, err := acclcheck.Record("../../wire/accl/testdata/allreduce17-w2.txt")
	if err != nil || len(all) != 4 {
		t.Fatalf("%v, %d packets", err, len(all))
	}
	return all
}

// goldenCall is one rank's part in it.
func goldenCall(rank int) Call {
	x := make([]float64, 17)
	for i := range x {
		x[i] = float64(float32(rank+1) + float32(i)/10)
	}
	return Call{Collective: AllReduce, Type: Float32, Count: 17, Src: acclcheck.Encode(Float32, x), Dst: make([]byte, 68)}
}

// TestGolden plays the recorded all-reduce with one rank here and the other's packets from the record, in both roles: what
// this rank sends must be the record's bytes, with the padding of the last one, which holds what the card's emulator had
// left in its word, and the sum must be right.
func TestGolden(t *testing.T) {
	for rank := range 2 {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			cfg := memConfig(2, rank)
			cfg.CardPadding = true
			call := goldenCall(rank)
			r, err := NewResponder(cfg, call)
			if err != nil {
				t.Fatal(err)
			}
			sent := r.Start()
			var want [][]byte
			for i, p := range golden(t) {
				if p.From == rank {
					want = append(want, p.Payload)
					continue
				}
				more, f := r.Datagram(p.From, p.Payload)
				if f != wire.OK {
					t.Fatalf("packet %d: %v", i, f)
				}
				sent = append(sent, more...)
			}
			if len(sent) != len(want) {
				t.Fatalf("sent %d datagrams, the record has %d", len(sent), len(want))
			}
			for i, d := range sent {
				if !bytes.Equal(d.Payload, want[i]) || d.To != 1-rank {
					t.Errorf("datagram %d to rank %d:\n%x, recorded\n%x", i, d.To, d.Payload, want[i])
				}
			}
			if !r.Done() || r.Results()[0] != nil {
				t.Fatalf("done %v: %v", r.Done(), r.Results())
			}
			for i, v := range acclcheck.Decode(Float32, call.Dst) {
				a, b := float32(1)+float32(i)/10, float32(2)+float32(i)/10
				if math.Float32bits(float32(v)) != math.Float32bits(a+b) {
					t.Errorf("element %d: %v, want %v", i, v, a+b)
				}
			}
		})
	}
}
