package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"gradnic/xdp/bpf"
)

// Answer is what the steering program does by itself with frames that are to be taken, so that no socket and no
// system call is in their way: what a benchmark's device has to do can be done where the frame arrives, several times faster
// than by copy-mode sockets.
type Answer uint8

const (
	// ToSocket is the default: frames go to the socket of their queue.
	ToSocket Answer = iota
	// SinkHere drops them, under the verdict Sunk.
	SinkHere
	// ReflectHere sends them back by XDP_TX with their MAC addresses exchanged, under the verdict Reflected. What a driver
	// then cannot send it drops, and counts under names of its own (ethtool -S). On a veth the other end needs an XDP
	// program, even one that passes everything: without one the driver takes the frames and does not tell that end
	// (veth_xdp_flush in drivers/net/veth.c of Linux 6.18).
	ReflectHere
)

// String is "socket", "sink" or "reflect".
func (a Answer) String() string {
	switch a {
	case ToSocket:
		return "socket"
	case SinkHere:
		return "sink"
	case ReflectHere:
		return "reflect"
	}
	return fmt.Sprintf("answer-%d", uint8(a))
}

// Flags of the configuration, as in bpf/steer.c.
const (
	flagSink    = 8
	flagReflect = 16
	flagAccount = 32
)

// AccountStreams is how many senders an account tells apart on each CPU.
const AccountStreams = 16

// AccountWindow is how far back, in numbers, an account still tells a late packet from one that came twice.
const AccountWindow = 1024

// Account is what one CPU has seen of the kernel's packet generator among the frames that it answered.
type Account struct {
	Frames    uint64 // of pktgen
	Other     uint64 // that are not
	Untracked uint64 // of pktgen, from senders beyond AccountStreams
	Streams   []AccountStream
	Latency   []AccountLatency // shortest first
}

// AccountStream is one sender. Numbers are counted on from 2^32 plus the first one; those from First up to Next, Next
// left out, that are not among Unique are missing, unless they are Ancient.
type AccountStream struct {
	MAC         [6]byte
	IP          [4]byte
	First, Next uint64
	Unique      uint64 // numbers that came
	Duplicates  uint64
	Reordered   uint64
	Ancient     uint64                                               // too far back to tell late from twice
	Past        struct{ Unique, Lost, Duplicates, Reordered uint64 } // of runs that are over
}

// AccountLatency is how many packets took about so long from the generator's time of day to ours; the time is right to 2 %.
type AccountLatency struct {
	Latency time.Duration
	Packets uint64
}

// SetAnswer sets what becomes of frames that are to be taken, from now on; account begins a new account of pktgen's
// frames, which costs some 50 ns a frame. Budgets do not apply to frames that are answered here. The first answer other
// than ToSocket loads a larger program, with the rights that Attach takes, and puts it in the place of the one that is
// there, at once for frames.
func (st *Steering) SetAnswer(a Answer, account bool) error {
	if a > ReflectHere {
		return fmt.Errorf("steering: answer %d: legal are socket, sink and reflect", a)
	}
	if account && a == ToSocket {
		return errors.New("steering: only frames that are answered by the program are accounted for by it")
	}
	var flags uint16
	switch a {
	case SinkHere:
		flags = flagSink
	case ReflectHere:
		flags = flagReflect
	}
	set := func(flags uint16) error {
		return st.change(func(c *bpf.SteerAddress) { c.Flags = c.Flags&^(flagSink|flagReflect|flagAccount) | flags })
	}
	if err := set(flags); err != nil || !account {
		return err
	}
	// Nothing is accounted for while the account is emptied.
	if err := st.emptyAccount(); err != nil {
		return err
	}
	return set(flags | flagAccount)
}

func (st *Steering) emptyAccount() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("steering: possible CPUs: %w", err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return ErrClosed
	}
	if err := st.accounts.Put(uint32(0), make([]bpf.SteerAccount, cpus)); err != nil {
		return fmt.Errorf("steering: account: %w", err)
	}
	none := make([]bpf.SteerStream, cpus)
	for i := range uint32(AccountStreams) {
		if err := st.streams.Put(i, none); err != nil {
			return fmt.Errorf("steering: stream %d of the account: %w", i, err)
		}
	}
	offset, err := dayOffset()
	if err != nil {
		return err
	}
	if err := st.day.Put(uint32(0), offset); err != nil {
		return fmt.Errorf("steering: time of day: %w", err)
	}
	return nil
}

// dayOffset is the time of day less the clock that programs can read, in ns. The two are slewed alike, so it changes
// only when somebody sets the time.
func dayOffset() (uint64, error) {
	var mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		return 0, fmt.Errorf("steering: clock: %w", err)
	}
	return uint64(time.Now().UnixNano() - mono.Nano()), nil
}

// Accounts reads the account, one entry for each CPU that took a frame; nil when none is kept.
func (st *Steering) Accounts() ([]Account, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, ErrClosed
	}
	if st.settings.Flags&flagAccount == 0 {
		return nil, nil
	}
	var totals []bpf.SteerAccount
	if err := st.accounts.Lookup(uint32(0), &totals); err != nil {
		return nil, fmt.Errorf("steering: account: %w", err)
	}
	all := make([]Account, len(totals))
	for cpu, t := range totals {
		a := &all[cpu]
		a.Frames, a.Other, a.Untracked = t.Frames, t.Other, t.Untracked
		for i, n := range t.Latency {
			if n > 0 {
				a.Latency = append(a.Latency, AccountLatency{bucketLatency(i), n})
			}
		}
	}
	for i := range uint32(AccountStreams) {
		var perCPU []bpf.SteerStream
		if err := st.streams.Lookup(i, &perCPU); err != nil {
			return nil, fmt.Errorf("steering: stream %d of the account: %w", i, err)
		}
		for cpu := range perCPU {
			if s := &perCPU[cpu]; s.Sender != 0 {
				all[cpu].Streams = append(all[cpu].Streams, accountStream(s))
			}
		}
	}
	some := all[:0]
	for _, a := range all {
		if a.Frames+a.Other > 0 {
			some = append(some, a)
		}
	}
	return some, nil
}

func accountStream(s *bpf.SteerStream) AccountStream {
	a := AccountStream{
		MAC: s.Mac, First: s.First, Next: s.Next,
		Unique: s.Unique, Duplicates: s.Duplicates, Reordered: s.Reordered, Ancient: s.Ancient,
	}
	binary.BigEndian.PutUint32(a.IP[:], uint32(s.Sender>>32))
	a.Past.Unique, a.Past.Lost, a.Past.Duplicates, a.Past.Reordered = s.PastUnique, s.PastLost, s.PastDuplicates, s.PastReordered
	return a
}

// bucketLatency is the middle of a bucket of the program's histogram: single nanoseconds below 32, then 32 buckets to
// the octave.
func bucketLatency(i int) time.Duration {
	const each = 32
	if i < each {
		return time.Duration(i)
	}
	octave, part := i/each-1, i%each
	low := time.Duration(each+part) << octave
	return low + time.Duration(1)<<octave/2
}
