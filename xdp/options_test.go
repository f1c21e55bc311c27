package xdp

import (
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUMEMSizesAreChecked(t *testing.T) {
	for _, c := range []struct {
		o    UMEMOptions
		want string // part of the error; "" for legal
	}{
		{UMEMOptions{Chunks: 16}, ""},
		{UMEMOptions{Chunks: 16, ChunkSize: 2048, Headroom: 1791}, ""},
		{UMEMOptions{Chunks: 16, ChunkSize: 1800}, "chunk size 1800: legal are 2048 and 4096"},
		{UMEMOptions{Chunks: 16, ChunkSize: 2304}, "chunk size 2304: legal are"},
		{UMEMOptions{Chunks: 16, ChunkSize: 9000}, "chunk size 9000: legal are"},
		{UMEMOptions{Chunks: 16, ChunkSize: 8192}, "chunk size 8192: legal are"},
		{UMEMOptions{Chunks: 16, ChunkSize: -2048}, "chunk size -2048: legal are"},
		{UMEMOptions{Chunks: 0}, "0 chunks: legal are 1 to"},
		{UMEMOptions{Chunks: -1}, "-1 chunks: legal are 1 to"},
		{UMEMOptions{Chunks: MaxChunks + 1}, "4294967296 chunks: legal are 1 to 4294967295"},
		{UMEMOptions{Chunks: 16, Headroom: -1}, "headroom -1: legal are 0 to 3839"},
		{UMEMOptions{Chunks: 16, ChunkSize: 2048, Headroom: 1792}, "headroom 1792: legal are 0 to 1791"},
	} {
		_, err := c.o.check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		if c.want == "" {
			continue
		}
		if u, err := NewUMEM(c.o); u != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("NewUMEM %+v: %v, want %q", c.o, err, c.want)
		}
	}
	// What the machine does not have is not admitted: 16 TiB.
	const most = MaxChunks * 4096
	if l, err := systemLimits(0); err != nil || l.available >= most {
		t.Fatalf("%d bytes are available: %v", l.available, err)
	}
	if u, err := NewUMEM(UMEMOptions{Chunks: MaxChunks}); u != nil || !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "bytes of memory are available") {
		t.Errorf("%d bytes: %v", uint64(most), err)
	}
}

func TestRingSizesAreChecked(t *testing.T) {
	for _, n := range []int{0, 1, 3, 1000, 1 << 31, -2, 1 << 21, math.MinInt} {
		err := checkRing("rx", n)
		if err == nil || !strings.Contains(err.Error(), "legal are powers of two from 2 to 1048576") {
			t.Errorf("ring of %d: %v", n, err)
		}
	}
	for n := MinRing; n <= MaxRing; n *= 2 {
		if err := checkRing("rx", n); err != nil {
			t.Errorf("ring of %d: %v", n, err)
		}
	}
}

func TestSocketOptionsAreChecked(t *testing.T) {
	u, err := NewUMEM(UMEMOptions{Chunks: 16, ChunkSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	ok := SocketOptions{IfIndex: 1}
	with := func(f func(*SocketOptions)) SocketOptions { o := ok; f(&o); return o }
	for _, c := range []struct {
		o    SocketOptions
		want string
	}{
		{ok, ""},
		{with(func(o *SocketOptions) { o.RxSize = NoRing }), ""},
		{with(func(o *SocketOptions) { o.TxSize, o.TxBudget = 64, 64 }), ""},
		{with(func(o *SocketOptions) { o.TxSize = 2 }), ""},
		{with(func(o *SocketOptions) { o.IfIndex = 0 }), "interface index 0"},
		{with(func(o *SocketOptions) { o.Queue = -1 }), "queue -1"},
		{with(func(o *SocketOptions) { o.FillSize = 1000 }), "fill ring of 1000 entries"},
		{with(func(o *SocketOptions) { o.FillSize = NoRing }), "fill ring of -1 entries"},
		{with(func(o *SocketOptions) { o.RxSize = 3 }), "rx ring of 3 entries"},
		{with(func(o *SocketOptions) { o.TxSize = 1 << 31 }), "tx ring of 2147483648 entries"},
		{with(func(o *SocketOptions) { o.CompletionSize = 1 }), "completion ring of 1 entries"},
		{with(func(o *SocketOptions) { o.RxSize, o.TxSize = NoRing, NoRing }), "neither an rx nor a tx ring"},
		{with(func(o *SocketOptions) { o.ForceCopy, o.ForceZeroCopy = true, true }), "both forced"},
		{with(func(o *SocketOptions) { o.TxBudget = 31 }), "tx budget 31: legal are 32 to"},
		{with(func(o *SocketOptions) { o.TxSize, o.TxBudget = 64, 65 }), "tx budget 65: legal are 32 to the tx ring's 64"},
		{with(func(o *SocketOptions) { o.BusyPoll.Budget = 1 << 16 }), "busy poll"},
	} {
		o := c.o
		err := o.check(100)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		if c.want == "" {
			continue
		}
		// Open says it before any system call: without root the first one would say EPERM.
		if s, err := u.Open(c.o); s != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Open %+v: %v, want %q", c.o, err, c.want)
		}
	}
}

func TestFillRingDefaultsToTwiceTheChunks(t *testing.T) {
	for chunks, want := range map[int]int{1: 2, 2: 4, 3: 8, 1024: 2048, 1025: 4096, 32768: 65536, 1 << 24: 65536} {
		o := SocketOptions{IfIndex: 1}
		if err := o.check(chunks); err != nil || o.FillSize != want {
			t.Errorf("%d chunks: fill ring of %d (%v), want %d", chunks, o.FillSize, err, want)
		}
	}
}

func TestAdmission(t *testing.T) {
	const gib = 1 << 30
	have := func(l limits, err error) func(uint64) (limits, error) {
		return func(uint64) (limits, error) { return l, err }
	}
	for _, c := range []struct {
		size         uint64
		l            limits
		memory, lock string
	}{
		{gib, limits{available: 2 * gib, lockAny: true}, "", ""},
		{gib, limits{available: 2 * gib, memlock: gib}, "", ""},
		{gib, limits{available: 2 * gib, memlock: gib - 1}, "", "RLIMIT_MEMLOCK is 1073741823"},
		{5 * gib, limits{available: 4 * gib, lockAny: true}, "only 4294967296 bytes of memory are available", ""},
		{5 * gib, limits{available: 6 * gib, memlock: 1 << 23}, "", "grant CAP_IPC_LOCK"},
	} {
		for _, w := range []struct {
			what  string
			admit func(uint64, func(uint64) (limits, error)) error
			want  string
		}{{"memory", admitMemory, c.memory}, {"lock", admitLock, c.lock}} {
			err := w.admit(c.size, have(c.l, nil))
			if w.want == "" && err != nil || w.want != "" && (!errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), w.want)) {
				t.Errorf("%s: %d of %+v: %v, want %q", w.what, c.size, c.l, err, w.want)
			}
			if err := w.admit(1, have(limits{}, unix.EIO)); !errors.Is(err, unix.EIO) {
				t.Errorf("%s: unreadable limits: %v", w.what, err)
			}
		}
	}
	if _, err := memAvailable([]byte("MemTotal: 5 kB\n")); err == nil {
		t.Error("meminfo without MemAvailable was accepted")
	}
	if n, err := memAvailable([]byte("MemTotal:  9 kB\nMemAvailable:   24690000 kB\n")); err != nil || n != 24690000<<10 {
		t.Errorf("MemAvailable: %d, %v", n, err)
	}
	if l, err := systemLimits(1); err != nil || l.available == 0 {
		t.Errorf("this system's limits: %+v, %v", l, err)
	}
}

// A UMEM larger than 4 GiB: addresses, lengths and chunk starts are 64 bits wide. No
// socket is opened, so only the touched pages take memory.
func TestUMEMAboveFourGiB(t *testing.T) {
	const chunks = 1<<20 + 3 // of 4096: 4 GiB and 12 KiB
	l, err := systemLimits(chunks * 4096)
	if err != nil {
		t.Fatal(err)
	}
	u, err := NewUMEM(UMEMOptions{Chunks: chunks})
	if l.available < chunks*4096 {
		if !errors.Is(err, unix.ENOMEM) {
			t.Fatalf("more than the system has was admitted: %v", err)
		}
		t.Skipf("this machine cannot hold it: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := uint64(len(u.Bytes())); got != chunks*4096 {
		t.Errorf("%d bytes, want %d", got, uint64(chunks*4096))
	}
	d := Desc{Addr: (chunks-1)*4096 + uint64(u.Headroom()), Len: 60}
	f := u.Frame(d)
	f[0] = 0xa5
	if u.Bytes()[d.Addr] != 0xa5 || len(f) != 60 || cap(f) != u.MaxFrame() || u.ChunkStart(d.Addr) != (chunks-1)*4096 {
		t.Errorf("frame at %#x: len %d cap %d, chunk %#x", d.Addr, len(f), cap(f), u.ChunkStart(d.Addr))
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if err := u.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := u.Open(SocketOptions{IfIndex: 1}); err == nil {
		t.Error("a socket was opened on a closed umem")
	}
}

// Case: a kick that fails for good is a wrapped error; one that says "later" is none.
func TestKickErrors(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		fatal bool
	}{
		{0, false}, {unix.EAGAIN, false}, {unix.EBUSY, false}, {unix.ENOBUFS, false}, {unix.EINTR, false},
		{unix.ENXIO, true}, {unix.EINVAL, true}, {unix.ENETDOWN, true}, {unix.EBADF, true},
	} {
		calls := 0
		fake := func(int) unix.Errno { calls++; return c.errno }
		bad, k := plainSocket(8, 8, 8, 8, 2048, 0)
		bad.wakeTx, bad.wakeRx, bad.queue, bad.ifindex, bad.zeroCopy, bad.needWakeup = fake, fake, 3, 7, true, true
		good, _ := plainSocket(8, 8, 8, 8, 2048, 0)
		good.wakeTx = func(int) unix.Errno { return 0 }
		bad.Transmit([]Desc{{Len: 60}})
		good.Transmit([]Desc{{Len: 60}})
		k.tx.flags, k.fill.flags = ringNeedWakeup, ringNeedWakeup
		for what, err := range map[string]error{"transmit": bad.Kick(), "receive": bad.WakeReceive()} {
			if c.fatal && (!errors.Is(err, c.errno) || !strings.Contains(err.Error(), "wake "+what+" of queue 3 of interface 7")) {
				t.Errorf("%v: %s: %v", c.errno, what, err)
			}
			if !c.fatal && err != nil {
				t.Errorf("%v: %s: %v, want none", c.errno, what, err)
			}
		}
		if calls != 2 {
			t.Errorf("%v: %d calls, want one each way", c.errno, calls)
		}
		if err := good.Kick(); err != nil {
			t.Errorf("%v on another socket: %v", c.errno, err)
		}
	}
}

// A wake-up sends a bounded number of frames and says EAGAIN: Kick goes on as long as
// that makes progress, and stops when it does not.
func TestKickGoesOnWhileThereIsProgress(t *testing.T) {
	s, k := plainSocket(8, 8, 128, 8, 2048, 0)
	s.Transmit(make([]Desc, 100))
	calls := 0
	s.wakeTx = func(int) unix.Errno {
		calls++
		k.tx.cons += min(32, k.tx.prod-k.tx.cons)
		if k.tx.cons == k.tx.prod {
			return 0
		}
		return unix.EAGAIN
	}
	if err := s.Kick(); err != nil || s.TxPending() != 0 || calls != 4 {
		t.Errorf("%d pending after %d calls: %v", s.TxPending(), calls, err)
	}
	s.Transmit(make([]Desc, 100))
	calls = 0
	s.wakeTx = func(int) unix.Errno { calls++; return unix.EAGAIN }
	if err := s.Kick(); err != nil || s.TxPending() != 100 || calls != 1 {
		t.Errorf("stuck: %d pending after %d calls: %v", s.TxPending(), calls, err)
	}
}

// Before Linux 6.17 the consumer index moves only with the call that finds nothing more: Kick makes the calls that sending
// everything takes, and no more when nothing moves.
func TestKickWhereTheConsumerIndexIsLate(t *testing.T) {
	s, k := plainSocket(8, 8, 128, 8, 2048, 0)
	s.lateConsumer = true
	for _, n := range []uint32{1, 32, 64, 100} {
		s.Transmit(make([]Desc, n))
		calls, sent := 0, uint32(0)
		s.wakeTx = func(int) unix.Errno {
			calls++
			if sent += 32; sent < n {
				return unix.EAGAIN
			}
			k.tx.cons = k.tx.prod
			return 0
		}
		if err := s.Kick(); err != nil || s.TxPending() != 0 || calls != int(n+31)/32 {
			t.Errorf("%d: %d pending after %d calls: %v", n, s.TxPending(), calls, err)
		}
	}
	s.Transmit(make([]Desc, 100))
	calls := 0
	s.wakeTx = func(int) unix.Errno { calls++; return unix.EAGAIN }
	if err := s.Kick(); err != nil || s.TxPending() != 100 || calls != 4 {
		t.Errorf("stuck: %d pending after %d calls: %v", s.TxPending(), calls, err)
	}
}

// The need-wakeup rules, each combination.
func TestNeedWakeupRules(t *testing.T) {
	for _, zeroCopy := range []bool{false, true} {
		for _, needWakeup := range []bool{false, true} {
			for _, flag := range []uint32{0, ringNeedWakeup} {
				for _, busyPoll := range []bool{false, true} {
					for _, posted := range []bool{false, true} {
						s, k := plainSocket(8, 8, 8, 8, 2048, 0)
						s.zeroCopy, s.needWakeup, s.busyPoll = zeroCopy, needWakeup, busyPoll
						k.tx.flags, k.fill.flags = flag, flag
						tx, rx := 0, 0
						s.wakeTx = func(int) unix.Errno { tx++; return 0 }
						s.wakeRx = func(int) unix.Errno { rx++; return 0 }
						if posted {
							s.Transmit([]Desc{{Len: 60}})
						}
						if err := errors.Join(s.Kick(), s.WakeReceive()); err != nil {
							t.Fatal(err)
						}
						wantTx, wantRx := 0, 0
						if posted && (!needWakeup || flag != 0 || busyPoll) {
							wantTx = 1
						}
						if busyPoll || zeroCopy && needWakeup && flag != 0 {
							wantRx = 1
						}
						if tx != wantTx || rx != wantRx {
							t.Errorf("zero-copy %t, need-wakeup %t, flag %d, busy poll %t, posted %t: %d transmit and %d receive wake-ups, want %d and %d",
								zeroCopy, needWakeup, flag, busyPoll, posted, tx, rx, wantTx, wantRx)
						}
					}
				}
			}
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for v := Verdict(0); v < NumVerdicts; v++ {
		if n := v.String(); n == "" || seen[n] {
			t.Errorf("verdict %d has the name %q", v, n)
		} else {
			seen[n] = true
		}
	}
	m := BoundMode{NeedWakeup: true, TxBudget: 256, Anchored: true}
	if got := m.String(); got != "copy need-wakeup tx-budget=256 anchored" {
		t.Errorf("mode %q", got)
	}
	if got := (BoundMode{ZeroCopy: true}).String(); got != "zero-copy" {
		t.Errorf("mode %q", got)
	}
}
