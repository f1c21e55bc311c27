package interop

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/native"
)

const still = 60 * time.Millisecond

func everyFrame(int) time.Duration { return still }

// runRefNative runs the native suite but for the case that waits itself, which the virtual time of the card does not see.
func runRefNative(t *testing.T, c *refNative) (failed string) {
	t.Helper()
	s := load(t, "native")
	o := c.o
	for i := range s.Cases {
		if s.Cases[i].Name != "collecting" {
			o.Only = append(o.Only, s.Cases[i].Name)
		}
	}
	r, err := Run(context.Background(), s, c, "card", o)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range r.Results {
		switch x.Verdict {
		case Failed:
			names = append(names, x.Case)
		case Unsupported:
			t.Errorf("%s: %s", x.Case, x.Detail)
		}
	}
	if len(r.Results) != len(s.Cases)-1 {
		t.Errorf("%d cases of %d", len(r.Results), len(s.Cases))
	}
	return strings.Join(names, " ")
}

// A right card passes wherever the host stands still: before no frame, before every one, and before some.
func TestRightCardOnAStalledHost(t *testing.T) {
	o := options(t, 64)
	for _, x := range []struct {
		name    string
		stall   func(int) time.Duration
		notices bool
	}{{"never", nil, false}, {"always", everyFrame, true}, {"just-under", func(int) time.Duration { return 49 * time.Millisecond }, false}} {
		c := newRefNative(o, "", x.stall)
		if failed := runRefNative(t, c); failed != "" || (c.notices > 0) != x.notices {
			t.Errorf("%s: failed: %s; %d notices", x.name, failed, c.notices)
		}
	}
	told := 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := newRefNative(o, "", func(int) time.Duration {
			return time.Duration(random.Int64N(int64(100*time.Millisecond))) * time.Duration(random.IntN(2))
		})
		if failed := runRefNative(t, c); failed != "" {
			t.Errorf("seed %d: failed: %s", seed, failed)
		}
		told += c.notices
	}
	if told == 0 {
		t.Error("no notice came")
	}
}

// A card that tells a worker too early, wrongly, twice, or one that has not asked, fails; where the mistake takes time,
// because the host stands still.
func TestWrongNoticesFail(t *testing.T) {
	o := options(t, 64)
	const waits = "all-twice duplicate-before"
	for _, x := range []struct {
		mutation      string
		quick, halted string // cases that fail
	}{
		{"never-tells", "", ""}, // that is for the case collecting
		{"impatient", waits, ""},
		{"wrong-ranks", "", waits},
		{"no-ranks", "", waits},
		{"wrong-code", "", waits},
		{"wrong-worker", "", waits},
		{"twice", waits, waits},
	} {
		if failed := runRefNative(t, newRefNative(o, x.mutation, nil)); failed != x.quick {
			t.Errorf("%s: failed: %s, want %s", x.mutation, failed, x.quick)
		}
		if failed := runRefNative(t, newRefNative(o, x.mutation, everyFrame)); failed != x.halted {
			t.Errorf("%s on a stalled host: failed: %s, want %s", x.mutation, failed, x.halted)
		}
	}
	if failed := runRefNative(t, newRefNative(o, "hasty", func(int) time.Duration { return 24 * time.Millisecond })); failed != waits {
		t.Errorf("hasty: failed: %s", failed)
	}
	for _, mutation := range []string{"tells-the-first", "tells-all-that-wait"} { // none has asked: no case allows it
		failed := runRefNative(t, newRefNative(o, mutation, everyFrame))
		for _, some := range []string{"sum", "first-is-silent", "rounds", "window", "request-lost", "stale", "stranger", "duplicate-before", "all-twice"} {
			if !strings.Contains(" "+failed+" ", " "+some+" ") {
				t.Errorf("%s: %s did not fail", mutation, some)
			}
		}
	}
}

// halting stands still, in real time, before a packet that repeats the one before it.
type halting struct {
	*Mem
	times int // that are left
	last  [4]uint32
}

func (h *halting) Send(frame []byte) error {
	var p inet.Packet
	if h.times > 0 && inet.Parse(frame, &p) == inet.OK {
		if v, f := native.Validate(p.Payload); f == native.OK && v.Kind() == native.Contribution {
			key := [4]uint32{uint32(v.Rank()), v.Epoch(), v.Slot(), v.Round()}
			if key == h.last {
				h.times--
				time.Sleep(still)
			}
			h.last = key
		}
	}
	return h.Mem.Send(frame)
}

// The same with gradnic's data plane, which tells rightly, and whose clock is the machine's. That it waits for too long does no
// harm.
func TestMemOnAStalledHost(t *testing.T) {
	s, o := load(t, "native"), options(t, 64)
	for name, times := range map[string]int{"duplicate-before": 1, "all-twice": 3} {
		o.Only = []string{name}
		m, err := OpenMem(context.Background(), &o, s)
		if err != nil {
			t.Fatal(err)
		}
		h := &halting{Mem: m, times: times}
		r, err := Run(context.Background(), s, h, "mem", o)
		if err != nil {
			t.Fatal(err)
		}
		mustPass(t, r)
		told := 0
		for _, f := range r.Results[0].Frames {
			var p inet.Packet
			if f.Sent || inet.Parse(f.Data, &p) != inet.OK {
				continue
			}
			if v, fault := native.Validate(p.Payload); fault == native.OK && v.Kind() == native.Notice && native.Code(v.Payload()[0]) == native.Collecting {
				told++
			}
		}
		if h.times != 0 || told < times {
			t.Errorf("%s: %d notices of %d that had to come; %d stalls were not made", name, told, times, h.times)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
