package interop

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"gradnic/wire/inet"
)

// array reduces a whole array, a window of all the case's slots at a time.
func (x *caseRun) array(a *Array) error {
	o := x.sc.o
	length := a.Segments*o.Elements + a.Plus
	if length < 1 {
		return fmt.Errorf("array of %d elements", length)
	}
	chunks := (length + o.Elements - 1) / o.Elements
	for at := 0; at < chunks; at += x.c.Slots {
		n := min(x.c.Slots, chunks-at)
		if err := x.window(a, at, n); err != nil {
			return fmt.Errorf("packets %d to %d of %d: %w", at, at+n-1, chunks, err)
		}
	}
	return nil
}

// contribution is worker r's values of a packet, and sum what all of them make. Behind the array's end is what a client
// leaves there: not zero.
func (x *caseRun) contribution(r, chunk int) *Values {
	first := int64(chunk * x.sc.o.Elements)
	k := int64(r + 1)
	return &Values{Start: k * (first + 1), Step: k}
}

func (x *caseRun) sum(chunk int) *Values {
	n := int64(x.sc.o.workers())
	first := int64(chunk * x.sc.o.Elements)
	k := n * (n + 1) / 2
	return &Values{Start: k * (first + 1), Step: k}
}

// window sends n packets of each worker and expects their results.
func (x *caseRun) window(a *Array, first, n int) error {
	type one struct{ worker, chunk int }
	var order []one
	for r := range x.sc.o.workers() {
		for c := range n {
			k := c
			if a.Order == "reverse" {
				k = n - 1 - c
			}
			order = append(order, one{r, first + k})
			if a.Order == "twice" {
				order = append(order, one{r, first + k})
			}
		}
	}
	switch a.Order {
	case "", "reverse", "twice":
	case "lossy": // the first worker's first packet comes last, after all others
		order = append(order[1:], order[0])
	default:
		return fmt.Errorf("order %q: reverse, twice or lossy", a.Order)
	}
	seen := map[int]map[int]bool{}
	var want []*built
	for _, p := range order {
		if seen[p.chunk] == nil {
			seen[p.chunk] = map[int]bool{}
		}
		again := seen[p.chunk][p.worker]
		complete := len(seen[p.chunk]) == x.sc.o.workers()
		seen[p.chunk][p.worker] = true
		fields := x.chunkFields(a, p.chunk)
		if err := x.send(&Frame{From: &p.worker, Fields: fields, Values: x.contribution(p.worker, p.chunk)}); err != nil {
			return err
		}
		if again && !complete && a.May != nil {
			if err := x.allow(x.waiting(a.May, p.worker, fields, seen[p.chunk])); err != nil {
				return err
			}
		}
		var to []int
		switch {
		case complete && again: // asked again: that worker alone
			to = []int{p.worker}
		case !again && len(seen[p.chunk]) == x.sc.o.workers():
			for r := range x.sc.o.workers() {
				to = append(to, r)
			}
		}
		for _, r := range to {
			result := maps.Clone(fields)
			maps.Copy(result, x.sc.s.ArrayResult)
			if again {
				maps.Copy(result, a.Again)
			}
			b, err := x.sc.build(Frame{To: &r, Fields: result, Values: x.sum(p.chunk)}, true)
			if err != nil {
				return err
			}
			want = append(want, b)
		}
	}
	return x.answered(want)
}

// chunkFields are an array's fields with the packet's numbers in them.
func (x *caseRun) chunkFields(a *Array, chunk int) map[string]any {
	slot, round := chunk%x.c.Slots, chunk/x.c.Slots
	fields := map[string]any{}
	for name, v := range a.Fields {
		switch v {
		case "chunk":
			v = uint64(chunk)
		case "slot":
			v = uint64(slot)
		case "round":
			v = uint64(round)
		case "set":
			v = uint64(round % 2)
		}
		fields[name] = v
	}
	return fields
}

// replayBatch is how many recorded requests are sent before the answers are taken.
const replayBatch = 32

// replay sends the recorded requests of NAME-w0.pcap, NAME-w1.pcap ... in time order and expects each worker's recorded
// replies, byte for byte and in order. The files were cut: there may be more replies in the end.
func (x *caseRun) replay(name string) (err error) {
	dir := x.sc.o.Captures
	if dir == "" {
		return fmt.Errorf("%w: no folder of captures was given", errUnsupported)
	}
	type step struct {
		time   time.Time
		worker int
		frame  []byte
	}
	var steps []step
	want := make([][][]byte, x.sc.o.workers())
	for r := range want {
		shots, err := readPcap(filepath.Join(dir, fmt.Sprintf("%s-w%d.pcap", name, r)))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %v", errUnsupported, err)
		}
		if err != nil {
			return err
		}
		for _, s := range shots {
			if inet.MAC(s.Data[6:12]) == x.sc.worker(r).MAC {
				steps = append(steps, step{s.Time, r, s.Data})
			} else {
				want[r] = append(want[r], s.Data)
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.time.Compare(b.time) })
	got := make([][][]byte, len(want))
	turns := make([]map[uint64][]uint64, len(want))
	for r := range turns {
		turns[r] = map[uint64][]uint64{}
	}
	defer func() { err = errors.Join(err, x.complete(turns)) }()
	for i, s := range steps {
		if err := x.put(s.frame, fmt.Sprintf("recorded, worker %d", s.worker)); err != nil {
			return err
		}
		x.turn(turns[s.worker], s.frame)
		if (i+1)%replayBatch != 0 && i+1 < len(steps) {
			continue
		}
		if err := x.sort(got, 0); err != nil { // which of them are complete is the card's matter
			return err
		}
	}
	for range 5 {
		if lacking(want, got) > 0 {
			if err := x.sort(got, 1); err != nil {
				return err
			}
		}
	}
	for r := range want {
		if len(want[r]) == 0 || len(got[r]) < len(want[r]) {
			return fmt.Errorf("%w: worker %d: %d replies, %d recorded", errFailed, r, len(got[r]), len(want[r]))
		}
		for i, w := range want[r] {
			b := &built{frame: w, mask: ones(len(w)), what: fmt.Sprintf("recorded reply %d to worker %d", i+1, r)}
			if !b.matches(got[r][i]) {
				return fmt.Errorf("%w: %s", errFailed, x.sc.explain([]*built{b}, got[r][i:i+1]))
			}
		}
	}
	return nil
}

// turn notes which set of which slot a recorded request is for, unless it is what the worker has sent last.
func (x *caseRun) turn(turns map[uint64][]uint64, frame []byte) {
	l := x.sc.s.named
	slot, set := l.Field("slot"), l.Field("set")
	if slot == nil || set == nil || len(frame) < l.Base()+l.Header {
		return
	}
	k, v := slot.Get(frame, l.Base()), set.Get(frame, l.Base())
	if t := turns[k]; len(t) == 0 || t[len(t)-1] != v {
		turns[k] = append(t, v)
	}
}

// complete sends what the recording, which was cut, leaves out: the packets of workers that are behind the others in a slot.
// Otherwise the slot stays half done, and no packet that a later run begins with can bring it to a known state.
func (x *caseRun) complete(turns []map[uint64][]uint64) error {
	late := 0
	for slot := range uint64(x.sc.o.Slots) {
		var all []uint64 // of the worker that is ahead
		for r := range turns {
			if t := turns[r][slot]; len(t) > len(all) {
				all = t
			}
		}
		for r := range turns {
			for _, set := range all[min(len(turns[r][slot]), len(all)):] {
				if err := x.send(&Frame{From: &r, Fields: map[string]any{"slot": int(slot), "set": int(set)}, Values: &Values{}}); err != nil {
					return fmt.Errorf("after the recording: %w", err)
				}
				late++
			}
		}
	}
	if late == 0 {
		return nil
	}
	_, err := x.collect(late * x.sc.o.workers())
	return err
}

// sort takes what the card sent to the workers that it is for.
func (x *caseRun) sort(got [][][]byte, want int) error {
	frames, err := x.collect(want)
	for _, f := range frames {
		for r := range got {
			if len(f) >= inet.EthernetLen && inet.MAC(f[:6]) == x.sc.worker(r).MAC {
				got[r] = append(got[r], f)
			}
		}
	}
	return err
}

// lacking is how many workers wait for a reply.
func lacking(want, got [][][]byte) (n int) {
	for r := range want {
		if len(got[r]) < len(want[r]) {
			n++
		}
	}
	return n
}

func ones(n int) []byte {
	m := make([]byte, n)
	for i := range m {
		m[i] = 0xff
	}
	return m
}

// readPcap reads a capture, pcap or pcapng.
func readPcap(path string) (shots []Shot, err error) {
	c, err := openCapture(path)
	if err != nil {
		return nil, err
	}
	defer c.close()
	for {
		data, ci, err := c.next()
		if errors.Is(err, io.EOF) {
			return shots, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: frame %d: %w", path, len(shots)+1, err)
		}
		if len(data) < inet.EthernetLen || ci.CaptureLength < ci.Length {
			return nil, fmt.Errorf("%s: frame %d: %d of %d bytes were recorded", path, len(shots)+1, len(data), ci.Length)
		}
		shots = append(shots, Shot{Time: ci.Timestamp, Data: data})
	}
}
