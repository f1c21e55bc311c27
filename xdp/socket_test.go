package xdp

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
)

// Case: 64 frames queued, one kick: all arrive within a second, a thousand times. The
// kernel's own budget of 32 makes each kick more than one system call.
func TestOneKickSendsAll(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 512, ChunkSize: 2048})
	rx, _ := r.receiver(u, SocketOptions{ForceCopy: true}, 0, 256)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf, ForceCopy: true, TxBudget: -1})
	chunks := chunkRange(u, 256, 64)
	next, want := uint32(0), uint32(0)
	for round := range 1000 {
		batch := make([]Desc, 64)
		for i := range batch {
			batch[i] = numbered(u, chunks[i], next, 60)
			next++
		}
		if n := tx.Transmit(batch); n != 64 {
			t.Fatalf("round %d: posted %d", round, n)
		}
		if err := tx.Kick(); err != nil {
			t.Fatal(err)
		}
		if !drain(t, rx, time.Second, func(d Desc) {
			if got := number(u.Frame(d)); got != want {
				t.Fatalf("round %d: frame %d arrived, want %d", round, got, want)
			}
			want++
		}, func() bool { return want == next }) {
			t.Fatalf("round %d: %d of %d frames within a second; %d not taken", round, want, next, tx.TxPending())
		}
		reap(t, tx, time.Second, func(uint64) {})
	}
	if want != 64_000 {
		t.Errorf("%d frames", want)
	}
}

// Case: received addresses come back as chunk start plus headroom; after 10^5 recycles
// through both directions the pool holds chunk starts only, each once.
func TestRecycledAddressesAreChunkStarts(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 256, ChunkSize: 2048, Headroom: 64})
	rx, _ := r.receiver(u, SocketOptions{}, 0, 128)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
	free := chunkRange(u, 128, 128)
	var batch [64]Desc
	for recycled := 0; recycled < 100_000; {
		n := min(64, len(free))
		for i, a := range free[len(free)-n:] {
			batch[i] = numbered(u, a+uint64(i), uint32(i), 60) // anywhere in the chunk
		}
		free = free[:len(free)-n]
		if got := tx.Transmit(batch[:n]); got != n {
			t.Fatalf("posted %d of %d", got, n)
		}
		if err := tx.Kick(); err != nil {
			t.Fatal(err)
		}
		seen := 0
		if !drain(t, rx, time.Second, func(d Desc) {
			if d.Addr%2048 != uint64(u.Headroom()) || u.Headroom() != 256+64 {
				t.Fatalf("received at %#x, %d in its chunk; headroom is %d", d.Addr, d.Addr%2048, u.Headroom())
			}
			seen++
		}, func() bool { return seen == n }) {
			t.Fatalf("%d of %d arrived", seen, n)
		}
		reap(t, tx, time.Second, func(a uint64) { free = append(free, a) })
		recycled += 2 * n
	}
	if st, err := rx.Statistics(); err != nil || st.RxInvalidDescs != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	pool := map[uint64]bool{}
	for _, a := range free {
		if a%2048 != 0 || a < 128*2048 || pool[a] {
			t.Fatalf("the pool holds %#x", a)
		}
		pool[a] = true
	}
	if len(pool) != 128 {
		t.Errorf("the pool holds %d chunks of 128", len(pool))
	}
}

// Case: the same queue opened and closed 50 times.
func TestOpenAndCloseTheSameQueue(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 64, ChunkSize: 2048})
	own := r.umem(UMEMOptions{Chunks: 64, ChunkSize: 2048, NoAnchor: true})
	late := 0
	for i := range 50 {
		// Alternately on the anchor's registration and on one that goes with the socket.
		from := []*UMEM{u, own}[i%2]
		start := time.Now()
		s, err := openIn(r.nic, from, SocketOptions{IfIndex: r.nicIf})
		if err != nil {
			t.Fatalf("open %d: %v", i, err)
		}
		if time.Since(start) > defaultBind {
			late++
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Fatalf("close %d: %v", i, err)
		}
	}
	// On a busy machine the kernel may let go of one so late, not of many.
	if late > 5 {
		t.Errorf("%d of 50 took more than %v", late, defaultBind)
	}
}

// Case: a queue that somebody else really holds fails by name after the bound.
func TestHeldQueueFailsByName(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 64})
	r.open(r.nic, u, SocketOptions{IfIndex: r.nicIf})
	other := r.umem(UMEMOptions{Chunks: 64})
	start := time.Now()
	_, err := openIn(r.nic, other, SocketOptions{IfIndex: r.nicIf, BindTimeout: 200 * time.Millisecond})
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "open queue 0 of port") || !strings.Contains(err.Error(), "another AF_XDP socket holds the queue") {
		t.Errorf("error: %v", err)
	}
	if d := time.Since(start); d > letGoBind/2 {
		t.Errorf("took %v", d)
	}
	if _, err := openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf, Queue: 7, ForceCopy: true}); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "no such queue") {
		t.Errorf("queue that is not there: %v", err)
	}
	if err := u.Close(); err == nil || !strings.Contains(err.Error(), "1 sockets are open") {
		t.Errorf("close of a umem in use: %v", err)
	}
}

// Case: keep only the sockets, run the collector three times: traffic goes on.
func TestSocketsKeepAllAlive(t *testing.T) {
	r := newRig(t, 1, 0)
	open := func() (rx, tx *Socket) {
		u, err := NewUMEM(UMEMOptions{Chunks: 128, ChunkSize: 2048})
		if err != nil {
			t.Fatal(err)
		}
		if rx, err = openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf}); err != nil {
			t.Fatal(err)
		}
		if tx, err = openIn(r.peer, u, SocketOptions{IfIndex: r.peerIf}); err != nil {
			t.Fatal(err)
		}
		st, err := attachIn(r.nic, AttachOptions{IfIndex: r.nicIf})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.Bind(0, rx)); err != nil {
			t.Fatal(err)
		}
		rx.Fill(chunkRange(u, 0, 64))
		return rx, tx
	}
	rx, tx := open()
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // finalizers and cleanups run beside
	}
	u := rx.UMEM()
	got := 0
	tx.Transmit([]Desc{numbered(u, 100*2048, 1, 60), numbered(u, 101*2048, 2, 60)})
	if err := tx.Kick(); err != nil {
		t.Fatal(err)
	}
	if !drain(t, rx, time.Second, func(Desc) { got++ }, func() bool { return got == 2 }) {
		t.Errorf("%d of 2 frames after the collector ran", got)
	}
	if err := errors.Join(rx.steering.Close(), rx.Close(), tx.Close(), u.Close()); err != nil {
		t.Error(err)
	}
}

// Case: rings of different sizes: 10^5 numbered frames arrive once each, in order.
func TestRingsOfDifferentSizes(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 4096, ChunkSize: 2048})
	o := SocketOptions{FillSize: 4096, RxSize: 512, TxSize: 256, CompletionSize: 1024}
	rx, st := r.receiver(u, o, 0, 2048)
	o.IfIndex = r.peerIf
	tx := r.open(r.peer, u, o)
	free := chunkRange(u, 2048, 2048)
	var done [64]uint64
	const total = 100_000
	next, want := uint32(0), uint32(0)
	until := time.Now().Add(30 * time.Second)
	for want < total {
		var batch [64]Desc
		n := 0
		// Never more in flight than the RX ring holds, nor than the 256 of a veth's own ring (which drops what is
		// beyond without a word to the sender, where the softirq is late), so that none can be lost.
		for n < 64 && len(free) > 0 && next < total && next-want < 192 {
			batch[n] = numbered(u, free[len(free)-1], next, 60)
			free = free[:len(free)-1]
			n, next = n+1, next+1
		}
		took := tx.Transmit(batch[:n])
		for _, d := range batch[took:n] {
			free = append(free, d.Addr)
		}
		next -= uint32(n - took)
		if err := tx.Kick(); err != nil {
			t.Fatal(err)
		}
		free = append(free, done[:tx.Complete(done[:])]...)
		drain(t, rx, 0, func(d Desc) {
			if got := number(u.Frame(d)); got != want {
				t.Fatalf("frame %d arrived, want %d", got, want)
			}
			want++
		}, func() bool { return want == next })
		if time.Now().After(until) {
			t.Fatalf("%d of %d frames arrived", want, total)
		}
	}
	if c, err := st.Counters(); err != nil || c[TakenAll] != total || c.Passed() != 0 {
		t.Errorf("verdicts %v, %v", c, err)
	}
	if s, err := rx.Statistics(); err != nil || s.RxDropped+s.RxRingFull+s.RxFillRingEmpty+s.RxInvalidDescs != 0 {
		t.Errorf("loss in the kernel: %+v, %v", s, err)
	}
}

// Stop reading under load: the loss is in the counters, exactly; then it goes on.
func TestLossIsCounted(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 1024, ChunkSize: 2048})
	rx, st := r.receiver(u, SocketOptions{RxSize: 128}, 0, 512)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
	sent, got := uint64(0), uint64(0)
	send := func(batches int) {
		for range batches {
			var batch [64]Desc
			for i := range batch {
				batch[i] = numbered(u, uint64(512+i)*2048, 0, 60)
			}
			sent += uint64(tx.Transmit(batch[:]))
			if err := tx.Kick(); err != nil {
				t.Fatal(err)
			}
			reap(t, tx, time.Second, func(uint64) {})
		}
	}
	send(100) // nobody reads
	until := time.Now().Add(5 * time.Second)
	var s Statistics
	for {
		drain(t, rx, 0, func(Desc) { got++ }, func() bool { return false })
		var err error
		if s, err = rx.Statistics(); err != nil {
			t.Fatal(err)
		}
		c, err := st.Counters()
		if err != nil {
			t.Fatal(err)
		}
		lost := s.RxDropped + s.RxRingFull + s.RxFillRingEmpty
		if c.Taken() == sent && sent == got+lost {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("sent %d, taken %d, received %d, lost %d: %+v", sent, c.Taken(), got, lost, s)
		}
	}
	if got < 128 || got == sent {
		t.Errorf("received %d of %d: the test lost nothing", got, sent)
	}
	before := got
	send(1)
	if !drain(t, rx, time.Second, func(Desc) { got++ }, func() bool { return got == before+64 }) {
		t.Errorf("after the loss %d of 64 arrived", got-before)
	}
}

// What is lost for want of chunks is counted once, as that: in copy mode the kernel's own count of drops has it too.
func TestLossWithoutChunksIsCountedOnce(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 1024, ChunkSize: 2048})
	rx, _ := r.receiver(u, SocketOptions{RxSize: 1024}, 0, 128)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
	for range 4 {
		var batch [64]Desc
		for i := range batch {
			batch[i] = numbered(u, uint64(512+i)*2048, 0, 60)
		}
		if n := tx.Transmit(batch[:]); n != len(batch) {
			t.Fatalf("posted %d of %d", n, len(batch))
		}
		if err := tx.Kick(); err != nil {
			t.Fatal(err)
		}
		reap(t, tx, time.Second, func(uint64) {})
	}
	var s Statistics
	for until := time.Now().Add(5 * time.Second); ; {
		var err error
		if s, err = rx.Statistics(); err != nil {
			t.Fatal(err)
		}
		if s.RxFillRingEmpty == 128 || time.Now().After(until) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if s.RxFillRingEmpty != 128 || s.RxDropped != 0 || s.RxRingFull != 0 {
		t.Errorf("256 frames for 128 chunks: %+v", s)
	}
}

// A veth has no zero-copy: forcing it is a clear error, not asking falls back, and
// sockets that disagree with the first are refused.
func TestModesOfOneUMEM(t *testing.T) {
	r := newRig(t, 2, 0)
	u := r.umem(UMEMOptions{Chunks: 64})
	_, err := openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf, ForceZeroCopy: true})
	if !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "the driver has no zero-copy") {
		t.Errorf("forced zero-copy: %v", err)
	}
	s := r.open(r.nic, u, SocketOptions{IfIndex: r.nicIf})
	m := s.Mode()
	if m.ZeroCopy || !m.NeedWakeup || !m.Anchored || m.MultiBuffer {
		t.Errorf("mode %v", m)
	}
	if m.TxBudget != 256 && m.TxBudget != 32 {
		t.Errorf("tx budget %d", m.TxBudget)
	}
	for what, o := range map[string]SocketOptions{
		"copy mode, which all its sockets share":                                       {ForceZeroCopy: true},
		"need-wakeup false: the umem's first socket has true, which all sockets share": {NoNeedWakeup: true},
		"multi-buffer true: the umem's first socket has false":                         {MultiBuffer: true},
	} {
		o.IfIndex, o.Queue = r.nicIf, 1
		what = strings.Replace(what, "which all sockets", "which all its sockets", 1)
		if _, err := openIn(r.nic, u, o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: %v, want %q", o, err, what)
		}
	}
	for _, o := range []SocketOptions{{NoNeedWakeup: true}, {MultiBuffer: true}, {BusyPoll: BusyPoll{Microseconds: 20}}, {RxSize: NoRing}, {TxSize: NoRing}} {
		o.IfIndex, o.Queue = r.nicIf, 1
		v := r.umem(UMEMOptions{Chunks: 64, NoAnchor: o.MultiBuffer})
		s, err := openIn(r.nic, v, o)
		if o.MultiBuffer && !hasMultiBuffer(t) {
			wantNoMultiBuffer(t, err)
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		m := s.Mode()
		if m.NeedWakeup == o.NoNeedWakeup || m.MultiBuffer != o.MultiBuffer || m.BusyPoll != (o.BusyPoll.Microseconds > 0) || m.Anchored == o.MultiBuffer {
			t.Errorf("%+v: mode %v", o, m)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The registration outlives any port: the first socket's netdev is deleted, and
// later sockets, also in other namespaces, share the memory all the same.
func TestAnchorOutlivesPorts(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 256, ChunkSize: 2048})
	first, err := openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf})
	if err != nil {
		t.Fatal(err)
	}
	if ok, why := u.Anchored(); !ok {
		t.Fatalf("no anchor: %v", why)
	}
	link, err := r.nic.Netlink().LinkByName("port")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.nic.Netlink().LinkDel(link); err != nil {
		t.Fatal(err)
	}
	first.Transmit([]Desc{numbered(u, 0, 0, 60)})
	if err := first.Kick(); !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("kick of a socket whose netdev is gone: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	netlabtest.Veth(t, r.lab, netlab.End{NS: r.nic, Name: "port"}, netlab.End{NS: r.peer, Name: "wire"})
	if r.nicIf, _, err = r.nic.Interface("port"); err != nil {
		t.Fatal(err)
	}
	if r.peerIf, _, err = r.peer.Interface("wire"); err != nil {
		t.Fatal(err)
	}
	rx, _ := r.receiver(u, SocketOptions{}, 0, 64)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
	got := 0
	tx.Transmit([]Desc{numbered(u, 100*2048, 1, 60)})
	if err := tx.Kick(); err != nil {
		t.Fatal(err)
	}
	if !drain(t, rx, time.Second, func(Desc) { got++ }, func() bool { return got == 1 }) {
		t.Error("no frame over the second netdev")
	}
}

// The anchor's namespace is nobody else's and has gone from this thread.
func TestAnchorLeavesTheThread(t *testing.T) {
	netlabtest.NeedRoot(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &before); err != nil {
		t.Fatal(err)
	}
	u, err := NewUMEM(UMEMOptions{Chunks: 16})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := u.openAnchor(true, false)
	if err != nil {
		t.Fatal(err)
	}
	u.anchor = fd
	for range 100 { // other threads are asked too
		done := make(chan error, 1)
		go func() { done <- unix.Stat("/proc/thread-self/ns/net", &after) }()
		if err := <-done; err != nil || after.Ino != before.Ino {
			t.Fatalf("a thread is in namespace %d, not %d (%v)", after.Ino, before.Ino, err)
		}
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
}

// The live hot path allocates nothing.
func TestLiveSocketsDoNotAllocate(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 256, ChunkSize: 2048})
	rx, _ := r.receiver(u, SocketOptions{}, 0, 64)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
	var batch, got [64]Desc
	var done [64]uint64
	for i := range batch {
		batch[i] = numbered(u, uint64(128+i)*2048, uint32(i), 60)
	}
	frames := 0
	var failed error
	n := testing.AllocsPerRun(200, func() {
		tx.Transmit(batch[:])
		for i, received, completed := 0, 0, 0; (received < 64 || completed < 64) && i < 100_000; i++ {
			if err := tx.Kick(); err != nil {
				failed = err
			}
			k := rx.Receive(got[:])
			if err := rx.WakeReceive(); err != nil {
				failed = err
			}
			received += k
			frames += k
			rx.FillDescs(got[:k])
			completed += tx.Complete(done[:])
		}
	})
	if n != 0 || failed != nil {
		t.Errorf("%v allocations a batch, %v", n, failed)
	}
	if frames < 64*200 {
		t.Errorf("%d frames", frames)
	}
}
