package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"gradnic/internal/sequence"
)

const xdpTx = 3

// pktgenFrame is a frame of the kernel's packet generator from sender, made at this time of day; the zero time: without a
// stamp.
func pktgenFrame(sender byte, number uint32, at time.Time) []byte {
	f := append(from(sender), make([]byte, 64)...)
	f[29] = sender
	p := f[42:]
	binary.BigEndian.PutUint32(p, 0xbe9be955)
	binary.BigEndian.PutUint32(p[4:], number)
	clear(p[8:16])
	if !at.IsZero() {
		binary.BigEndian.PutUint32(p[8:], uint32(at.Unix()))
		binary.BigEndian.PutUint32(p[12:], uint32(at.Nanosecond()/1000))
	}
	return f
}

// onOneCPU keeps the test on one CPU: an account is of one.
func onOneCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 8 * len(all) * 8 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// answering is a program that answers frames itself; it has no socket.
func answering(t testing.TB, multi bool, a Answer) *Steering {
	t.Helper()
	st := steeringWithSocket(t, multi)
	if err := st.SetAddress(nicMAC, nicIP); err != nil {
		t.Fatal(err)
	}
	if err := st.SetPorts(Ports(0xbee0, 0xbeef)); err != nil {
		t.Fatal(err)
	}
	if err := st.Unbind(0); err != nil {
		t.Fatal(err)
	}
	if err := st.SetAnswer(a, true); err != nil {
		t.Fatal(err)
	}
	return st
}

// account is what the only CPU that was used has seen: frames must not move.
func account(t testing.TB, st *Steering) (sum Account) {
	t.Helper()
	all, err := st.Accounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		sum.Frames, sum.Other, sum.Untracked = sum.Frames+a.Frames, sum.Other+a.Other, sum.Untracked+a.Untracked
		sum.Streams = append(sum.Streams, a.Streams...)
		sum.Latency = append(sum.Latency, a.Latency...)
	}
	return sum
}

// feed lets the program judge a frame on the CPU that the test's thread is bound to.
func feed(t testing.TB, st *Steering, frame []byte) (action uint32, out []byte) {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	action, err := st.program.Run(&o)
	if err != nil {
		t.Fatal(err)
	}
	return action, o.DataOut
}

// A reflected frame is the same but for its MAC addresses, which are exchanged.
func TestReflectedFrame(t *testing.T) {
	for _, multi := range []bool{false, true} {
		st := answering(t, multi, ReflectHere)
		f := pktgenFrame(7, 1, time.Now())
		action, out := feed(t, st, f)
		want := bytes.Clone(f)
		copy(want, f[6:12])
		copy(want[6:], f[:6])
		if action != xdpTx || !bytes.Equal(out, want) {
			t.Errorf("frags=%t: action %d, frame %x, want %x", multi, action, out[:14], want[:14])
		}
	}
}

// The program's account is the lanes' account: both count the same of any order, loss and repetition within the
// program's window.
func TestAccountAgainstTracker(t *testing.T) {
	onOneCPU(t)
	st := answering(t, false, SinkHere)
	rapid.Check(t, func(rt *rapid.T) {
		if err := st.SetAnswer(SinkHere, true); err != nil {
			rt.Fatal(err)
		}
		number := rapid.Uint32().Draw(rt, "first")
		var want sequence.Tracker
		high := number
		n := rapid.IntRange(1, 60).Draw(rt, "packets")
		for i := range n {
			if i > 0 {
				step := rapid.OneOf(rapid.Just(1), rapid.IntRange(-300, 300), rapid.IntRange(-AccountWindow+1, 3*AccountWindow)).Draw(rt, "step")
				if next := number + uint32(step); int32(next-high) > -AccountWindow+1 {
					number = next
				}
			}
			if int32(number-high) > 0 {
				high = number
			}
			want.Observe(number)
			feed(t, st, pktgenFrame(3, number, time.Time{}))
		}
		got := account(t, st)
		if got.Frames != uint64(n) || got.Other != 0 || got.Untracked != 0 || len(got.Latency) != 0 || len(got.Streams) != 1 {
			rt.Fatalf("%+v", got)
		}
		w := want.Counts()
		s := got.Streams[0]
		if c := (sequence.Counts{First: s.First, Next: s.Next, Unique: s.Unique, Duplicates: s.Duplicates, Reordered: s.Reordered, Ancient: s.Ancient}); c != w {
			rt.Fatalf("the program counts %+v, a lane %+v", c, w)
		}
		if s.MAC != mac(3) || s.IP[3] != 3 {
			rt.Fatalf("sender %x %v", s.MAC, s.IP)
		}
	})
}

// Senders are told apart, runs are added up, what is older than the window is neither late nor twice, and what is not
// pktgen's is another.
func TestAccount(t *testing.T) {
	onOneCPU(t)
	st := answering(t, true, SinkHere)
	at := time.Now().Add(-time.Second)
	for run := range 3 {
		for n := uint32(1); n <= 10; n++ {
			stamp := at.Add(time.Duration(run)*100*time.Millisecond + time.Duration(n)*time.Microsecond)
			if n != 4 { // lost in each run
				feed(t, st, pktgenFrame(1, n, stamp))
			}
			if n == 7 {
				feed(t, st, pktgenFrame(1, n, stamp))
			}
		}
	}
	for _, n := range []uint32{1, AccountWindow + 2, 2} { // 2 is one number older than what is remembered
		feed(t, st, pktgenFrame(2, n, time.Time{}))
	}
	for i := range byte(AccountStreams) { // two beyond the table
		feed(t, st, pktgenFrame(10+i, 1, time.Time{}))
	}
	feed(t, st, udp())
	feed(t, st, arpFrame())
	feed(t, st, pktgenFrame(1, 1, at)[:57]) // cut in the header
	got := account(t, st)
	if got.Frames != 30+3+AccountStreams || got.Other != 3 || got.Untracked != 2 || len(got.Streams) != AccountStreams {
		t.Fatalf("%d frames, %d others, %d untracked, %d streams", got.Frames, got.Other, got.Untracked, len(got.Streams))
	}
	a, b := got.Streams[0], got.Streams[1]
	if a.Past.Unique+a.Unique != 27 || a.Past.Lost+a.Next-a.First-a.Unique != 3 || a.Past.Duplicates+a.Duplicates != 3 || a.Past.Reordered+a.Reordered != 0 {
		t.Errorf("three runs: %+v", a)
	}
	if b.Ancient != 1 || b.Unique != 2 || b.Duplicates+b.Reordered != 0 {
		t.Errorf("older than the window: %+v", b)
	}
	var samples uint64
	for _, l := range got.Latency {
		samples += l.Packets
		if l.Latency < 600*time.Millisecond || l.Latency > 20*time.Second {
			t.Errorf("%d packets took %v; they are up to a second old", l.Packets, l.Latency)
		}
	}
	if samples != 30 {
		t.Errorf("%d latencies, 30 packets were stamped", samples)
	}
	// A new account is empty, and without one there is none.
	if err := st.SetAnswer(SinkHere, true); err != nil {
		t.Fatal(err)
	}
	if got := account(t, st); got.Frames+got.Other != 0 {
		t.Errorf("a new account: %+v", got)
	}
	if err := st.SetAnswer(SinkHere, false); err != nil {
		t.Fatal(err)
	}
	if all, err := st.Accounts(); err != nil || all != nil {
		t.Errorf("no account: %v, %v", all, err)
	}
}

// The program puts a latency into a bucket whose middle is within 2 % of it, over the whole range.
func TestLatencyBuckets(t *testing.T) {
	for i := 1; i < 960; i++ {
		low, mid := bucketLatency(i-1), bucketLatency(i)
		if mid <= low || i > 32 && float64(mid-low) > 0.035*float64(mid) {
			t.Errorf("bucket %d: %v behind %v", i, mid, low)
		}
	}
	if last := bucketLatency(959); last < 16*time.Second || last > 18*time.Second {
		t.Errorf("the last bucket is %v", last)
	}
	onOneCPU(t)
	st := answering(t, false, SinkHere)
	for _, ago := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, 3 * time.Second} {
		if err := st.SetAnswer(SinkHere, true); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		feed(t, st, pktgenFrame(1, 1, before.Add(-ago)))
		most := ago + time.Since(before) + 2*time.Microsecond
		got := account(t, st)
		if len(got.Latency) != 1 || float64(got.Latency[0].Latency) < 0.98*float64(ago) || float64(got.Latency[0].Latency) > 1.02*float64(most) {
			t.Errorf("a packet %v to %v old: %+v", ago, most, got.Latency)
		}
	}
}

// The program of every port is small, so that it is loaded in no time and with few rights; the one that answers takes its
// place, id and counters included, when it is asked for, and goes with the port.
func TestAnswersAreAnotherProgram(t *testing.T) {
	r := newRig(t, 1, 0)
	for _, multi := range []bool{false, true} {
		st, err := attachIn(r.nic, AttachOptions{IfIndex: r.nicIf, MultiBuffer: multi})
		if err != nil {
			t.Fatal(err)
		}
		info, err := st.program.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok && n > 20_000 {
			t.Errorf("multi %t: the verifier takes %d instructions to understand the steering program", multi, n)
		}
		first := st.ProgramID()
		if x := attached(t, r.nic, "port"); x.ProgId != first || first == 0 {
			t.Errorf("multi %t: %+v is attached, not %d", multi, x, first)
		}
		for _, a := range []Answer{ToSocket, SinkHere, ReflectHere, ToSocket} {
			if err := st.SetAnswer(a, a != ToSocket); err != nil {
				t.Fatal(err)
			}
			if x := attached(t, r.nic, "port"); x.ProgId != st.ProgramID() {
				t.Errorf("multi %t, %v: program %d is attached, not %d", multi, a, x.ProgId, st.ProgramID())
			}
		}
		if info, err = st.program.Info(); err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok && n > 50_000 {
			t.Errorf("multi %t: the verifier takes %d instructions to understand the program that answers", multi, n)
		} else {
			t.Logf("the verifier takes %d instructions", n)
		}
		if st.ProgramID() == first {
			t.Errorf("multi %t: the program is still %d", multi, first)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		if x := attached(t, r.nic, "port"); x.Attached {
			t.Errorf("multi %t: left behind %+v", multi, x)
		}
	}
}

func TestAnswersRefused(t *testing.T) {
	st := answering(t, false, SinkHere)
	for _, c := range []struct {
		a       Answer
		account bool
		want    string
	}{{ReflectHere + 1, false, "answer 3"}, {ToSocket, true, "accounted"}} {
		if err := st.SetAnswer(c.a, c.account); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %t: %v", c.a, c.account, err)
		}
	}
	if got := fmt.Sprint(ToSocket, SinkHere, ReflectHere, Answer(9)); got != "socket sink reflect answer-9" {
		t.Error(got)
	}
}
