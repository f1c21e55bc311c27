package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"gradnic/internal/netlab/netlabtest"
)

// sumTag is the tag of the jobs here: with two bits on either side set, so that a mark that runs into it is seen.
const sumTag = 0x3a5a

// summing is a program that sums up, with a socket that results go to.
func summing(t testing.TB, multi bool) (*Steering, *Sums) {
	t.Helper()
	st := steeringWithSocket(t, multi)
	s := newSums(t, 1024)
	if err := errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.SetSums(s)); err != nil {
		t.Fatal(err)
	}
	return st, s
}

func newSums(t testing.TB, slots int) *Sums {
	t.Helper()
	netlabtest.NeedRoot(t)
	s, err := NewSums(SumsOptions{Slots: slots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// sumAddress is where a rank's frames come from.
func sumAddress(rank int) ([6]byte, [4]byte) {
	return [6]byte{2, 0, 0, 0, byte(rank + 1), 9}, [4]byte{10, 50, 0, byte(rank + 1)}
}

// sumFrame is a contribution of a rank, whose addresses are those of installSum's members.
func sumFrame(rank, slot, set int, values []int32) []byte {
	f := udpFrame(0xbee0, 10+4*len(values))
	mac, ip := sumAddress(rank)
	copy(f[6:], mac[:])
	copy(f[26:], ip[:])
	h := f[42:]
	h[0] = 0x11
	if len(values) == 256 {
		h[0] = 0x13
	}
	binary.BigEndian.PutUint16(h[6:], uint16(set<<15|slot))
	for i, v := range values {
		binary.BigEndian.PutUint32(h[10+4*i:], uint32(v))
	}
	return f
}

// sumValues is so many times the same value.
func sumValues(n int, v int32) []int32 {
	values := make([]int32, n)
	for i := range values {
		values[i] = v
	}
	return values
}

// installSum installs a job; its ranks come from the addresses of 0 on, or of another one on.
func installSum(t rapid.TB, s *Sums, j SumJob, from ...int) SumJobID {
	t.Helper()
	id, err := s.Install(j)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range j.Workers {
		mac, ip := sumAddress(rank)
		if len(from) > 0 {
			mac, ip = sumAddress(from[0] + rank)
		}
		if err := s.SetMember(id, rank, mac, ip); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func sumStatus(t rapid.TB, s *Sums, id SumJobID) SumStatus {
	t.Helper()
	status, err := s.Status(id)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// sumEnd is what became of one frame.
type sumEnd struct {
	action  uint32
	verdict Verdict
	mark    uint16 // what its UDP checksum says
	frame   []byte
}

// sumRun lets the program judge a frame. Exactly one verdict must be counted.
func sumRun(t rapid.TB, st *Steering, frame []byte) sumEnd {
	t.Helper()
	before, err := st.Counters()
	if err != nil {
		t.Fatal(err)
	}
	e := sumFeed(t, st, frame)
	after, err := st.Counters()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for i := range after {
		if d := after[i] - before[i]; d != 0 {
			e.verdict = Verdict(i)
			counted += int(d)
		}
	}
	if counted != 1 {
		t.Fatalf("%d verdicts for one frame", counted)
	}
	return e
}

// sumFeed is sumRun without a verdict.
func sumFeed(t rapid.TB, st *Steering, frame []byte) (e sumEnd) {
	t.Helper()
	run := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	var err error
	if e.action, err = st.program.Run(&run); err != nil {
		t.Fatalf("test run of %d bytes: %v", len(frame), err)
	}
	e.frame = run.DataOut
	if len(e.frame) >= 42 {
		e.mark = binary.BigEndian.Uint16(e.frame[40:])
	}
	return e
}

// is checks action, verdict and mark; mark is not looked at when the frame ends here.
func (e sumEnd) is(t rapid.TB, what string, action uint32, v Verdict, mark uint16) {
	t.Helper()
	if e.action != action || e.verdict != v || action != xdpDrop && e.mark != mark {
		t.Fatalf("%s: action %d, %v, mark %#x; want %d, %v, %#x", what, e.action, e.verdict, e.mark, action, v, mark)
	}
}

// values are those of the frame as it came out.
func (e sumEnd) values(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(binary.BigEndian.Uint32(e.frame[52+4*i:]))
	}
	return out
}

// all checks that every value is v.
func (e sumEnd) all(t rapid.TB, what string, n int, v int32) {
	t.Helper()
	for i, got := range e.values(n) {
		if got != v {
			t.Fatalf("%s: value %d is %d, want %d", what, i, got, v)
		}
	}
}

func sumMark(m SumMark) uint16 { return sumTag<<2 | uint16(m) }

// withRights runs f on a thread that has these capabilities and no others.
func withRights(t *testing.T, f func() error, capabilities ...int) {
	t.Helper()
	done := make(chan error)
	go func() {
		done <- func() error {
			runtime.LockOSThread()
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var all, few [2]unix.CapUserData
			if err := unix.Capget(&header, &all[0]); err != nil {
				return fmt.Errorf("capget: %w", err)
			}
			few = all
			few[0].Effective, few[1].Effective = 0, 0
			for _, c := range capabilities {
				few[c/32].Effective |= 1 << (c % 32)
			}
			if err := unix.Capset(&header, &few[0]); err != nil {
				return fmt.Errorf("capset: %w", err)
			}
			err := f()
			if again := unix.Capset(&header, &all[0]); again != nil {
				return errors.Join(err, fmt.Errorf("capset: %w", again)) // the thread stays locked, and goes with its goroutine
			}
			runtime.UnlockOSThread()
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The programs load with CAP_BPF and CAP_NET_ADMIN alone, as the NIC keeps them for healing. Without CAP_PERFMON the verifier is stricter:
// it follows what a processor may guess, and takes some loops for endless.
func TestSumsNeedFewRights(t *testing.T) {
	for _, multi := range []bool{false, true} {
		st := steeringWithSocket(t, multi)
		var s *Sums
		withRights(t, func() (err error) {
			if s, err = NewSums(SumsOptions{Slots: 4}); err != nil {
				return err
			}
			begin := time.Now()
			err = errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.SetSums(s))
			t.Logf("frags=%t: loaded in %v", multi, time.Since(begin))
			return err
		}, unix.CAP_BPF, unix.CAP_NET_ADMIN)
		if t.Failed() {
			return
		}
		info, err := st.program.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok {
			t.Logf("frags=%t: the verifier takes %d instructions to understand the program", multi, n)
			if n > 500_000 {
				t.Errorf("frags=%t: the verifier takes %d instructions to understand the program; it gives up after a million", multi, n)
			}
		}
		for _, elements := range []int{64, 256} {
			id := installSum(t, s, SumJob{Workers: 2, Elements: elements, Slots: 2, Tag: sumTag})
			sumRun(t, st, sumFrame(1, 1, 1, sumValues(elements, -5))).is(t, "the first", xdpDrop, Summed, 0)
			e := sumRun(t, st, sumFrame(0, 1, 1, sumValues(elements, 3)))
			e.is(t, "the last", xdpRedirect, TakenUDP, sumMark(SumCompleted))
			e.all(t, "the result", elements, -2)
			if err := s.Remove(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Over a real netdev: frames of four workers come by two sockets, and one of each slot reaches the NIC's socket, with the sum.
func TestSumOverVeth(t *testing.T) {
	const workers, slots, rounds = 4, 8, 20
	for _, c := range []struct {
		multi bool
		mode  Mode
	}{{false, Native}, {true, Native}, {false, Generic}} {
		t.Run(fmt.Sprintf("frags=%t,%v", c.multi, c.mode), func(t *testing.T) {
			r := newRig(t, 1, 0)
			u := r.umem(UMEMOptions{Chunks: 256, ChunkSize: 2048})
			s := newSums(t, slots)
			rx := r.open(r.nic, u, SocketOptions{IfIndex: r.nicIf})
			tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
			st := r.attach(r.nic, AttachOptions{IfIndex: r.nicIf, MultiBuffer: c.multi, Mode: c.mode})
			if err := errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.Bind(0, rx), st.SetSums(s)); err != nil {
				t.Fatal(err)
			}
			if x := attached(t, r.nic, "port"); x.ProgId != st.ProgramID() {
				t.Fatalf("program %d is attached, not %d", x.ProgId, st.ProgramID())
			}
			rx.Fill(chunkRange(u, 0, 64))
			id := installSum(t, s, SumJob{Workers: workers, Elements: 256, Slots: slots, Tag: sumTag})
			for round := range rounds {
				for rank := range workers {
					for slot := range slots {
						d := Desc{Addr: uint64(64+rank*slots+slot) * 2048, Len: 1076}
						copy(u.Frame(d), sumFrame(rank, slot, round&1, sumValues(256, int32(1000*round+10*slot+rank))))
						if tx.Transmit([]Desc{d}) != 1 {
							t.Fatal("the TX ring is full")
						}
					}
				}
				if err := tx.Kick(); err != nil {
					t.Fatal(err)
				}
				reap(t, tx, 10*time.Second, func(uint64) {})
				got := 0
				if !drain(t, rx, 10*time.Second, func(d Desc) {
					e := sumEnd{xdpRedirect, TakenUDP, binary.BigEndian.Uint16(u.Frame(d)[40:]), u.Frame(d)}
					slot := int(u.Frame(d)[49])
					e.is(t, "a result", xdpRedirect, TakenUDP, sumMark(SumCompleted))
					e.all(t, fmt.Sprintf("round %d, slot %d", round, slot), 256, int32(workers*(1000*round+10*slot)+6))
					got++
				}, func() bool { return got == slots }) {
					t.Fatalf("round %d: %d of %d results", round, got, slots)
				}
			}
			v, err := st.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if v[Summed] != (workers-1)*slots*rounds || v[TakenUDP] != slots*rounds || v[Repeated] != 0 {
				t.Errorf("%d summed, %d taken, %d repeated", v[Summed], v[TakenUDP], v[Repeated])
			}
			if got := sumStatus(t, s, id); got.Results != slots*rounds || got.Wrapped != 0 || got.Collecting != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Whatever a worker sends for a slot tells when it was last there: to user space that is the difference between a worker that waits
// and one that is gone.
func TestSumSeen(t *testing.T) {
	st, s := summing(t, false)
	id := installSum(t, s, SumJob{Workers: 2, Elements: 64, Slots: 1, Tag: sumTag})
	var last time.Duration
	for _, c := range []struct {
		what string
		rank int
		want Verdict
	}{
		{"a contribution", 0, Summed}, {"the same once more", 0, Repeated}, {"and again", 0, Repeated},
		{"the last contribution", 1, TakenUDP}, {"a result that is asked for again", 0, TakenUDP},
	} {
		time.Sleep(20 * time.Millisecond) // the coarse clock goes at every tick
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
			t.Fatal(err)
		}
		if e := sumRun(t, st, sumFrame(c.rank, 0, 0, sumValues(64, 1))); e.verdict != c.want {
			t.Fatalf("%s: %v", c.what, e.verdict)
		}
		seen := sumStatus(t, s, id).Workers[c.rank].Seen
		if seen < time.Duration(now.Nano()) || seen <= last {
			t.Errorf("%s: rank %d was seen at %v; it is %v at least, and was %v", c.what, c.rank, seen, time.Duration(now.Nano()), last)
		}
		last = seen
	}
}

// A result's time is in the bucket whose bounds it is in.
func TestSumTimes(t *testing.T) {
	st, s := summing(t, false)
	id := installSum(t, s, SumJob{Workers: 2, Elements: 64, Slots: 1, Tag: sumTag})
	for _, wait := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond} {
		sumRun(t, st, sumFrame(0, 0, 0, sumValues(64, 1))).is(t, "the first", xdpDrop, Summed, 0)
		time.Sleep(wait)
		sumRun(t, st, sumFrame(1, 0, 0, sumValues(64, 1))).is(t, "the last", xdpRedirect, TakenUDP, sumMark(SumCompleted))
		got := sumStatus(t, s, id)
		if got.Sum < wait || got.Sum > time.Minute {
			t.Errorf("after %v it took %v", wait, got.Sum)
		}
		for i, n := range got.Times {
			is := got.Sum < 1<<(10+i) && (i == 0 || got.Sum >= 1<<(9+i))
			if is != (n == 1) || n > 1 {
				t.Errorf("%v: %d in bucket %d", got.Sum, n, i)
			}
		}
		if err := s.Reset(id); err != nil {
			t.Fatal(err)
		}
	}
}
