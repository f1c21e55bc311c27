package rtl

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"gradnic/aggregation"
	"gradnic/internal/captures"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

const firstEpoch = 0x11111111

// The conversation of docs/protocol.md, byte for byte, until the memory is lost: to take it back is not in the hardware.
func TestNativeVectors(t *testing.T) {
	path, err := captures.Path("native/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Name, From, Frame string }
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, sim := range simulators() {
		s := start(t, sim, "native", "+slots=8", "+elements=4", "+deadline=2000")
		var got, want [][]byte
		for _, v := range vectors {
			if v.Name == "after the network was started again, rank 1 sends again" {
				break
			}
			frame, err := hex.DecodeString(v.Frame)
			if err != nil {
				t.Fatal(err)
			}
			if v.From == "worker" {
				got = append(got, s.exchange(frame)...)
			} else {
				want = append(want, frame)
			}
		}
		if len(want) != 5 || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s:\n got %x\nwant %x", sim, got, want)
		}
	}
}

// nativeModel is a job in Go, without what the hardware lacks: the pool, and the messages around it. All workers have
// reported; reports and notices are tested apart.
type nativeModel struct {
	pool           *aggregation.Pool
	workers, slots int
	elements       int
	epoch          uint32
}

func nativeNIC() native.Endpoint {
	return native.Endpoint{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Port: native.Port}
}

func nativeWorker(rank int) native.Endpoint {
	return native.Endpoint{MAC: captures.WorkerMAC(rank), IP: captures.WorkerIP(rank), Port: uint16(4000 + rank)}
}

func nativeFrame(from, to native.Endpoint, h native.Header, payload []byte) []byte {
	f := make([]byte, native.FrameLen(len(payload)))
	native.PutFrame(f, &from, &to, &h, len(payload))
	copy(f[native.ValuesOffset:], payload)
	return f
}

func nativeReport(rank int, epoch uint32, r native.ReportBody, low uint32) []byte {
	b := make([]byte, native.ReportLen+len(r.Have))
	r.Put(b)
	return nativeFrame(nativeWorker(rank), nativeNIC(), native.Header{Kind: native.Report, Job: 1, Rank: uint16(rank), Epoch: epoch, Slot: low}, b)
}

func (m *nativeModel) notice(rank int, epoch uint32, n native.NoticeBody) []byte {
	n.Workers, n.Elements, n.Slots = uint16(m.workers), uint16(m.elements), uint32(m.slots)
	b := make([]byte, n.Len())
	n.Put(b)
	return nativeFrame(nativeNIC(), nativeWorker(rank), native.Header{Kind: native.Notice, Job: 1, Rank: uint16(rank), Epoch: epoch}, b)
}

func newNativeModel(t *testing.T, workers, elements, slots int) *nativeModel {
	t.Helper()
	p, err := aggregation.NewPool(aggregation.Spec{
		Rule: aggregation.Rounds, Workers: workers, Slots: slots, Elements: elements, ByteOrder: aggregation.LittleEndian,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &nativeModel{p, workers, slots, elements, firstEpoch}
}

// together brings the workers together and checks what they are told.
func (m *nativeModel) together(t *testing.T, s *simulation) {
	t.Helper()
	for rank := range m.workers {
		got := s.exchange(nativeReport(rank, 0, native.ReportBody{Nonce: uint32(100 + rank)}, 0))
		var want [][]byte
		if rank < m.workers-1 {
			missing := make([]byte, (m.workers+7)/8)
			for r := rank + 1; r < m.workers; r++ {
				missing[r/8] |= 1 << (r % 8)
			}
			want = append(want, m.notice(rank, m.epoch, native.NoticeBody{Code: native.Waiting, Nonce: uint32(100 + rank), Ranks: missing}))
		} else {
			for r := range m.workers {
				n := native.NoticeBody{Code: native.Ready, Life: m.epoch}
				if r == rank {
					n.Nonce = uint32(100 + rank)
				}
				want = append(want, m.notice(r, m.epoch, n))
			}
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("rank %d reports:\n got %x\nwant %x", rank, got, want)
		}
	}
}

// replies are what a contribution causes.
func (m *nativeModel) replies(rank int, frame []byte) (out [][]byte) {
	var p inet.Packet
	if inet.Parse(frame, &p) != inet.OK || p.Proto != inet.ProtoUDP || p.Dst != captures.SwitchMAC() || p.DstIP != captures.SwitchIP() || p.DstPort != native.Port {
		return nil
	}
	v, f := native.Validate(p.Payload)
	if f != native.OK || v.Kind() != native.Contribution || v.Job() != 1 || v.Type() != native.Int32 || v.Codec() != 0 || v.Tagged() || v.Rank() != rank ||
		rank >= m.workers || p.Src != captures.WorkerMAC(rank) || p.SrcIP != captures.WorkerIP(rank) {
		return nil
	}
	if v.Epoch() != m.epoch {
		to := nativeWorker(rank)
		to.Port = p.SrcPort
		n := m.notice(rank, m.epoch, native.NoticeBody{Code: native.Ready, Life: m.epoch})
		binary.BigEndian.PutUint16(n[36:], p.SrcPort)
		return append(out, n)
	}
	if v.Slot() >= uint32(m.slots) || len(v.Payload()) != 4*m.elements || v.Elements() > m.elements {
		return nil
	}
	values := make([]byte, 4*m.elements)
	o := m.pool.Contribute(&aggregation.Contribution{Slot: int(v.Slot()), Worker: rank, Round: v.Round(), Values: v.Payload()}, 0, values)
	if !o.HasResult() {
		return nil
	}
	h := v.Header()
	h.Kind, h.Flags, h.Rank = native.Result, 0, uint16(m.workers)
	if m.pool.Flags(int(v.Slot()), int(v.Round()&1))&aggregation.FlagWrapped != 0 {
		h.Flags = native.FlagWrapped
	}
	if o == aggregation.Answered {
		h.Flags |= native.FlagResend
		to := nativeWorker(rank)
		to.Port = p.SrcPort
		return append(out, nativeFrame(nativeNIC(), to, h, values))
	}
	for to := range m.workers {
		out = append(out, nativeFrame(nativeNIC(), nativeWorker(to), h, values))
	}
	return out
}

// Random contributions, rules kept and broken: duplicates, old and future rounds, wraps, wrong epochs, damaged frames.
func TestNativeRandomAgainstModel(t *testing.T) {
	for _, c := range []struct{ workers, elements, frames int }{
		{1, 1, 150}, {2, 4, 600}, {3, 255, 100}, {8, 17, 400}, {32, 2, 400}, {2, 360, 60},
	} {
		t.Run(fmt.Sprintf("%d-workers/%d", c.workers, c.elements), func(t *testing.T) {
			t.Parallel()
			const slots = 5
			rng := rand.New(rand.NewPCG(uint64(c.workers), uint64(c.elements)))
			s := start(t, "iverilog", "native", fmt.Sprintf("+workers=%d", c.workers), fmt.Sprintf("+elements=%d", c.elements),
				fmt.Sprintf("+slots=%d", slots), "+stall=5")
			m := newNativeModel(t, c.workers, c.elements, slots)
			m.together(t, s)
			var frames, want [][]byte
			results, wrapped := 0, 0
			round := uint32(0xfffffff0) // and over the end of the numbers
			for i := range c.frames {
				// Mostly all workers in turn, twice a round; some are lost by what follows.
				rank := i % c.workers
				if rng.IntN(10) == 0 {
					rank = rng.IntN(c.workers)
				}
				if i%(2*c.workers) == 0 {
					round++
				}
				h := native.Header{
					Kind: native.Contribution, Job: 1, Rank: uint16(rank), Epoch: m.epoch, Round: round, Collective: rng.Uint32(),
					Elements: uint16(rng.IntN(c.elements + 1)), Flags: native.Flags(rng.IntN(2)),
				}
				from := nativeWorker(rank)
				size := 4 * c.elements
				switch rng.IntN(12 * c.workers) {
				case 6:
					h.Round += uint32(rng.IntN(4))
				case 7:
					h.Round -= uint32(rng.IntN(4))
				case 8:
					h.Slot = uint32(rng.IntN(slots))
				case 0:
					h.Epoch ^= 1 << rng.IntN(32)
				case 1:
					h.Elements = uint16(c.elements + 1)
				case 2:
					h.Slot = uint32(slots + rng.IntN(1000))
				case 3:
					size += 4
				case 4:
					from.IP[3]++ // another station
				case 5:
					from.Port = uint16(rng.Uint32()) // results go where the report said
				}
				payload := make([]byte, size)
				for i := range payload {
					payload[i] = byte(rng.Uint32())
				}
				f := nativeFrame(from, nativeNIC(), h, payload)
				if rng.IntN(15*c.workers) == 0 {
					at := 42 + rng.IntN(4)
					if rng.IntN(2) == 0 {
						at = 66 + rng.IntN(8) // length and reserved
					}
					f[at] ^= 1 << rng.IntN(8)
				}
				if len(f) < 60 {
					f = append(f, make([]byte, 60-len(f))...)
				}
				if k := native.Kind(f[42] & 15); k != native.Contribution && k != native.Supply && k < native.Result {
					continue // reports and leaves: TestNativeStates
				}
				frames = append(frames, f)
				replies := m.replies(rank, f)
				for _, r := range replies {
					if r[42]&15 == byte(native.Result) {
						results++
					}
					if native.Flags(r[43])&native.FlagWrapped != 0 {
						wrapped++
					}
				}
				want = append(want, replies...)
			}
			got := s.exchange(frames...)
			for i := range min(len(got), len(want)) {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("reply %d:\n got %x\nwant %x", i, got[i], want[i])
				}
			}
			if len(got) != len(want) || results == 0 || c.workers > 1 && wrapped == 0 {
				t.Errorf("%d replies, want %d; %d results, %d wrapped", len(got), len(want), results, wrapped)
			}
		})
	}
}

// step is a message of a conversation and what it causes.
type step struct {
	name string
	send []byte
	want [][]byte
}

// The job's states: reports again, a worker that starts anew, a late life, leaves.
func TestNativeStates(t *testing.T) {
	s := start(t, "iverilog", "native", "+elements=4", "+slots=8")
	m := newNativeModel(t, 2, 4, 8)
	m.together(t, s)
	leave := func(rank int, epoch, nonce uint32) []byte {
		return nativeFrame(nativeWorker(rank), nativeNIC(), native.Header{Kind: native.Leave, Job: 1, Rank: uint16(rank), Epoch: epoch},
			binary.BigEndian.AppendUint32(nil, nonce))
	}
	contribution := func(rank int, epoch uint32, value int32) []byte {
		v := binary.LittleEndian.AppendUint32(nil, uint32(value))
		return nativeFrame(nativeWorker(rank), nativeNIC(), native.Header{Kind: native.Contribution, Job: 1, Rank: uint16(rank), Epoch: epoch, Elements: 1},
			append(v, make([]byte, 12)...))
	}
	result := func(epoch uint32, value int32) (out [][]byte) {
		v := append(binary.LittleEndian.AppendUint32(nil, uint32(value)), make([]byte, 12)...)
		for r := range 2 {
			out = append(out, nativeFrame(nativeNIC(), nativeWorker(r), native.Header{Kind: native.Result, Job: 1, Rank: 2, Epoch: epoch, Elements: 1}, v))
		}
		return out
	}
	second := xorshift(firstEpoch)
	third := xorshift(second)
	for _, x := range []step{
		{"a report again", nativeReport(0, firstEpoch, native.ReportBody{Life: firstEpoch, Nonce: 100}, 3),
			[][]byte{m.notice(0, firstEpoch, native.NoticeBody{Code: native.Ready, Life: firstEpoch, Nonce: 100})}},
		{"of a process that was replaced", nativeReport(0, firstEpoch, native.ReportBody{Life: 5, Nonce: 555}, 0),
			[][]byte{m.notice(0, firstEpoch, native.NoticeBody{Code: native.Aborted, Life: firstEpoch, Nonce: 555})}},
		{"nonce 0", nativeReport(0, firstEpoch, native.ReportBody{}, 0), nil},
		{"half of a round", contribution(0, firstEpoch, 1000), nil},
		{"rank 1 starts anew", nativeReport(1, 0, native.ReportBody{Nonce: 201}, 0), [][]byte{
			m.notice(0, second, native.NoticeBody{Code: native.Waiting, Ranks: []byte{1}}),
			m.notice(1, second, native.NoticeBody{Code: native.Waiting, Nonce: 201, Ranks: []byte{1}})}},
		{"a contribution meanwhile", contribution(1, second, 1),
			[][]byte{m.notice(1, second, native.NoticeBody{Code: native.Waiting, Ranks: []byte{1}})}},
		{"one of the life before", contribution(0, firstEpoch, 1),
			[][]byte{m.notice(0, second, native.NoticeBody{Code: native.Waiting, Ranks: []byte{1}})}},
		{"rank 0 starts anew", nativeReport(0, second, native.ReportBody{Nonce: 200}, 0), [][]byte{
			m.notice(0, second, native.NoticeBody{Code: native.Ready, Life: second, Nonce: 200}),
			m.notice(1, second, native.NoticeBody{Code: native.Ready, Life: second})}},
		{"nothing of the life before is left", contribution(0, second, 7), nil},
		{"the result", contribution(1, second, 8), result(second, 15)},
		{"a leave of the life before", leave(1, firstEpoch, 201),
			[][]byte{m.notice(1, second, native.NoticeBody{Code: native.Ready, Life: second})}},
		{"a leave of somebody else", leave(1, second, 999),
			[][]byte{m.notice(1, second, native.NoticeBody{Code: native.Ready, Life: second})}},
		{"a leave", leave(1, second, 201), [][]byte{
			m.notice(0, second, native.NoticeBody{Code: native.Aborted, Ranks: []byte{2}}),
			m.notice(1, second, native.NoticeBody{Code: native.Aborted, Ranks: []byte{2}})}},
		{"a contribution afterwards", contribution(0, second, 9),
			[][]byte{m.notice(0, second, native.NoticeBody{Code: native.Aborted, Ranks: []byte{2}})}},
		{"rank 0 comes again", nativeReport(0, 0, native.ReportBody{Nonce: 300}, 0), [][]byte{
			m.notice(0, third, native.NoticeBody{Code: native.Waiting, Nonce: 300, Ranks: []byte{2}}),
			m.notice(1, third, native.NoticeBody{Code: native.Waiting, Ranks: []byte{2}})}},
		{"and leaves, of no epoch", leave(0, 0, 300),
			[][]byte{m.notice(0, third, native.NoticeBody{Code: native.Waiting, Ranks: []byte{3}})}},
	} {
		if got := s.exchange(x.send); !slices.EqualFunc(got, x.want, bytes.Equal) {
			t.Fatalf("%s:\n got %x\nwant %x", x.name, got, x.want)
		}
	}
}

// xorshift is how the hardware draws the next epoch (Marsaglia, Xorshift RNGs, 2003).
func xorshift(x uint32) uint32 {
	x ^= x << 13
	x ^= x >> 17
	return x ^ x<<5
}
