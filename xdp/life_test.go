package xdp

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Four queues of two netdevs in two namespaces, one UMEM: what is sent on a queue is
// received by the socket of that queue; a queue without a socket is the kernel's.
func TestQueuesShareOneUMEM(t *testing.T) {
	const queues = 4
	r := newRig(t, queues, 0)
	u := r.umem(UMEMOptions{Chunks: 1024, ChunkSize: 2048})
	st := r.attach(r.nic, AttachOptions{IfIndex: r.nicIf})
	if err := errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts([]uint16{0xbee0})); err != nil {
		t.Fatal(err)
	}
	var rx, tx [queues]*Socket
	for q := range queues {
		tx[q] = r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf, Queue: q})
		if q == queues-1 {
			continue // nobody receives on the last
		}
		rx[q] = r.open(r.nic, u, SocketOptions{IfIndex: r.nicIf, Queue: q})
		if err := st.Bind(q, rx[q]); err != nil {
			t.Fatal(err)
		}
		rx[q].Fill(chunkRange(u, 128*q, 128))
	}
	const frames = 50
	for q := range queues {
		for i := range uint32(frames) {
			tx[q].Transmit([]Desc{numbered(u, uint64(512+64*q+int(i))*2048, i|uint32(q)<<16, 60)})
		}
		if err := tx[q].Kick(); err != nil {
			t.Fatal(err)
		}
		reap(t, tx[q], time.Second, func(uint64) {})
	}
	for q := range queues - 1 {
		next := uint32(q) << 16
		if !drain(t, rx[q], time.Second, func(d Desc) {
			if got := number(u.Frame(d)); got != next {
				t.Fatalf("queue %d: frame %#x, want %#x", q, got, next)
			}
			next++
		}, func() bool { return next&0xffff == frames }) {
			t.Errorf("queue %d: %d of %d frames", q, next&0xffff, frames)
		}
	}
	until := time.Now().Add(10 * time.Second)
	for {
		c, err := st.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if c[TakenUDP] == 3*frames && c[Unbound] == frames && c.Taken()+c.Passed() == queues*frames {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("verdicts %v", c)
		}
	}
	// A queue is bound once.
	if _, err := openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf, Queue: 1, BindTimeout: -1}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("second socket on queue 1: %v", err)
	}
}

// Without an anchor any bound socket serves as the first one, and the last one takes the
// registration with it.
func TestUMEMWithoutAnchor(t *testing.T) {
	r := newRig(t, 3, 0)
	u := r.umem(UMEMOptions{Chunks: 64, ChunkSize: 2048, NoAnchor: true})
	open := func(queue int, multi bool) *Socket {
		t.Helper()
		s, err := openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf, Queue: queue, MultiBuffer: multi})
		if err != nil {
			t.Fatal(err)
		}
		if ok, why := u.Anchored(); ok || why != nil {
			t.Fatalf("anchored %t, %v", ok, why)
		}
		return s
	}
	first, second := open(0, false), open(1, false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third, again := open(2, false), open(0, false)
	if err := errors.Join(second.Close(), third.Close(), again.Close()); err != nil {
		t.Fatal(err)
	}
	other := open(1, hasMultiBuffer(t)) // another mode is possible once all are closed
	if other.Mode().MultiBuffer != hasMultiBuffer(t) {
		t.Errorf("mode %v", other.Mode())
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// A netdev that goes down and comes up again: the kick says so, and the same sockets
// go on.
func TestInterfaceDownAndUp(t *testing.T) {
	r := newRig(t, 1, 0)
	u := r.umem(UMEMOptions{Chunks: 128, ChunkSize: 2048})
	rx, _ := r.receiver(u, SocketOptions{}, 0, 64)
	tx := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
	wire, err := r.peer.Netlink().LinkByName("wire")
	if err != nil {
		t.Fatal(err)
	}
	for round := range uint32(3) {
		if err := r.peer.Netlink().LinkSetDown(wire); err != nil {
			t.Fatal(err)
		}
		tx.Transmit([]Desc{numbered(u, 100*2048, round, 60)})
		if err := tx.Kick(); !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("round %d: kick while down: %v", round, err)
		}
		if err := r.peer.Netlink().LinkSetUp(wire); err != nil {
			t.Fatal(err)
		}
		got, until := 0, time.Now().Add(10*time.Second)
		for got == 0 && time.Now().Before(until) {
			if err := tx.Kick(); err != nil {
				t.Fatalf("round %d: kick after up: %v", round, err)
			}
			drain(t, rx, 10*time.Millisecond, func(d Desc) {
				if number(u.Frame(d)) != round {
					t.Errorf("round %d: frame %d", round, number(u.Frame(d)))
				}
				got++
			}, func() bool { return got > 0 })
			// A frame that left before the other end had its carrier is lost:
			// it was completed, and is sent again.
			var done [1]uint64
			if got == 0 && tx.Complete(done[:]) == 1 {
				tx.Transmit([]Desc{numbered(u, 100*2048, round, 60)})
			}
		}
		if got != 1 {
			t.Fatalf("round %d: %d frames within 10 s of the interface's return", round, got)
		}
		reap(t, tx, time.Second, func(uint64) {})
	}
}

// runChild runs this binary as child does, by a command in front, and returns its
// first line. The child is killed.
func (r *rig) runChild(prefix ...string) string {
	r.t.Helper()
	args := append(prefix, os.Args[0])
	cmd := r.nic.Command(r.t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"=port")
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.t.Errorf("child of %v says %q: %v", prefix, line, err)
	}
	if err := cmd.Process.Signal(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		r.t.Error("the child ended well")
	}
	return strings.TrimSpace(line)
}

// Without CAP_SYS_ADMIN there is no anchor, and all else works; without CAP_IPC_LOCK
// a UMEM above RLIMIT_MEMLOCK is refused by name before the kernel is asked.
func TestFewerCapabilities(t *testing.T) {
	r := newRig(t, 1, 0)
	if got := r.runChild("setpriv", "--bounding-set", "-sys_admin"); !strings.HasPrefix(got, "ready 64 copy need-wakeup") || strings.Contains(got, "anchored") {
		t.Errorf("without CAP_SYS_ADMIN: %s", got)
	}
	if got := r.runChild("prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set", "-ipc_lock"); !strings.Contains(got, "umem: 262144 bytes: RLIMIT_MEMLOCK is 65536: raise it") {
		t.Errorf("without CAP_IPC_LOCK: %s", got)
	}
	if got := r.runChild("prlimit", "--memlock=65536:8388608", "setpriv", "--bounding-set", "-ipc_lock"); !strings.HasPrefix(got, "ready 64 ") {
		t.Errorf("without CAP_IPC_LOCK, with room below the hard limit: %s", got)
	}
	if got := r.runChild("setpriv", "--bounding-set", "-net_raw"); !strings.Contains(got, "AF_XDP socket: operation not permitted") {
		t.Errorf("without CAP_NET_RAW: %s", got)
	}
}

// Huge pages: with none to be had, ordinary ones and the reason, or an error.
func TestHugePages(t *testing.T) {
	u, err := NewUMEM(UMEMOptions{Chunks: 1024, ChunkSize: 2048, HugePages: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Bytes()) != 2<<20 {
		t.Errorf("%d bytes", len(u.Bytes()))
	}
	got, why := u.HugePages()
	if got == (why != nil) || why != nil && (!errors.Is(why, unix.ENOMEM) || !strings.Contains(why.Error(), "vm.nr_hugepages needs 1 free")) {
		t.Errorf("huge pages %t, %v", got, why)
	}
	v, err := NewUMEM(UMEMOptions{Chunks: 1 << 19, ChunkSize: 2048, RequireHugePages: true})
	switch {
	case err == nil:
		if got, why := v.HugePages(); !got || why != nil {
			t.Errorf("required huge pages: %t, %v", got, why)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	case !errors.Is(err, unix.ENOMEM):
		t.Errorf("required huge pages: %v", err)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
}
