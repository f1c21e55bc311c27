package ring

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"gradnic/codec"
	wire "gradnic/wire/ring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tester is a test or one trial of a property: what fails in a trial names its draws.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// network carries messages between the nodes of a test, on a clock of its own: with a rate, a delay, and faults.
type network struct {
	t          tester
	nodes      map[uint16]*Node
	now        int64
	events     events
	rng        *rand.Rand
	loss       float64 // of every message
	reorder    float64 // delayed by up to ten delays
	duplicate  float64
	delay      int64
	rate       float64            // bytes a ns on each node's link; 0: no limit
	free       map[uint16]int64   // when a node's link is free
	room       int                // messages of a turn
	cut        map[[2]uint16]bool // from, to: nothing passes
	watch      func(from, to uint16, b []byte)
	order      uint64
	timer      map[uint16]uint64 // the event of a node's next turn, if nothing comes before
	sent, lost int
}

type event struct {
	at    int64
	order uint64
	node  uint16
	bytes []byte // nil: a turn is due
	poke  bool   // by Wake
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func newNetwork(t tester, seed uint64) *network {
	return &network{t: t, nodes: map[uint16]*Node{}, rng: rand.New(rand.NewPCG(seed, 1)), delay: 20_000, room: outRoom,
		free: map[uint16]int64{}, timer: map[uint16]uint64{}, cut: map[[2]uint16]bool{}, now: 1}
}

// add starts a node.
func (w *network) add(cfg Config) *Node {
	w.t.Helper()
	n, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	n.eng.now = w.now
	id := cfg.Node
	n.wake = func() {
		w.order++
		heap.Push(&w.events, event{at: w.now, order: w.order, node: id, poke: true})
	}
	w.nodes[id] = n
	n.wake()
	return n
}

func (w *network) at(t int64, node uint16, b []byte) {
	w.order++
	heap.Push(&w.events, event{at: t, order: w.order, node: node, bytes: b})
}

// kill takes a node out without a word.
func (w *network) kill(node uint16) { delete(w.nodes, node) }

// step handles one event; false when nothing is left.
func (w *network) step() bool {
	if len(w.events) == 0 {
		return false
	}
	ev := heap.Pop(&w.events).(event)
	w.now = max(w.now, ev.at)
	n := w.nodes[ev.node]
	if n == nil {
		return true
	}
	if ev.bytes == nil && !ev.poke && ev.order != w.timer[ev.node] {
		return true // a later turn has set another time
	}
	n.eng.begin(w.now, w.room)
	if ev.bytes != nil {
		if v, fault := wire.Validate(ev.bytes); fault == wire.OK {
			n.eng.receive(v)
		}
	}
	if next := n.turn(); next > 0 {
		w.at(max(next, w.now+1000), ev.node, nil)
		w.timer[ev.node] = w.order
	}
	for i := range n.eng.out {
		m := &n.eng.out[i]
		b := append(append(make([]byte, 0, wire.HeaderLen+len(m.payload)), m.header[:]...), m.payload...)
		w.send(ev.node, m.to, b)
	}
	return true
}

func (w *network) send(from, to uint16, b []byte) {
	w.sent++
	if w.watch != nil {
		w.watch(from, to, b)
	}
	start := max(w.now, w.free[from])
	if w.rate > 0 {
		start += int64(float64(len(b)+42) / w.rate)
		w.free[from] = start
	}
	if w.cut[[2]uint16{from, to}] || w.rng.Float64() < w.loss {
		w.lost++
		return
	}
	copies := 1
	if w.rng.Float64() < w.duplicate {
		copies = 2
	}
	for range copies {
		at := start + w.delay
		if w.rng.Float64() < w.reorder {
			at += w.rng.Int64N(10 * w.delay)
		}
		w.at(at, to, b)
	}
}

// until runs until done says so, at most for so many ns of the network's time.
func (w *network) until(limit int64, done func() bool) bool {
	end := w.now + limit
	for !done() {
		if w.now > end || !w.step() {
			return done()
		}
	}
	return true
}

func peers(n int) (p []Peer) {
	for i := range n {
		p = append(p, Peer{Node: uint16(i)})
	}
	return p
}

// ringOf starts n nodes, 0 to n-1.
func (w *network) ringOf(n int, change func(*Config)) (nodes []*Node) {
	for i := range n {
		cfg := Config{Node: uint16(i), Peers: peers(n), SliceElements: 512, Boot: uint64(100 + i)}
		if change != nil {
			change(&cfg)
		}
		nodes = append(nodes, w.add(cfg))
	}
	return nodes
}

// job is one request on all nodes.
type job struct {
	codec string
	in    [][]float32
	data  [][]float32
	done  []*Completion
}

func (w *network) job(n, length int, name string) *job {
	j := &job{codec: name, done: make([]*Completion, n)}
	for range n {
		in := make([]float32, length)
		for i := range in {
			in[i] = float32(w.rng.NormFloat64() * math.Exp(4*w.rng.NormFloat64()))
		}
		j.in = append(j.in, in)
		j.data = append(j.data, append([]float32(nil), in...))
	}
	return j
}

// submit hands node i's part in.
func (j *job) submit(t tester, n *Node, i int) {
	t.Helper()
	_, err := n.Submit(Request{Data: j.data[i], Codec: j.codec, Done: func(c Completion) {
		if j.done[i] != nil {
			t.Errorf("node %d: done twice", i)
		}
		j.done[i] = &c
	}})
	if err != nil {
		t.Fatalf("node %d: %v", i, err)
	}
}

// submitAll hands every node's part in.
func (j *job) submitAll(t tester, nodes []*Node) {
	t.Helper()
	for i, node := range nodes {
		j.submit(t, node, i)
	}
}

func (j *job) over() bool {
	for _, c := range j.done {
		if c == nil {
			return false
		}
	}
	return true
}

// want computes what each node must have, by the card's rules and a model of its own: the chain of each slice is summed
// one hop after the other, encoded anew at each.
func (j *job) want(t tester, slice int) [][]float32 {
	t.Helper()
	n, length := len(j.in), len(j.in[0])
	c, err := codec.ByName(j.codec)
	if err != nil {
		t.Fatal(err)
	}
	through := func(v []float32) []float32 {
		b := make([]byte, c.MaxEncoded(len(v)))
		if _, err := c.Encode(b, v, nil); err != nil {
			t.Fatal(err)
		}
		out := make([]float32, len(v))
		if err := c.Decode(out, b, nil); err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := make([][]float32, n)
	for i := range out {
		out[i] = make([]float32, length)
	}
	for at := 0; at == 0 || at < length; at += slice {
		owner := at / slice % n // sends the slice first
		part := func(node int) []float32 {
			v := make([]float32, slice)
			if at < length {
				copy(v, j.in[node][at:])
			}
			return v
		}
		acc := part(owner)
		node := owner
		for range n - 1 {
			node = (node + n - 1) % n
			acc = through(acc)
			for i, v := range part(node) {
				acc[i] += v
			}
		}
		put := func(node int, v []float32) {
			if at < length {
				copy(out[node][at:], v)
			}
		}
		card := j.codec == "bfp16-intel"
		if !card {
			acc = through(acc)
		}
		put(node, acc)
		for range n - 1 {
			node = (node + n - 1) % n
			if card {
				acc = through(acc)
			}
			put(node, acc)
		}
	}
	return out
}

// check compares every node's result with want, bit for bit.
func (j *job) check(t tester, slice int) {
	t.Helper()
	want := j.want(t, slice)
	for i := range j.data {
		if c := j.done[i]; c == nil || c.Err != nil {
			t.Fatalf("node %d: %+v", i, c)
		}
		if err := equal(j.data[i], want[i]); err != nil {
			t.Fatalf("node %d of %d, %s, %d elements: %v", i, len(j.in), j.codec, len(j.in[0]), err)
		}
	}
}

func equal(got, want []float32) error {
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("element %d is %v (%#x), want %v (%#x)", i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
	return nil
}
