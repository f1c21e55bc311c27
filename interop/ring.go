package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
	wire "gradnic/wire/ring"
)

// Slice is one slice of a ring's block, in frames. The card is node 0; worker w is node w+1. What is in it follows from the
// rules (ringModel); $generation, $epoch, $request, $length, and $block, which is the request's first, are the case's.
type Slice struct {
	// Step is which of the node's sends of the block it is; Block is the block, counted in the request, and Blocks, if set,
	// how many in a row, each with its slice of this step.
	Step   int `yaml:"step"`
	Block  int `yaml:"block"`
	Blocks int `yaml:"blocks"`
	// Sequence is the number of the first frame; nil: $in, or of those to send $out, and the frames of the steps before.
	Sequence any `yaml:"sequence"`
	// Only, if set, are the frames that there are; Without are those that there are not.
	Only    []int `yaml:"only"`
	Without []int `yaml:"without"`
	// Reverse has the last frame first; numbers stay.
	Reverse bool `yaml:"reverse"`
	// Resend is true when it was sent before.
	Resend bool `yaml:"resend"`
	// Spoiled is true when the values are not what the rules say: a card that takes what it should drop has wrong sums.
	Spoiled bool `yaml:"spoiled"`
}

// sliceBody is the body that frames of a slice have.
const sliceBody = "data"

// flag bits of data, docs/protocol.md.
const (
	flagResend = 1
	flagGather = 2
)

// ringPeer is what the kit knows as a node of a ring.
type ringPeer struct {
	model *ringModel
	seen  map[string]bool // messages of data that came, without the flag
	come  map[uint32]bool // their numbers, from next on
	next  uint32          // all below have come
	owed  int             // frames that are not acknowledged
}

// startRing prepares for a call.
func (x *caseRun) startRing() (err error) {
	x.ring = &ringPeer{seen: map[string]bool{}, come: map[uint32]bool{}}
	if x.ring.model, err = newRingModel(x.c.Call); err != nil {
		return err
	}
	v := x.sc.vars
	v["frames"], v["count"], v["nodes"] = uint64(x.ring.model.frames()), uint64(x.c.Call.Count), uint64(x.c.Call.Nodes)
	return nil
}

// epoch is the digest of $generation and the members $boot0, $boot1 and so on.
func (sc *scope) epoch() uint64 {
	var members []wire.Member
	for i := range sc.vars["nodes"] {
		members = append(members, wire.Member{Node: uint16(i), Boot: sc.vars[fmt.Sprintf("boot%d", i)]})
	}
	return uint64(wire.Epoch(uint32(sc.vars["generation"]), members))
}

// slice makes frames of a slice's description.
func (x *caseRun) slice(f *Frame) (out []Frame, err error) {
	if x.ring == nil {
		return nil, errors.New("a slice, and the case has no call")
	}
	m, s := x.ring.model, f.Slice
	node, first := 0, any("$in")
	if f.From != nil {
		node, first = *f.From+1, "$out"
	}
	first = fmt.Sprintf("%s+$frames*%d", first, s.Step)
	if s.Sequence != nil {
		first = s.Sequence
	}
	sequence, unknown, err := x.sc.value(first, nil)
	if err != nil || unknown != "" {
		return nil, fmt.Errorf("slice: sequence %v has no value: %w", first, err)
	}
	flags := 0
	if s.Step >= m.nodes-1 {
		flags |= flagGather
	}
	if s.Resend {
		flags |= flagResend
	}
	for b := range max(s.Blocks, 1) {
		payloads, _, err := m.message(node, s.Step, s.Block+b, int(x.sc.vars["length"]))
		if err != nil {
			return nil, err
		}
		for k, p := range payloads {
			if len(s.Only) > 0 && !slices.Contains(s.Only, k) || slices.Contains(s.Without, k) {
				continue
			}
			if s.Spoiled {
				p[1] ^= 0x40 // a mantissa's high bit, in bfp16
			}
			one := *f
			one.Slice, one.Body, one.encoded = nil, sliceBody, p
			one.Fields = map[string]any{
				"kind": "data", "flags": flags, "code": uint64(m.codec.Info().ID), "step": s.Step, "node": node,
				"sequence": sequence + uint64(b*m.frames()+k), "request": "$request", "block": fmt.Sprintf("$block+%d", s.Block+b),
				"elements-of-all": "$length", "slice": (node + s.Step) % m.nodes, "offset": k * m.each, "elements": m.count(k),
			}
			for name, v := range f.Fields {
				one.Fields[name] = v
			}
			out = append(out, one)
		}
	}
	if s.Reverse {
		slices.Reverse(out)
	}
	return out, nil
}

// next is a target that gives frames one by one.
type next interface {
	// Next waits for a frame of the card; the error is os.ErrDeadlineExceeded when none came.
	Next(deadline time.Time) ([]byte, error)
}

const (
	ringPatience = 10 * time.Second   // for what must come, if Options have no Timeout
	ackDelay     = time.Millisecond   // until data are acknowledged, at the latest when so many came:
	ackFrames    = 8                  // docs/protocol.md: 22 KiB
	messageAt    = inet.PayloadOffset // in a frame
	flagsAt      = inet.PayloadOffset + 1
	sequenceAt   = inet.PayloadOffset + 16
)

// await waits for frames of a card that sends some by its own clock: those that may come at any time, and repeats, count for
// nothing unless they are expected. It ends when the frames are there: what came too much is seen by the next step. Without
// frames to wait for it ends when nothing has come for a while.
func (x *caseRun) await(s *Step, want []*built) error {
	t, ok := x.t.(next)
	if !ok || x.ring == nil {
		return fmt.Errorf("%w: it takes a target with a clock that gives frames one by one", errUnsupported)
	}
	quiet := max(x.sc.o.Quiet, time.Duration(s.Quiet)*time.Millisecond)
	patience := x.sc.o.Timeout
	if patience == 0 {
		patience = ringPatience
	}
	end, calm := time.Now().Add(patience), time.Now().Add(quiet)
	var extra, ignored [][]byte
	x.ring.owed = 0
	early := x.held
	x.held = nil
	for brisk := false; len(extra) == 0 && !brisk; {
		var f []byte
		if len(early) > 0 {
			f, early = early[0], early[1:]
		} else {
			var err error
			if f, err = x.hear(t, s, len(want) > 0, end, calm); err != nil {
				return err
			}
			now := time.Now()
			if f == nil && (len(want) == 0 && !now.Before(calm) || !now.Before(end)) {
				break
			}
			if now.After(end) && now.After(calm.Add(time.Second)) { // it does not stop to send
				break
			}
		}
		if f == nil {
			continue
		}
		i := slices.IndexFunc(want, func(w *built) bool { return w.matches(f) })
		data := isData(f)
		switch repeat := data && x.ring.repeats(f); {
		case i >= 0:
			x.sc.capture(want[i], f)
			want = slices.Delete(want, i, i+1)
			brisk = len(want) == 0 && s.Quiet == 0
		case repeat && !s.Settled || !data && x.ignores(f):
			ignored = append(ignored, f)
		case data && s.Early:
			x.held = append(x.held, f)
			continue
		default:
			extra = append(extra, f)
		}
		if data {
			x.ring.note(f)
		}
	}
	x.held = append(x.held, early...)
	if s.Acking && x.ring.owed > 0 {
		if err := x.acknowledge(); err != nil {
			return err
		}
	}
	x.dirty = false
	if len(want) == 0 && len(extra) == 0 {
		return nil
	}
	if len(extra) == 0 { // it may be one that came and is not right
		extra = x.likely(want, ignored)
	}
	return fmt.Errorf("%w: %s", errFailed, x.sc.explain(want, extra))
}

// hear waits for a frame until a moment; acknowledgements go out meanwhile. It returns nil when none came.
func (x *caseRun) hear(t next, s *Step, wanted bool, end, calm time.Time) ([]byte, error) {
	until := calm
	if wanted {
		until = end
	}
	if s.Acking && x.ring.owed > 0 {
		until = time.Now().Add(ackDelay)
	}
	f, err := t.Next(until)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, err
	}
	if s.Acking && x.ring.owed > 0 && (err != nil || x.ring.owed >= ackFrames) {
		if err := x.acknowledge(); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, nil
	}
	x.shots = append(x.shots, Shot{time.Now(), false, "", f})
	return f, nil
}

// isData reports whether a frame is one of data.
func isData(f []byte) bool {
	return len(f) >= wire.PayloadOffset && f[messageAt]&15 == byte(wire.Data)
}

// unflagged is a frame's message without the flag that it was sent before.
func unflagged(f []byte) string {
	message := slices.Clone(f[messageAt:])
	message[1] &^= flagResend
	return string(message)
}

// repeats reports whether data have the flag and came before, byte for byte.
func (r *ringPeer) repeats(f []byte) bool { return f[flagsAt]&flagResend != 0 && r.seen[unflagged(f)] }

// note remembers data.
func (r *ringPeer) note(f []byte) {
	r.seen[unflagged(f)] = true
	n := binary.BigEndian.Uint32(f[sequenceAt:])
	if int32(n-r.next) >= 0 {
		r.come[n] = true
	}
	for r.come[r.next] {
		delete(r.come, r.next)
		r.next++
	}
	r.owed++
}

// acknowledge tells the card what came.
func (x *caseRun) acknowledge() error {
	x.ring.owed = 0
	last := x.ring.model.nodes - 2 // the card sends to the last node
	return x.send(&Frame{From: &last, Body: "ack", Fields: map[string]any{
		"kind": "ack", "node": last + 1, "cumulative": uint64(x.ring.next), "reduce-credit": "$credit", "gather-credit": "$credit", "wait-node": wire.NoNode,
	}})
}

// ignores reports whether a frame may come at any time.
func (x *caseRun) ignores(f []byte) bool {
	l := x.sc.s.layout
	if d, fault := l.Decode(f); fault != layout.OK || len(d.Fields) == 0 {
		return false
	}
	return slices.ContainsFunc(x.sc.s.Ignore, func(fields map[string]any) bool {
		for name, raw := range fields {
			field := x.sc.s.field(name)
			v, unknown, err := x.sc.value(raw, field)
			if err != nil || unknown != "" || field.Get(f, l.Base()) != v {
				return false
			}
		}
		return true
	})
}

// likely are the latest frames that came instead of those that are missing: of the same kind and length.
func (x *caseRun) likely(want []*built, ignored [][]byte) (out [][]byte) {
	for _, w := range want {
		for i := len(ignored) - 1; i >= 0; i-- {
			f := ignored[i]
			if len(f) == len(w.frame) && len(f) > flagsAt && f[messageAt] == w.frame[messageAt] {
				return append(out, f)
			}
		}
	}
	return out
}

// ringEnvironment is a call for a card's command.
func (c *Call) ringEnvironment() []string {
	return []string{
		"RING_CODEC=" + c.Codec, fmt.Sprintf("RING_COUNT=%d", c.Count), fmt.Sprintf("RING_BYTES=%d", 4*c.Count),
		fmt.Sprintf("RING_NODES=%d", c.Nodes), fmt.Sprintf("RING_ROUNDS=%d", ringRounds), "RING_NODE=0",
		"RING_SOURCE=" + strings.ReplaceAll("(i*(1+node%2)+node)%3-1", " ", ""),
	}
}
