package ring

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"gradnic/codec"
	wire "gradnic/wire/ring"
)

// TestSack: the bits of a selective acknowledgement are the frames that came, wherever the window stands.
func TestSack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		first := rapid.Uint32().Draw(r, "first")
		rx := &inbound{next: first, highest: first}
		come := map[uint32]bool{}
		for range rapid.IntRange(0, 200).Draw(r, "frames") {
			seq := rx.next + rapid.Uint32Max(span-1).Draw(r, "ahead")
			if rx.has(seq) {
				if !come[seq] {
					r.Fatalf("frame %d is said to be here", seq)
				}
				continue
			}
			rx.take(0, seq)
			come[seq] = true
		}
		next := first
		for come[next] {
			next++
		}
		if rx.next != next {
			r.Fatalf("next is %d, want %d", rx.next, next)
		}
		var out [wire.SackBytes]byte
		n := rx.sack(&out)
		if n > 0 && out[n-1] == 0 {
			r.Fatal("a trailing zero")
		}
		for i := range uint32(span - 1) {
			got := int(i/8) < n && out[i/8]>>(i%8)&1 != 0
			if got != come[next+1+i] {
				r.Fatalf("frame %d behind %d: %v, want %v", i, next, got, !got)
			}
		}
	})
}

// TestFMA: one rounding, as exact arithmetic says.
func TestFMA(t *testing.T) {
	check := func(a, b, c float32) {
		x := new(big.Float).SetPrec(600).SetFloat64(float64(a))
		x.Mul(x, new(big.Float).SetFloat64(float64(b)))
		x.Add(x, new(big.Float).SetFloat64(float64(c)))
		want, _ := x.Float32()
		if got := fma(a, b, c); got != want {
			t.Fatalf("%g * %g + %g is %g (%#x), want %g (%#x)", a, b, c, got, math.Float32bits(got), want, math.Float32bits(want))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	value := func() float32 {
		for {
			v := math.Float32frombits(rng.Uint32())
			if rng.IntN(2) == 0 { // near 1, where sums cancel and halves meet
				v = float32(1+rng.IntN(1<<12)) / 1024 * float32(1-2*rng.IntN(2))
			}
			if v-v == 0 {
				return v
			}
		}
	}
	for range 300000 {
		check(value(), value(), value())
	}
	// Exactly between two float32 but for a little: rounding twice goes wrong here.
	check(1+0x1p-12, 1+0x1p-12, 0x1p-60)
	check(1+0x1p-12, 1+0x1p-12, -0x1p-60)
	check(0x1.000002p0, 0x1.000002p0, 0x1p-149)
	for _, v := range [][3]float32{{float32(math.Inf(1)), 0, 1}, {float32(math.Inf(1)), 1, float32(math.Inf(-1))}, {float32(math.NaN()), 1, 1}} {
		if got := fma(v[0], v[1], v[2]); got == got {
			t.Errorf("%v gives %v", v, got)
		}
	}
}

// TestWeights: the NIC's step is w - lr * g with one rounding of the summed gradient; the host gets the new weights, and
// so does the NIC's copy. A request that fails leaves the copy alone.
func TestWeights(t *testing.T) {
	for _, n := range []int{1, 3} {
		const lr = 0.1
		w := newNetwork(t, 5)
		nodes := w.ringOf(n, nil)
		j := w.job(n, 3000, "bfp16")
		weights := make([]float32, 3000)
		for i := range weights {
			weights[i] = float32(w.rng.NormFloat64())
		}
		left := n
		copies := make([][]float32, n)
		for i, node := range nodes {
			copies[i] = append([]float32(nil), weights...)
			_, err := node.Submit(Request{Data: j.data[i], Weights: copies[i], LearningRate: lr, Codec: "bfp16", Done: func(c Completion) {
				if c.Err != nil {
					t.Error(c.Err)
				}
				left--
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !w.until(second, func() bool { return left == 0 }) {
			t.Fatal("not done")
		}
		sum := j.in
		if n > 1 {
			sum = j.want(t, 512)
		}
		for i := range nodes {
			want := make([]float32, len(weights))
			for k := range want {
				want[k] = fma(-lr, sum[i][k], weights[k])
			}
			if err := errors.Join(equal(j.data[i], want), equal(copies[i], want)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := newNetwork(t, 5)
	node := w.ringOf(2, nil)[0]
	w.kill(1)
	weights := []float32{1, 2, 3}
	var got error
	_, err := node.Submit(Request{Data: []float32{4, 5, 6}, Weights: weights, LearningRate: 1, Deadline: 1e8, Done: func(c Completion) { got = c.Err }})
	if err != nil || !w.until(second, func() bool { return got != nil }) || weights[0] != 1 || weights[2] != 3 {
		t.Fatalf("%v, %v, weights %v", err, got, weights)
	}
	if _, err := node.Submit(Request{Data: []float32{1}, Weights: weights}); err == nil {
		t.Error("three weights for one gradient")
	}
}

// TestCuts: frames of a slice, laid end to end, are the slice's message, for every codec and MTU; in the card's format
// they are whole groups of flits.
func TestCuts(t *testing.T) {
	for _, slice := range []int{512, 8192, 65024} {
		for _, mtu := range []int{640, 1280, 1500, 4000, 9000, 9216} {
			c, err := newCuts(slice, mtu)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range codecNames {
				k, err := c.of(name)
				if err != nil {
					t.Fatal(err)
				}
				elements, bytes := 0, 0
				for f := range k.frames {
					if got, ok := k.frame(elements, k.count(f), k.size(f)); !ok || got != f {
						t.Fatalf("%s: frame %d is taken for %d", name, f, got)
					}
					if k.size(f) > wire.PayloadRoom(mtu) {
						t.Fatalf("%s: %d bytes in an MTU of %d", name, k.size(f), mtu)
					}
					if name == "bfp16-intel" && k.size(f)%544 != 0 {
						t.Fatalf("a frame of %d bytes is no group of flits", k.size(f))
					}
					elements += k.count(f)
					bytes += k.size(f)
				}
				whole, err := codec.ByName(name)
				if err != nil {
					t.Fatal(err)
				}
				if elements != slice || bytes != whole.MaxEncoded(slice) || bytes != k.total() || bytes > c.room || k.frames > c.most {
					t.Fatalf("%s, slice %d, MTU %d: %d elements, %d bytes in %d frames", name, slice, mtu, elements, bytes, k.frames)
				}
			}
			if c.get(200) != nil || c.get(11) != nil {
				t.Error("a cut of a codec that a ring has not")
			}
		}
	}
}

// TestCardBytes: in the card's format the frames of a slice are its 272 flits, in order, as if it were encoded at once.
func TestCardBytes(t *testing.T) {
	w := newNetwork(t, 1)
	var flits []byte
	w.watch = func(from, _ uint16, b []byte) {
		if v, _ := wire.Validate(b); from == 1 && v.Kind() == wire.Data && v.Data().Step == 0 {
			flits = append(flits, v.Payload()...)
		}
	}
	nodes := w.ringOf(2, func(c *Config) { c.SliceElements = DefaultSlice })
	j := w.job(2, 2*DefaultSlice, "bfp16-intel")
	j.submitAll(t, nodes)
	if !w.until(second, j.over) {
		t.Fatal("not done")
	}
	c, err := codec.ByName("bfp16-intel")
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 8704)
	if n, err := c.Encode(want, j.in[1][DefaultSlice:], nil); n != 8704 || err != nil {
		t.Fatal(n, err)
	}
	if !bytes.Equal(flits, want) {
		t.Fatalf("%d bytes are not the slice's flits", len(flits))
	}
}

// TestIdempotent: what is passed on as it came is what decoding and encoding again would give, in all codecs but the
// card's, where it is not: that is why the card's is encoded again at each hop.
func TestIdempotent(t *testing.T) {
	for _, name := range codecNames {
		c, err := codec.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		same := true
		rng := rand.New(rand.NewPCG(9, 9))
		v := make([]float32, 512)
		b, again := make([]byte, c.MaxEncoded(512)), make([]byte, c.MaxEncoded(512))
		for range 2000 {
			for i := range v {
				v[i] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(40)-20)))
			}
			v[rng.IntN(512)] = -1.9999999 * float32(math.Exp2(float64(rng.IntN(40)-20)))
			_, err1 := c.Encode(b, v, nil)
			err2 := c.Decode(v, b, nil)
			_, err3 := c.Encode(again, v, nil)
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			same = same && bytes.Equal(b, again)
		}
		if same != (name != "bfp16-intel") {
			t.Errorf("%s: encoding twice gives the same: %v", name, same)
		}
	}
}

// TestEpoch: messages of another generation, epoch, ring or sender change nothing and are dropped under their names.
func TestEpoch(t *testing.T) {
	w := newNetwork(t, 1)
	nodes := w.ringOf(3, nil)
	j := w.job(3, 1536, "none")
	for i := range 2 {
		j.submit(t, nodes[i], i)
	}
	var last []byte
	w.watch = func(from, to uint16, b []byte) {
		if v, _ := wire.Validate(b); v.Kind() == wire.Data && to == 0 {
			last = bytes.Clone(b)
		}
	}
	w.until(second/10, func() bool { return last != nil })
	e := nodes[0].eng
	for _, c := range []struct {
		at   int
		want wire.Fault
	}{{15, wire.Stale}, {11, wire.Stale}, {5, wire.Foreign}, {7, wire.Foreign}, {19, wire.Refused}, {3, wire.Refused}, {33, wire.Refused}, {2, wire.Refused}} {
		b := bytes.Clone(last)
		b[c.at] ^= 0x40
		if c.at == 3 || c.at == 33 {
			b[c.at] ^= 0x42
		}
		if c.at == 19 {
			b[18] ^= 0x40 // far ahead
		}
		if got := e.receive(b); got != c.want {
			t.Errorf("byte %d changed: %v, want %v", c.at, got, c.want)
		}
	}
	w.until(second/100, func() bool { return false })
	if got := e.receive(last); got != wire.Repeated {
		t.Errorf("the same once more: %v", got)
	}
	j.submit(t, nodes[2], 2)
	if !w.until(second, j.over) {
		t.Fatal("not done")
	}
	j.check(t, 512)
}

// TestSteadyStateAllocatesNothing: turns on which frames come and go make no garbage; a request's start and end may.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	cfg := Config{Node: 0, Peers: peers(2), SliceElements: 512, Boot: 1}
	other := cfg
	other.Node, other.Boot = 1, 2
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(other)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1)
	var inbox [2][][]byte
	free := make([][]byte, 0, 4096)
	for range 4096 {
		free = append(free, make([]byte, 0, 2048))
	}
	for i := range inbox {
		inbox[i] = make([][]byte, 0, 4096)
	}
	turn := func() {
		for i, n := range []*Node{a, b} {
			now += 10000
			n.eng.begin(now, outRoom)
			for _, m := range inbox[i] {
				n.eng.receive(m)
				free = append(free, m)
			}
			inbox[i] = inbox[i][:0]
			n.turn()
			for k := range n.eng.out {
				m := free[len(free)-1][:0]
				free = free[:len(free)-1]
				inbox[1-i] = append(inbox[1-i], append(append(m, n.eng.out[k].header[:]...), n.eng.out[k].payload...))
			}
		}
	}
	left := 2
	for _, n := range []*Node{a, b} {
		if _, err := n.Submit(Request{Data: make([]float32, 1<<23), Codec: "none", Done: func(Completion) { left-- }}); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		turn()
	}
	before := a.eng.counters.DataReceived
	if n := testing.AllocsPerRun(500, turn); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
	if got := a.eng.counters.DataReceived - before; got < 500 || left != 2 {
		t.Errorf("%d frames in 500 turns, %d requests left", got, left)
	}
}

// FuzzEngine: no sequence of messages makes a node panic, or a request that it was not asked for end well.
func FuzzEngine(f *testing.F) {
	w := newNetwork(f, 1)
	w.ringOf(3, func(c *Config) { c.Window = 2 })
	var talk []byte
	w.watch = func(_, to uint16, b []byte) {
		if to == 1 && len(talk) < 8000 {
			talk = append(append(talk, byte(len(b)>>8), byte(len(b))), b...)
		}
	}
	j := w.job(3, 2000, "bfp16")
	for i, n := range []uint16{0, 1, 2} {
		j.submit(f, w.nodes[n], i)
	}
	w.until(second, j.over)
	f.Add(talk)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, talk []byte) {
		n, err := New(Config{Node: 1, Peers: peers(3), SliceElements: 512, Boot: 101, Window: 2})
		if err != nil {
			t.Fatal(err)
		}
		room := make([]float32, 2010)
		data, guard := room[:2000:2000], room[2000:]
		if _, err := n.Submit(Request{Data: data, Codec: "bfp16"}); err != nil {
			t.Fatal(err)
		}
		now := int64(1)
		for len(talk) > 2 {
			size := int(talk[0])<<8 | int(talk[1])
			talk = talk[2:]
			size = min(size, len(talk))
			now += 100_000
			n.eng.begin(now, outRoom)
			if v, fault := wire.Validate(talk[:size:size]); fault == wire.OK {
				n.eng.receive(v)
			}
			n.turn()
			talk = talk[size:]
		}
		for _, v := range guard {
			if v != 0 {
				t.Fatal("wrote elsewhere")
			}
		}
	})
}
