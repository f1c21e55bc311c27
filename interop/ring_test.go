package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gradnic/dataplane"
	wire "gradnic/wire/ring"
)

// The ring suite passes over a veth: the card is a node on AF_XDP.
func TestRingOverVeth(t *testing.T) {
	t.Parallel()
	s, o := load(t, "ring"), options(t, 64)
	// A node that was held up itself gives a silent neighbour time anew, so on a busy machine it is long until one is dead.
	o.Quiet, o.Timeout = 8*time.Millisecond, 30*time.Second
	c := newCable(t, 1500)
	n, err := dataplane.New(dataplane.Config{MAC: o.NIC.MAC, IP: o.NIC.IP, Wait: dataplane.Interrupt}, dataplane.XDPPort{Interface: "card", Namespace: c.card.Do})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if s := n.Snapshot(); s.Check() != nil {
			t.Error(s.Check())
		}
	}()
	card, err := NewRingCard(n, "card", c.open(t, &o), &o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := card.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := Run(context.Background(), s, card, "kit", o)
	if err != nil {
		t.Fatal(err)
	}
	mustPass(t, r)
}

// header offsets in a frame, docs/protocol.md.
const (
	kindAt  = 42
	bodyAt  = 58
	valueAt = 82
)

func is(f []byte, k wire.Kind) bool { return len(f) >= valueAt && f[kindAt]&15 == byte(k) }

// A node that breaks a rule fails the case of that rule, and no other that does not meet it. Each is the right node with what
// it sends, or what reaches it, changed on the way.
func TestBrokenNodes(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	places := make(chan struct{}, 12)
	add := func(f []byte, at int, n uint32) {
		binary.BigEndian.PutUint32(f[at:], binary.BigEndian.Uint32(f[at:])+n)
	}
	for name, b := range map[string]struct {
		fails, passes string
		sent          func(f []byte) bool // by the card; false: it does not send it
		given         func(f []byte)      // to the card
	}{
		"wrong-sum": {"none", "bfp16", func(f []byte) bool {
			if is(f, wire.Data) && f[44] == 0 && f[43]&flagGather != 0 {
				f[valueAt+1] ^= 1
			}
			return true
		}, nil},
		"wrong-flit": {"bfp16-intel", "bfp16", func(f []byte) bool {
			if is(f, wire.Data) && f[44] == 2 {
				f[valueAt+33] ^= 1
			}
			return true
		}, nil},
		"wrong-order": {"three-none", "none", func(f []byte) bool {
			if is(f, wire.Data) && f[kindAt+3] == 1 && f[43]&flagGather == 0 {
				f[kindAt+33] = 2
			}
			return true
		}, nil},
		"no-resend": {"lost-to-kit", "reordered", func(f []byte) bool { return !is(f, wire.Data) || f[43]&flagResend == 0 }, nil},
		"resends-other-bytes": {"all-lost", "", func(f []byte) bool {
			if is(f, wire.Data) && f[43]&flagResend != 0 {
				f[valueAt+2] ^= 1
			}
			return true
		}, nil},
		"resends-without-the-flag": {"all-lost", "", func(f []byte) bool {
			if is(f, wire.Data) {
				f[43] &^= flagResend
			}
			return true
		}, nil},
		"numbers-anew": {"bfp16", "left", func(f []byte) bool {
			if is(f, wire.Data) && binary.BigEndian.Uint32(f[bodyAt+4:]) > 1 {
				add(f, bodyAt, 1)
			}
			return true
		}, nil},
		"acknowledges-too-much": {"lost-to-card", "left", func(f []byte) bool {
			if is(f, wire.Ack) && len(f) > valueAt {
				add(f, bodyAt, 1)
			}
			return true
		}, nil},
		"no-bitmap": {"lost-to-card", "duplicate", func(f []byte) bool { return !is(f, wire.Ack) || len(f) == valueAt }, nil},
		"grants-less": {"none", "", func(f []byte) bool {
			if is(f, wire.Ack) {
				add(f, bodyAt+8, ^uint32(0))
			}
			return true
		}, nil},
		"no-flag-of-duplicates": {"duplicate", "bfp16", func(f []byte) bool {
			if is(f, wire.Ack) {
				f[43] = 0
			}
			return true
		}, nil},
		"counts-duplicates-twice": {"duplicate", "bfp16", func(f []byte) bool { return true }, func(f []byte) {
			if !is(f, wire.Data) {
				return
			}
			if f[43]&flagResend != 0 {
				add(f, bodyAt, 7) // taken as another frame: refused, or summed elsewhere
			}
		}},
		"epoch": {"form", "", func(f []byte) bool {
			if f[43]&4 != 0 && is(f, wire.Hello) {
				f[57] ^= 1
			}
			return true
		}, nil},
		"boot-of-the-other": {"form", "", func(f []byte) bool {
			if is(f, wire.Hello) {
				f[bodyAt+47] ^= 1
			}
			return true
		}, nil},
		"takes-any-generation": {"foreign", "bfp16", nil, func(f []byte) {
			if is(f, wire.Data) && binary.BigEndian.Uint32(f[50:]) > 1 {
				add(f, 50, ^uint32(0))
			}
		}},
		"takes-any-ring": {"foreign", "bfp16", nil, func(f []byte) {
			if is(f, wire.Data) {
				f[46], f[47] = 0, 0
			}
		}},
		"takes-any-node": {"foreign", "bfp16", nil, func(f []byte) {
			if is(f, wire.Data) {
				f[49] = 1
			}
		}},
		"takes-any-version": {"not-messages", "bfp16", nil, func(f []byte) {
			if is(f, wire.Data) {
				f[kindAt] = 0x11
			}
		}},
		"any-slice": {"refused", "bfp16", nil, func(f []byte) {
			if is(f, wire.Data) && f[kindAt+3] == 0 {
				f[kindAt+33] = 1
			}
		}},
		"ignores-credit": {"credit", "bfp16", nil, func(f []byte) {
			if is(f, wire.Ack) {
				add(f, bodyAt+4, 1)
			}
		}},
		"ignores-credit-of-sums": {"credit-gather", "bfp16", nil, func(f []byte) {
			if is(f, wire.Ack) {
				add(f, bodyAt+8, 1)
			}
		}},
		"leaves-without-a-word": {"goodbye", "bfp16", func(f []byte) bool { return !is(f, wire.Notice) }, nil},
		"does-not-name-the-dead": {"silent", "left", func(f []byte) bool {
			if is(f, wire.Notice) && f[44] == byte(wire.Silent) {
				f[75] = 0
			}
			return true
		}, nil},
		"keeps-notices-to-itself": {"left", "bfp16", func(f []byte) bool { return !is(f, wire.Notice) }, nil},
	} {
		all.Go(func() { // they wait more than they work
			places <- struct{}{}
			defer func() { <-places }()
			o := options(t, 64)
			o.Quiet = 5 * time.Millisecond
			m, err := OpenRingMem(context.Background(), &o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			broken := &brokenWire{m.Target.(*memWire), b.sent, b.given}
			m.Target, m.next = broken, broken
			judge := func(only string, want Verdict) {
				o.Only = []string{only}
				r, err := Run(context.Background(), load(t, "ring"), m, "card", o)
				if err != nil || len(r.Results) != 1 || r.Results[0].Verdict != want {
					t.Errorf("%s: not %v: %v %+v", name, want, err, r)
				}
			}
			if b.passes != "" {
				judge(b.passes, Passed)
			}
			o.Timeout = 1200 * time.Millisecond // in which the silent neighbour is noticed
			judge(b.fails, Failed)
			if err := m.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// brokenWire changes frames on their way.
type brokenWire struct {
	*memWire
	sent  func([]byte) bool
	given func([]byte)
}

func (b *brokenWire) Send(f []byte) error {
	if f = bytes.Clone(f); b.given != nil {
		b.given(f)
	}
	return b.memWire.Send(f)
}

func (b *brokenWire) Next(deadline time.Time) ([]byte, error) {
	for {
		f, err := b.memWire.Next(deadline)
		if err != nil || b.sent == nil || b.sent(f) {
			return f, err
		}
	}
}

// The host's result of a request, by the suite's rules, is the sum of all nodes' elements where the codec keeps them.
func TestRingModel(t *testing.T) {
	for _, nodes := range []int{2, 3} {
		for _, name := range []string{"none", "bfp16", "fp16", "bf16", "bfp16-intel"} {
			m, err := newRingModel(&Call{Codec: name, Nodes: nodes})
			if err != nil {
				t.Fatal(err)
			}
			const length = 3*ringSlice + 100
			got, err := m.result(length)
			if err != nil || len(got) != length {
				t.Fatalf("%v, %d elements", err, len(got))
			}
			for i, v := range got {
				want := float32(0)
				for n := range nodes {
					want += float32((i*(1+n%2)+n)%3 - 1)
				}
				if d := v - want; d > 0.04 || d < -0.04 || d != 0 && !m.card() {
					t.Fatalf("%s, %d nodes: element %d: %v, not %v", name, nodes, i, v, want)
				}
			}
		}
	}
	if m, err := newRingModel(&Call{Codec: "bfp16-intel", Nodes: 2}); err != nil || m.frames() != 8 {
		t.Errorf("%v: %d frames", err, m.frames())
	}
	for _, c := range []Call{{Codec: "topk", Nodes: 2}, {Codec: "none", Nodes: 4}} {
		if _, err := newRingModel(&c); err == nil {
			t.Errorf("%+v", c)
		}
	}
}

// A card's command is told what its host must hand in, and may say that it cannot.
func TestRingCallCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "call")
	o := options(t, 64)
	o.Only, o.Quiet, o.Timeout = []string{"bfp16-intel"}, time.Millisecond, 100*time.Millisecond
	silent := dataplane.NewMemPort("nobody")
	nic, err := dataplane.New(dataplane.Config{MAC: o.NIC.MAC, IP: o.NIC.IP, Wait: dataplane.Interrupt}, silent)
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	target := &called{Target: &memWire{port: silent, quiet: o.Quiet}, ctx: context.Background(), command: "env | grep ^RING_ | sort >" + file + "; echo not this one >&2; exit 77"}
	r, err := Run(context.Background(), load(t, "ring"), target, "card", o)
	if err != nil || r.Count(Unsupported) != 1 || !strings.Contains(r.Results[0].Detail, "not this one") {
		t.Errorf("%v %+v", err, r)
	}
	text, err := os.ReadFile(file)
	want := "RING_BYTES=65536\nRING_CODEC=bfp16-intel\nRING_COUNT=16384\nRING_NODE=0\nRING_NODES=2\nRING_ROUNDS=2\nRING_SOURCE=(i*(1+node%2)+node)%3-1\n"
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
	if !slices.Contains(Shipped(), "ring") {
		t.Error("the suite is not shipped")
	}
}
