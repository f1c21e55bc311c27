package native

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"gradnic/dataplane"
	wire "gradnic/wire/native"
	"gradnic/worker/datagram"
)

// A worker supplies the result that it is asked for, and none that it does not keep.
func TestSuppliesOnlyWhatIsWanted(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 2, Slots: 4, Elements: 8, Native: &dataplane.NativeSpec{}})
	ws := r.join()
	each(t, 2, func(ctx context.Context, i int) error { // slots 0 and 1 then have round 1, the others round 0
		_, err := AllReduce(ctx, ws[i], make([]int32, 6*8), make([]int32, 6*8))
		return err
	})
	e := ws[0].e
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ask := range []struct {
		slot, round uint32
		kept        uint64
	}{{0, 1, 1}, {0, 0, 0}, {0, 2, 0}, {3, 0, 1}, {3, 1, 0}, {4, 0, 0}, {1 << 30, 0, 0}} {
		before := e.counts.Supplied
		b := make([]byte, wire.HeaderLen)
		(&wire.Header{Kind: wire.Ask, Job: 1, Epoch: e.epoch, Slot: ask.slot, Round: ask.round}).Put(b, 0)
		e.take(0, b)
		if got := e.counts.Supplied - before; got != ask.kept {
			t.Errorf("asked for slot %d, round %d: %d supplied, want %d", ask.slot, ask.round, got, ask.kept)
		}
	}
}

// broken is a link that cannot send any more from some time on.
type broken struct {
	datagram.Link
	now atomic.Bool
}

func (b *broken) Send(frame []byte) error {
	if b.now.Load() {
		return errBroken
	}
	return b.Link.Send(frame)
}

var errBroken = errors.New("the link is broken")

// A worker that cannot send any more ends its calls with the reason, however many packets it was about to send.
func TestBrokenLink(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 1, Slots: 256, Elements: 8, Native: &dataplane.NativeSpec{}})
	cfg := r.config(0)
	link := &broken{Link: cfg.Link}
	cfg.Link = link
	w, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	v := make([]int32, 256*8)
	if _, err := AllReduce(t.Context(), w, v, v); err != nil {
		t.Fatal(err)
	}
	link.now.Store(true)
	for range 2 {
		if _, err := AllReduce(t.Context(), w, v, v); !errors.Is(err, errBroken) {
			t.Errorf("%v", err)
		}
	}
}

// A rank that cannot be is refused at once, not after a wait for workers that never come.
func TestRankRefused(t *testing.T) {
	for _, c := range []Config{{Rank: -1}, {Rank: 1024}, {Rank: 2, Workers: 2}} {
		c.NIC = nicIP
		if w, err := Join(t.Context(), c); err == nil || !strings.Contains(err.Error(), "legal are 0 to") {
			t.Errorf("rank %d of %d workers: %v %v", c.Rank, c.Workers, w, err)
		}
	}
}
