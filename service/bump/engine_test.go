package bump

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"gradnic/codec"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

const gradRule = "udp dport=9000 offset=8 type=float32 codec=bfp16"

func TestFullFramesOfGradients(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	r := rand.New(rand.NewPCG(1, 2))
	var sent [][]byte
	for i := range 60 {
		payload := append(make([]byte, 8), gradient(r, 366, false)...)
		binary.BigEndian.PutUint64(payload, uint64(i))
		sent = append(sent, datagram(0, 4000, 9000, uint16(i*7), payload))
	}
	p.host(0, sent...)
	p.carry(nil)
	if len(p.toHost[1]) != len(sent) {
		t.Fatalf("%d of %d frames arrived", len(p.toHost[1]), len(sent))
	}
	rule := mustRule(t, gradRule)
	for i, f := range p.toHost[1] {
		if d := near(sent[i], f, &rule); d != "" {
			t.Errorf("frame %d: %s", i, d)
		}
		if bytes.Equal(f, sent[i]) {
			t.Errorf("frame %d came as it was: nothing was compressed", i)
		}
	}
	a, b := p.e[0].Status(), p.e[1].Status()
	ca, cb := a.Counters, b.Counters
	if ca.Compressed.Frames != 60 || ca.Raw.Sum() != 0 || cb.Restored != ca.Compressed || cb.Received != ca.Sent {
		t.Errorf("sent %+v, received %+v", ca, cb)
	}
	// Three host frames of 1514 bytes to a frame: 34 for the header, 12+8+391 for each, 30 for the whole headers of the
	// first and 2 for those of the others.
	if ca.Sent.Frames != 20 || ca.Sent.Bytes != 20*1301 {
		t.Errorf("%d frames with %d bytes on the wire, want 20 of 1301", ca.Sent.Frames, ca.Sent.Bytes)
	}
	if a.Ratio < 3.49 {
		t.Errorf("ratio %.3f", a.Ratio)
	}
}

func TestEveryTypeOrderAndCodec(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range codec.All() {
		info := c.Info()
		if info.ID == codec.IDNone {
			continue
		}
		for _, typ := range []wire.Type{wire.Float32, wire.Float16, wire.BFloat16, wire.Word32, wire.Word16} {
			if !typ.Float() && !info.Lossless {
				continue
			}
			for _, order := range []string{"little", "big"} {
				text := "udp dport=9000 offset=5 type=" + typ.String() + " order=" + order + " codec=" + info.Name
				p := newPair(t, text)
				p.meet()
				rule := mustRule(t, text)
				var sent [][]byte
				for i := range 8 {
					n := 1 + r.IntN(1450)
					payload := make([]byte, n)
					for k := range payload {
						payload[k] = byte(r.Uint32())
					}
					if i > 0 && n > 5 { // the first is noise: infinities, NaNs and all
						typed(payload[5:], r, &rule)
					}
					sent = append(sent, datagram(0, 4000, 9000, 9, payload))
				}
				p.host(0, sent...)
				p.carry(nil)
				if len(p.toHost[1]) != len(sent) {
					t.Fatalf("%s: %d of %d arrived", text, len(p.toHost[1]), len(sent))
				}
				for i, f := range p.toHost[1] {
					if d := near(sent[i], f, &rule); d != "" {
						t.Errorf("%s: frame %d: %s", text, i, d)
					}
				}
			}
		}
	}
}

// typed fills b with elements of the rule's type.
func typed(b []byte, r *rand.Rand, rule *Rule) {
	w := rule.Type.Size()
	n := len(b) / w
	little := gradient(r, n, false)
	if w == 2 {
		id := codec.IDBF16
		if rule.Type == wire.Float16 {
			id = codec.IDFP16
		}
		x := make([]float32, n)
		plain, _ := codec.ByID(codec.IDNone)
		half, _ := codec.ByID(id)
		if err := plain.Decode(x, little, nil); err != nil {
			panic(err)
		}
		if _, err := half.Encode(little, x, nil); err != nil {
			panic(err)
		}
	}
	put(b[:n*w], little[:n*w], w, rule.BigEndian)
}

func TestCodecOfTheMessage(t *testing.T) {
	p := newPair(t, "udp dport=9000 offset=4 type=float32 codec=@1")
	p.meet()
	r := rand.New(rand.NewPCG(5, 6))
	ids := []codec.ID{codec.IDNone, codec.IDBFP16, codec.IDLossless, codec.IDQSGD, 200, codec.IDE4M3}
	var sent [][]byte
	for _, id := range ids {
		payload := append([]byte{7, byte(id), 8, 9}, gradient(r, 300, false)...)
		sent = append(sent, datagram(0, 1, 9000, 0, payload))
	}
	p.host(0, sent...)
	p.carry(nil)
	if len(p.toHost[1]) != len(sent) {
		t.Fatalf("%d of %d arrived", len(p.toHost[1]), len(sent))
	}
	for i, f := range p.toHost[1] {
		rule := mustRule(t, "udp offset=4 type=float32 codec=bfp16")
		rule.Codec = nil
		if c, err := codec.ByID(ids[i]); err == nil {
			rule.Codec = c
		}
		if d := near(sent[i], f, &rule); d != "" {
			t.Errorf("codec %d: %s", ids[i], d)
		}
	}
	c := p.e[0].Status().Counters
	if c.Raw[RawChosen] != 1 || c.Raw[RawUnsuitable] != 1 || c.Compressed.Frames != 4 {
		t.Errorf("%+v", c)
	}
}

func TestSeedMakesItRepeat(t *testing.T) {
	encode := func(seed uint32, batch int) []byte {
		p := newPair(t, "udp dport=9000 offset=0 type=float32 codec=qsgd")
		p.o[0].Seed = seed
		p.start(0)
		p.meet()
		r := rand.New(rand.NewPCG(7, 8))
		var all [][]byte
		for range 12 {
			all = append(all, datagram(0, 1, 9000, 0, gradient(r, 200, false)))
		}
		for ; len(all) > 0; all = all[batch:] {
			p.host(0, all[:batch]...)
			p.carry(nil)
		}
		return bytes.Join(p.toHost[1], nil)
	}
	a, b, c := encode(5, 1), encode(5, 6), encode(6, 6)
	if len(a) == 0 || !bytes.Equal(a, b) {
		t.Error("the same seed gave other values when the frames came in other batches")
	}
	if bytes.Equal(b, c) {
		t.Error("another seed gave the same values")
	}
}

func TestTCPIsExact(t *testing.T) {
	p := newPair(t, "tcp dport=5001 codec=lossless")
	p.meet()
	r := rand.New(rand.NewPCG(9, 10))
	var sent [][]byte
	for i := range 20 {
		payload := gradient(r, 362, false)
		payload = payload[:len(payload)-i]
		sent = append(sent, segment(0, 3000, 5001, uint16(i), uint32(i)*1448, payload))
	}
	sent = append(sent, segment(0, 3000, 5001, 99, 5, nil)) // an acknowledgement
	p.host(0, sent...)
	p.carry(nil)
	if len(p.toHost[1]) != len(sent) {
		t.Fatalf("%d of %d arrived", len(p.toHost[1]), len(sent))
	}
	for i, f := range p.toHost[1] {
		if !bytes.Equal(f, sent[i]) {
			t.Errorf("segment %d differs", i)
		}
	}
	if c := p.e[0].Status().Counters; c.Compressed.Frames != 20 || c.Ratio() < 1.05 {
		t.Errorf("%d compressed, ratio %.3f", c.Compressed.Frames, c.Ratio())
	}
}

// TestOrderWithinAFlow: frames that do not shrink go raw, and do not overtake.
func TestOrderWithinAFlow(t *testing.T) {
	p := newPair(t, "udp dport=9000 offset=4 type=float32 codec=lossless")
	p.meet()
	r := rand.New(rand.NewPCG(11, 12))
	var sent [][]byte
	for i := range 64 {
		payload := append(make([]byte, 4), gradient(r, 50, false)...)
		if r.IntN(2) == 0 {
			for k := range payload {
				payload[k] = byte(r.Uint32())
			}
		} else {
			clear(payload[8:])
		}
		binary.BigEndian.PutUint32(payload, uint32(i))
		sent = append(sent, datagram(0, 1, 9000, 0, payload))
	}
	p.host(0, sent...)
	p.carry(nil)
	c := p.e[0].Status().Counters
	if c.Raw[RawLonger] < 10 || c.Compressed.Frames < 10 {
		t.Fatalf("%+v", c)
	}
	for i, f := range p.toHost[1] {
		if !bytes.Equal(f, sent[i]) {
			t.Fatalf("frame %d is not the %dth that was sent", i, i)
		}
	}
}

func TestAllElsePassesUntouched(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	r := rand.New(rand.NewPCG(13, 14))
	big := func() []byte { return append(make([]byte, 8), gradient(r, 300, false)...) }
	change := func(f []byte, at int, v ...byte) []byte { copy(f[at:], v); return f }
	sum := func(f []byte) []byte { inet.SetIPv4Checksum(f[14:]); return f }
	frames := map[string][]byte{
		"another port":    datagram(0, 1, 9001, 0, big()),
		"tcp to the port": segment(0, 1, 9000, 0, 0, big()),
		"a fragment":      sum(change(datagram(0, 1, 9000, 0, big()), 20, 0x20)),
		"options":         change(datagram(0, 1, 9000, 0, big()), 14, 0x46),
		"padded":          append(datagram(0, 1, 9000, 0, big()), 0, 0),
		"multicast":       change(datagram(0, 1, 9000, 0, big()), 0, 1, 0, 0x5e, 0, 0, 1),
		"header sum":      change(datagram(0, 1, 9000, 0, big()), 24, 0x12, 0x34),
		"UDP sum":         change(datagram(0, 1, 9000, 0, big()), 40, 0x12, 0x34),
		"empty":           datagram(0, 1, 9000, 0, nil),
		"before elements": datagram(0, 1, 9000, 0, make([]byte, 7)),
		"arp":             arpFrom(0),
		"13 bytes":        make([]byte, 13),
		"short ip":        datagram(0, 1, 9000, 0, nil)[:30],
		"ipv6":            change(datagram(0, 1, 9000, 0, big()), 12, 0x86, 0xdd, 0x60),
		"tagged":          change(datagram(0, 1, 9000, 0, big()), 12, 0x81, 0),
	}
	for name, f := range frames {
		p.toHost[1] = nil
		p.host(0, f)
		p.carry(nil)
		if len(p.toHost[1]) != 1 || !bytes.Equal(p.toHost[1][0], f) {
			t.Errorf("%s: it does not pass as it was", name)
		}
	}
	if c := p.e[0].Status().Counters; c.Compressed.Frames != 0 || c.Raw[RawChecksum] != 1 || c.Raw[RawUnsuitable] != 1 {
		t.Errorf("%+v", c)
	}
}

// TestMTU: no frame on the wire is longer than either end allows.
func TestMTU(t *testing.T) {
	for _, c := range []struct{ a, b, most int }{{1514, 614, 614}, {614, 1514, 614}, {9014, 9014, 9014}} {
		p := newPair(t, gradRule)
		p.o[0].WireFrame, p.o[1].WireFrame = c.a, c.b
		p.start(0)
		p.start(1)
		p.meet()
		r := rand.New(rand.NewPCG(15, 16))
		var frames [][]byte
		for range 64 {
			frames = append(frames, datagram(0, 1, 9000, 0, append(make([]byte, 8), gradient(r, 100+r.IntN(260), false)...)))
		}
		p.host(0, frames...)
		longest := 0
		for _, f := range p.onWire[0] {
			if wire.IsBump(f) {
				longest = max(longest, len(f))
			}
		}
		if longest > c.most || longest < c.most-450 {
			t.Errorf("%+v: the longest frame on the wire has %d bytes", c, longest)
		}
		p.carry(nil)
		if len(p.toHost[1]) != len(frames) {
			t.Errorf("%+v: %d of %d arrived", c, len(p.toHost[1]), len(frames))
		}
	}
	// What does not fit as an item goes as it is; what is longer than the far host's port takes is refused there.
	p := newPair(t, "udp dport=9000 offset=0 type=float32 codec=fp16")
	p.o[0].WireFrame = 400
	p.o[1].HostFrame = 1000
	p.start(0)
	p.start(1)
	p.meet()
	r := rand.New(rand.NewPCG(17, 18))
	p.host(0, datagram(0, 1, 9000, 0, gradient(r, 300, false)), datagram(0, 1, 9000, 0, gradient(r, 150, false)))
	if c := p.e[0].Status().Counters; c.Raw[RawTooLong] != 1 || c.Compressed.Frames != 1 {
		t.Errorf("%+v", c)
	}
	p.carry(nil)
	if len(p.toHost[1]) != 2 {
		t.Errorf("%d arrived", len(p.toHost[1]))
	}
	p.o[0].WireFrame = 1514
	p.start(0)
	p.meet()
	p.host(0, datagram(0, 1, 9000, 0, gradient(r, 300, false)))
	p.carry(nil)
	if c := p.e[1].Status().Counters; c.Faults[wire.TooLong] != 1 {
		t.Errorf("%+v", c)
	}
}

// TestLongerThanThePort: a host's frame that is longer than the port is set to goes raw.
func TestLongerThanThePort(t *testing.T) {
	p := newPair(t, "udp dport=9000 offset=0 type=float16 order=big codec=bfp16", "udp dport=9001 offset=0 codec=lossless")
	p.o[0].HostFrame, p.o[0].WireFrame = 200, 200
	p.start(0)
	p.meet()
	for _, port := range []uint16{9000, 9001} {
		f := datagram(0, 1, port, 0, make([]byte, 8000))
		p.host(0, f)
		p.carry(nil)
		if n := len(p.toHost[1]); n == 0 || !bytes.Equal(p.toHost[1][n-1], f) {
			t.Errorf("port %d: it did not pass as it was", port)
		}
	}
	if c := p.e[0].Status().Counters; c.Raw[RawTooLong] != 2 {
		t.Errorf("%+v", c)
	}
}

// TestAfterGoodBye: a bump that goes away restores what still comes, passes what the host sends with whole checksums, and
// answers nobody.
func TestAfterGoodBye(t *testing.T) {
	p := newPair(t, gradRule)
	p.meet()
	r := rand.New(rand.NewPCG(29, 30))
	whole := datagram(0, 1, 9000, 0, append(make([]byte, 8), gradient(r, 300, false)...))
	p.host(0, whole) // under way when the far end leaves
	p.e[1].Close(p.now)
	late := p.onWire[0]
	p.onWire[0] = nil
	for _, f := range late {
		p.arrive(1, f)
	}
	rule := mustRule(t, gradRule)
	if len(p.toHost[1]) != 1 || near(whole, p.toHost[1][0], &rule) != "" {
		t.Error("what came late is not restored")
	}
	f := datagram(1, 1, 9000, 0, append(make([]byte, 8), gradient(r, 300, false)...))
	want := bytes.Clone(f)
	binary.BigEndian.PutUint16(f[40:], inet.PseudoHeaderSum(hostIP[1], hostIP[0], inet.ProtoUDP, len(f)-34))
	p.host(1, f)
	p.carry(nil)
	if len(p.toHost[0]) != 1 || !bytes.Equal(p.toHost[0][0], want) {
		t.Error("the host's frame does not pass with a whole checksum")
	}
	p.pass(2*time.Second, nil)
	if s := p.e[0].Status(); s.Peers[0].State != Absent {
		t.Errorf("the far end is %v after its good-bye", s.Peers[0].State)
	}
}

func TestHold(t *testing.T) {
	p := newPair(t, gradRule)
	p.o[0].Hold = 20 * time.Microsecond
	p.start(0)
	p.meet()
	r := rand.New(rand.NewPCG(19, 20))
	frame := func() []byte { return datagram(0, 1, 9000, 0, append(make([]byte, 8), gradient(r, 366, false)...)) }
	p.host(0, frame())
	p.now += 5000
	p.host(0, frame())
	if len(p.onWire[0]) != 0 {
		t.Fatal("it did not wait")
	}
	if next := p.e[0].Tick(p.now); next != p.now+15000 {
		t.Fatalf("next tick in %d ns, want 15000", next-p.now)
	}
	p.now += 15000
	p.e[0].Tick(p.now)
	if len(p.onWire[0]) != 1 {
		t.Fatalf("%d frames on the wire after the wait", len(p.onWire[0]))
	}
	p.host(0, frame(), frame(), frame(), frame())
	if len(p.onWire[0]) != 2 {
		t.Error("a full frame waits")
	}
}

func TestEngineAllocatesNothing(t *testing.T) {
	for _, rule := range []string{gradRule, "udp dport=9000 offset=8 type=float32 order=big codec=lossless", "udp dport=9000 offset=8 type=float32 codec=thc"} {
		p := newPair(t, rule)
		p.meet()
		room := make([]byte, 2000)
		var frames [64][]byte
		n := 0
		p.e[0].o.Emit = func(_ Side, length int) []byte {
			if n == len(frames) {
				return nil
			}
			frames[n] = append(frames[n][:0], room[:length]...)
			n++
			return frames[n-1]
		}
		p.e[1].o.Emit = func(_ Side, length int) []byte { return room[:length] }
		r := rand.New(rand.NewPCG(21, 22))
		f := datagram(0, 1, 9000, 0, append(make([]byte, 8), gradient(r, 366, false)...))
		allocs := testing.AllocsPerRun(50, func() {
			n = 0
			for range 30 {
				p.e[0].FromHost(f, p.now)
			}
			p.e[0].Flush(p.now)
			for _, b := range frames[:n] {
				p.e[1].FromWire(b, p.now)
			}
		})
		if allocs > 0 && !raceDetector { // under it a sync.Pool forgets now and then
			t.Errorf("%s: %.1f allocations a batch", rule, allocs)
		}
		if c := p.e[1].Status().Counters; c.Restored.Frames < 1000 {
			t.Errorf("%s: restored %d", rule, c.Restored.Frames)
		}
	}
}

// TestGoldenItems: the frame of docs/bump.md's example restores to what the page says it is.
func TestGoldenItems(t *testing.T) {
	b, err := os.ReadFile("../../wire/bump/testdata/frames.json")
	if err != nil {
		t.Fatal(err)
	}
	var frames []struct{ Name, Frame string }
	if err := json.Unmarshal(b, &frames); err != nil {
		t.Fatal(err)
	}
	e, out := alone(t)
	for _, f := range frames {
		b, err := hex.DecodeString(f.Frame)
		if err != nil {
			t.Fatal(err)
		}
		if v, fault := e.FromWire(b, 1); v != Taken {
			t.Errorf("%s: %v", f.Name, fault)
		}
	}
	ones := bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 16)
	first := append([]byte{0xd0, 0xd1, 0xd2, 0xd3}, ones...)
	third := datagram(0, 4000, 9000, 5, []byte{0x3b, 0xbc, 0x3b, 0xbc})
	third[40], third[41] = 0, 0
	restored := slices.DeleteFunc(*out, func(b []byte) bool { return b[12] == 8 && b[13] == 6 }) // the probe for a station
	want := [][]byte{datagram(0, 4000, 9000, 0x102, first), datagram(0, 4000, 9000, 0x103, append(first, 0xe0, 0xe1)), third}
	if !slices.EqualFunc(restored, want, bytes.Equal) {
		t.Errorf("restored %x\nwant %x", restored, want)
	}
}
