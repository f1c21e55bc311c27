package rtl

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"gradnic/aggregation"
	"gradnic/internal/captures"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// The recorded requests of the public client give the recorded replies, byte for byte and in order, with and without
// pauses on the streams.
func TestCaptures(t *testing.T) {
	for _, sim := range simulators() {
		for _, elements := range []int{64, 256} {
			for _, stall := range []int{0, 7} {
				t.Run(fmt.Sprintf("%s/%d/stall=%d", sim, elements, stall), func(t *testing.T) {
					t.Parallel()
					testCaptures(t, sim, elements, stall)
				})
			}
		}
	}
}

func testCaptures(t *testing.T, sim string, elements, stall int) {
	steps, err := captures.Load(elements)
	if err != nil {
		t.Fatal(err)
	}
	var requests [][]byte
	var want, got [captures.Workers][][]byte
	for _, s := range steps {
		if s.Request {
			requests = append(requests, s.Frame)
		} else {
			want[s.Worker] = append(want[s.Worker], s.Frame)
		}
	}
	// The simulator takes a second for 300 of the longer packets.
	limit := len(requests)
	if !all() {
		limit = map[int]int{64: 400, 256: 200}[elements]
		if stall != 0 {
			limit = 180
		}
	}
	part := limit < len(requests)
	requests = requests[:limit]
	s := start(t, sim, "switchml", fmt.Sprintf("+elements=%d", elements), fmt.Sprintf("+stall=%d", stall))
	for _, f := range s.exchange(requests...) {
		rank := int(f[5])
		if rank >= captures.Workers || inet.MAC(f[:6]) != captures.WorkerMAC(rank) {
			t.Fatalf("a reply to %x", f[:6])
		}
		got[rank] = append(got[rank], f)
	}
	for r := range want {
		// The files were cut: replies to the last requests may be missing there.
		if part {
			want[r] = want[r][:len(got[r])]
		}
		if len(want[r]) < 10 || len(got[r]) < len(want[r]) {
			t.Fatalf("worker %d: %d replies, %d recorded", r, len(got[r]), len(want[r]))
		}
		for i, w := range want[r] {
			if !bytes.Equal(got[r][i], w) {
				t.Fatalf("worker %d: reply %d differs:\nrecorded %x\nsent     %x", r, i, w, got[r][i])
			}
		}
	}
}

// model is the same rule in Go, and the replies that it would send.
type model struct {
	pool     *aggregation.Pool
	workers  int
	elements int
}

func newModel(t *testing.T, workers, elements, slots int) *model {
	t.Helper()
	p, err := aggregation.NewPool(aggregation.Spec{Rule: aggregation.SwitchML, Workers: workers, Slots: slots, Elements: elements, Exponents: 2})
	if err != nil {
		t.Fatal(err)
	}
	return &model{p, workers, elements}
}

func (m *model) replies(rank int, frame []byte) (out [][]byte) {
	var p inet.Packet
	if inet.Parse(frame, &p) != inet.OK || p.Proto != inet.ProtoUDP || p.Dst != captures.SwitchMAC() || p.DstIP != captures.SwitchIP() ||
		!switchml.IsPort(p.DstPort) || rank >= m.workers || p.Src != captures.WorkerMAC(rank) || p.SrcIP != captures.WorkerIP(rank) {
		return nil
	}
	v, f := switchml.Validate(p.Payload)
	if f != switchml.OK || v.Elements() != m.elements {
		return nil
	}
	c := aggregation.Contribution{Slot: v.Slot(), Set: v.Set(), Worker: rank, Values: v.Values()}
	c.Exponents[0], c.Exponents[1] = v.Exponents()
	values := make([]byte, 4*m.elements)
	outcome := m.pool.Contribute(&c, 0, values)
	if !outcome.HasResult() {
		return nil
	}
	e0, e1 := m.pool.Exponents(v.Slot(), v.Set())
	for to := range m.workers {
		if outcome == aggregation.Answered && to != rank {
			continue
		}
		reply := make([]byte, switchml.FrameLen(m.elements))
		switchml.PutReply(reply, switchml.Reply{
			Switch:   switchml.Endpoint{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Port: p.DstPort},
			Worker:   switchml.Endpoint{MAC: captures.WorkerMAC(to), IP: captures.WorkerIP(to), Port: p.SrcPort},
			Elements: m.elements, Job: v.Job(), TSI: v.TSI(), PoolIndex: v.PoolIndex(), E0: e0, E1: e1,
		})
		copy(reply[switchml.ValuesOffset:], values)
		out = append(out, reply)
	}
	return out
}

func request(rng *rand.Rand, rank, elements, slot, set int) []byte {
	frame := make([]byte, switchml.FrameLen(elements))
	switchml.PutRequest(frame, switchml.Request{
		Worker:   switchml.Endpoint{MAC: captures.WorkerMAC(rank), IP: captures.WorkerIP(rank), Port: uint16(rng.Uint32())},
		Switch:   switchml.Endpoint{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Port: switchml.PortBase + uint16(rng.IntN(16))},
		Elements: elements, Job: uint8(rng.Uint32()), TSI: [4]byte{byte(rng.Uint32()), byte(rng.Uint32()), 3, 4},
		PoolIndex: switchml.PoolIndexOf(set, slot) | uint16(rng.IntN(2))<<14, E0: int8(rng.Uint32()), E1: int8(rng.Uint32()),
		Offload: rng.IntN(2) == 0,
	})
	for i := switchml.ValuesOffset; i < len(frame); i++ {
		frame[i] = byte(rng.Uint32())
	}
	return frame
}

// damage changes a frame so that a part of it is wrong, or is only unusual.
func damage(rng *rand.Rand, frame []byte) []byte {
	switch rng.IntN(10) {
	case 0: // any length
		return frame[:1+rng.IntN(len(frame))]
	case 1: // padding
		return append(frame, make([]byte, 1+rng.IntN(1500))...)
	case 2: // a VLAN tag
		return append(append(append([]byte{}, frame[:12]...), 0x81, 0, 0, 1), frame[12:]...)
	case 3: // the length fields
		frame[[...]int{16, 17, 38, 39}[rng.IntN(4)]] ^= 1 << rng.IntN(8)
	case 4: // a much longer frame, more than any buffer
		return append(frame, make([]byte, 9000)...)
	default: // a bit of the headers
		frame[rng.IntN(switchml.ValuesOffset)] ^= 1 << rng.IntN(8)
	}
	return frame
}

// Random traffic, rules kept and broken: duplicates, packets of the wrong set, workers that run ahead, damaged frames.
// What the hardware puts out is what the Go model says, frame by frame.
func TestRandomAgainstModel(t *testing.T) {
	for _, c := range []struct{ workers, elements, frames int }{
		{1, 64, 100}, {2, 64, 300}, {3, 256, 80}, {8, 64, 250}, {32, 64, 250},
	} {
		t.Run(fmt.Sprintf("%d-workers/%d", c.workers, c.elements), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(c.workers), uint64(c.elements)))
			s := start(t, "iverilog", "switchml", fmt.Sprintf("+workers=%d", c.workers), fmt.Sprintf("+elements=%d", c.elements), "+stall=3")
			m := newModel(t, c.workers, c.elements, 512)
			var frames, want [][]byte
			results, count := 0, c.frames
			if !all() && c.workers < 32 { // those need them all for a result
				count /= 2
			}
			for range count {
				rank := rng.IntN(c.workers)
				slot := [...]int{0, 1, 511, 512, 8191}[min(rng.IntN(40), 4)%5]
				if rng.IntN(3) > 0 {
					slot = 0
				}
				f := request(rng, rank, c.elements, slot, rng.IntN(2))
				switch rng.IntN(12) {
				case 0:
					f = damage(rng, f)
				case 1: // not a worker of this job
					f = request(rng, c.workers, c.elements, slot, 0)
					rank = c.workers
				case 2: // a legal size, but not the job's
					f = request(rng, rank, 320-c.elements, slot, 0)
				}
				frames = append(frames, f)
				replies := m.replies(rank, f)
				results += len(replies)
				want = append(want, replies...)
			}
			got := s.exchange(frames...)
			for i := range min(len(got), len(want)) {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("reply %d:\n got %x\nwant %x", i, got[i], want[i])
				}
			}
			if len(got) != len(want) || results == 0 {
				t.Errorf("%d replies, want %d", len(got), len(want))
			}
		})
	}
}

// Workers that follow the rules: whole rounds over both sets, with resends after loss of results.
func TestRounds(t *testing.T) {
	const workers, elements, slots, rounds = 4, 64, 6, 8
	rng := rand.New(rand.NewPCG(1, 2))
	s := start(t, "iverilog", "switchml", fmt.Sprintf("+workers=%d", workers))
	m := newModel(t, workers, elements, slots)
	for round := range rounds {
		var frames, want [][]byte
		for slot := range slots {
			for _, rank := range rng.Perm(workers) {
				f := request(rng, rank, elements, slot, round&1)
				for range 1 + rng.IntN(2) { // some come twice
					frames = append(frames, f)
					want = append(want, m.replies(rank, f)...)
				}
			}
		}
		got := s.exchange(frames...)
		if len(got) < slots*workers || len(got) != len(want) {
			t.Fatalf("round %d: %d results, want %d", round, len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("round %d, result %d:\n got %x\nwant %x", round, i, got[i], want[i])
			}
		}
	}
}
