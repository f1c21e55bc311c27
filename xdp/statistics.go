package xdp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Statistics is the kernel's account of one socket (XDP_STATISTICS), counted since
// it was opened. A frame lost in the kernel is in exactly one of the Rx fields.
type Statistics struct {
	// RxDropped are frames longer than a chunk and, with multi-buffer, those for which the fill ring had some chunks and
	// too few. In copy mode the kernel's own count also has every frame of RxFillRingEmpty; here it has not.
	RxDropped       uint64
	RxInvalidDescs  uint64 // fill entries that named no chunk
	TxInvalidDescs  uint64 // TX entries of no length, out of the area, or in too long a chain
	RxRingFull      uint64 // RX ring full
	RxFillRingEmpty uint64 // no chunk in the fill ring
	TxRingEmpty     uint64 // wake-ups that found nothing to send; no loss
}

// Statistics reads the kernel's counters. It may be called beside the owner, not
// beside Close.
func (s *Socket) Statistics() (Statistics, error) {
	st, err := socketStatistics(s.fd)
	if err != nil {
		return Statistics{}, fmt.Errorf("statistics of queue %d of interface %d: %w", s.queue, s.ifindex, err)
	}
	dropped := st.Rx_dropped
	if !s.zeroCopy {
		// The kernel counts the empty ring before it counts the drop, and tells them the other way round: under traffic the
		// difference can be too small for a moment, never too large. The greatest that was seen keeps it from going back.
		dropped -= min(dropped, st.Rx_fill_ring_empty_descs)
		for {
			seen := s.dropped.Load()
			dropped = max(dropped, seen)
			if s.dropped.CompareAndSwap(seen, dropped) {
				break
			}
		}
	}
	return Statistics{
		RxDropped: dropped, RxInvalidDescs: st.Rx_invalid_descs, TxInvalidDescs: st.Tx_invalid_descs,
		RxRingFull: st.Rx_ring_full, RxFillRingEmpty: st.Rx_fill_ring_empty_descs, TxRingEmpty: st.Tx_ring_empty_descs,
	}, nil
}

// BoundMode is how a socket was bound in the end.
type BoundMode struct {
	ZeroCopy    bool
	NeedWakeup  bool
	MultiBuffer bool
	BusyPoll    bool
	HugePages   bool
	Anchored    bool
	TxBudget    int // frames one wake-up may send in copy mode
}

// Mode reports how the socket was bound.
func (s *Socket) Mode() BoundMode {
	anchored, _ := s.umem.Anchored()
	return BoundMode{
		ZeroCopy: s.zeroCopy, NeedWakeup: s.needWakeup, MultiBuffer: s.multi, BusyPoll: s.busyPoll,
		HugePages: s.umem.huge, Anchored: anchored, TxBudget: s.txBudget,
	}
}

// String is the mode on one line, as in "copy need-wakeup tx-budget=256 anchored".
func (m BoundMode) String() string {
	words := []string{"copy"}
	if m.ZeroCopy {
		words[0] = "zero-copy"
	}
	for _, w := range []struct {
		on   bool
		name string
	}{
		{m.NeedWakeup, "need-wakeup"}, {m.MultiBuffer, "multi-buffer"}, {m.BusyPoll, "busy-poll"},
		{!m.ZeroCopy, fmt.Sprintf("tx-budget=%d", m.TxBudget)}, {m.HugePages, "huge-pages"}, {m.Anchored, "anchored"},
	} {
		if w.on {
			words = append(words, w.name)
		}
	}
	return strings.Join(words, " ")
}

func optionsZeroCopy(flags uint32) bool { return flags&unix.XDP_OPTIONS_ZEROCOPY != 0 }
