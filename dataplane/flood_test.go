package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gradnic/internal/netlab"
	"gradnic/xdp"
)

// blaster sends through AF_XDP sockets on a worker's end, one a queue: the fastest sender that there is without a NIC.
type blaster struct {
	t       testing.TB
	umem    *xdp.UMEM
	sockets []*xdp.Socket
	free    [][]uint64 // by queue: chunks, each with its frame
	lens    uint32
}

// newBlaster fills frames chunks for each queue with what make writes.
func newBlaster(t testing.TB, ns *netlab.NS, iface string, queues, frames, length int, write func(number int, frame []byte)) *blaster {
	t.Helper()
	index, _, err := ns.Interface(iface)
	if err != nil {
		t.Fatal(err)
	}
	b := &blaster{t: t, free: make([][]uint64, queues), lens: uint32(length)}
	if b.umem, err = xdp.NewUMEM(xdp.UMEMOptions{Chunks: queues * frames, ChunkSize: 2048}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range b.sockets {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := b.umem.Close(); err != nil {
			t.Error(err)
		}
	})
	for q := range queues {
		for i := range frames {
			number := i*queues + q
			addr := uint64(q*frames+i) * 2048
			write(number, b.umem.Bytes()[addr:addr+uint64(length)])
			b.free[q] = append(b.free[q], addr)
		}
		if err := ns.Do(func() error {
			s, err := b.umem.Open(xdp.SocketOptions{IfIndex: index, Queue: q, FillSize: 2, RxSize: xdp.NoRing})
			if err == nil {
				b.sockets = append(b.sockets, s)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// round sends up to a batch on a queue, and takes back what was sent.
func (b *blaster) round(q int) error {
	s := b.sockets[q]
	var d [64]Desc
	n := min(len(d), len(b.free[q]))
	for i, a := range b.free[q][:n] {
		d[i] = Desc{Addr: a, Len: b.lens}
	}
	n = s.Transmit(d[:n])
	b.free[q] = b.free[q][n:]
	if err := s.Kick(); err != nil {
		return err
	}
	b.reap(q)
	return nil
}

func (b *blaster) reap(q int) {
	var done [64]uint64
	for {
		n := b.sockets[q].Complete(done[:])
		if n == 0 {
			return
		}
		b.free[q] = append(b.free[q], done[:n]...)
	}
}

// settle waits until all that was posted is sent, and returns how many that is.
func (b *blaster) settle() (sent uint64) {
	b.t.Helper()
	until := time.Now().Add(5 * time.Second)
	for q, s := range b.sockets {
		for s.Completed() != s.TxPosted() {
			if err := s.Kick(); err != nil {
				b.t.Fatal(err)
			}
			b.reap(q)
			if time.Now().After(until) {
				b.t.Fatalf("%d of %d sent", s.Completed(), s.TxPosted())
			}
		}
		sent += s.Completed()
	}
	return sent
}

// flood sends on all queues in turn until it is stopped. count is what has been sent so far, roughly.
func (b *blaster) flood() (count *atomic.Uint64, stop func() (sent uint64)) {
	count = new(atomic.Uint64)
	quit, done := make(chan struct{}), make(chan error, 1)
	end := sync.OnceValue(func() error { close(quit); return <-done })
	// A test that fails before it stops the flood must not leave it to the tests after it.
	b.t.Cleanup(func() { _ = end() })
	go func() {
		for {
			select {
			case <-quit:
				done <- nil
				return
			default:
			}
			for q := range b.sockets {
				if err := b.round(q); err != nil && !errors.Is(err, unix.ENETDOWN) {
					done <- err
					return
				}
			}
			count.Store(b.sockets[0].Completed())
		}
	}()
	return count, func() uint64 {
		b.t.Helper()
		if err := end(); err != nil {
			b.t.Fatal(err)
		}
		return b.settle()
	}
}

func TestComplaintsThatAreOlder(t *testing.T) {
	k := &kernelLog{opened: time.Now().Add(-time.Minute)}
	const pool = "4,24110,9407461184,-;page_pool_release_retry() stalled pool shutdown: id 1047, 1 inflight %s sec"
	for message, want := range map[string]bool{
		fmt.Sprintf(pool, "7137"):                        true,
		fmt.Sprintf(pool, "59"):                          false, // began after the log was opened
		fmt.Sprintf(pool, "x"):                           false,
		"4,1,2,-;BUG: scheduling while atomic, 7137 sec": false,
	} {
		if got := k.earlier(message); got != want {
			t.Errorf("%q: earlier %v, want %v", message, got, want)
		}
	}
}

// writeRequest makes each frame a request of rank 0 to another slot.
func writeRequest(slots int) func(int, []byte) {
	return func(n int, f []byte) { copy(f, request(0, 64, n%slots, 0, uint32(n), 1)) }
}

// kernelLog reads the kernel's messages from now on.
type kernelLog struct {
	fd     int
	opened time.Time
}

func openKernelLog(t testing.TB) *kernelLog {
	t.Helper()
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("the kernel's log: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		t.Fatal(err)
	}
	return &kernelLog{fd, time.Now()}
}

// stalledPool is how the kernel says, once a minute and for as long as it lasts, that a page pool of a netdev that is gone
// still waits for pages: with the seconds since it was shut down.
var stalledPool = regexp.MustCompile(`page_pool_release_retry\(\) stalled pool shutdown: id \d+, \d+ inflight (\d+) sec`)

// earlier tells whether a message is about something that began before the log was opened, by whoever used the machine.
func (k *kernelLog) earlier(message string) bool {
	m := stalledPool.FindStringSubmatch(message)
	if m == nil {
		return false
	}
	seconds, err := strconv.Atoi(m[1])
	return err == nil && time.Duration(seconds)*time.Second > time.Since(k.opened)+time.Second
}

// complaints are the messages of level warning and worse about what has happened since the log was opened.
func (k *kernelLog) complaints(t testing.TB) (lines []string) {
	t.Helper()
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(k.fd, buf)
		if errors.Is(err, unix.EPIPE) { // messages were overwritten before they were read
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		var level int
		if _, err := fmt.Sscanf(string(buf[:n]), "%d,", &level); err != nil {
			t.Fatalf("%q: %v", buf[:n], err)
		}
		if line := strings.TrimSpace(string(buf[:n])); level&7 <= 4 && !k.earlier(line) {
			lines = append(lines, line)
		}
	}
}

// TestStopUnderXDPFlood starts and stops a NIC 30 times while an AF_XDP sender floods it: no hang, no leak, no complaint of
// the kernel, and the promises hold each time.
func TestStopUnderXDPFlood(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	b := newBlaster(t, l.workers[0], "w", 1, 1024, 298, writeRequest(64))
	leaks := goleak.IgnoreCurrent()
	log := openKernelLog(t)
	_, stop := b.flood()
	var received, longest = uint64(0), time.Duration(0)
	for i := range 30 {
		cfg := testConfig()
		cfg.Wait, cfg.Drain = Wait(i%3), 20*time.Millisecond
		n, err := New(cfg, l.ports()...)
		if err != nil {
			t.Fatal(err)
		}
		install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
		if err := n.Start(context.Background()); err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received > 0 })
		begin := time.Now()
		if err := n.Stop(context.Background()); err != nil {
			t.Fatalf("stop %d: %v", i, err)
		}
		longest = max(longest, time.Since(begin))
		s := n.Snapshot()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		received += s.Total.Received
		if linkProgram(t, l.nic, "p0") != 0 {
			t.Fatalf("round %d: a program is left", i)
		}
	}
	sent := stop()
	t.Logf("%d frames sent, %d received, longest stop %v", sent, received, longest)
	if newDeadline(t, 2*time.Second).exceeded(longest) {
		t.Errorf("a stop took %v", longest)
	}
	if c := log.complaints(t); len(c) != 0 {
		t.Errorf("the kernel's log:\n%s", strings.Join(c, "\n"))
	}
	goleak.VerifyNone(t, leaks)
}

// linkStats reads an interface's counters.
func linkStats(t testing.TB, ns *netlab.NS, iface string) (tx, txDropped, rx, rxDropped uint64) {
	t.Helper()
	link, err := ns.Netlink().LinkByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	s := link.Attrs().Statistics
	return s.TxPackets, s.TxDropped, s.RxPackets, s.RxDropped
}

// TestReaderStops: a lane that stops reading for 2 s under load loses frames, all of which are in counters; the rate is
// back within 100 ms.
func TestReaderStops(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	if err := n.SetFunction("p0", Function{Kind: Sink}); err != nil {
		t.Fatal(err)
	}
	b := newBlaster(t, l.workers[0], "w", 1, 256, 298, writeRequest(64))
	_, txDroppedBefore, _, _ := linkStats(t, l.workers[0], "w")
	_, _, _, rxDroppedBefore := linkStats(t, l.nic, "p0")

	rate := func(d time.Duration) uint64 {
		before := n.Snapshot().Total.Received
		time.Sleep(d)
		return n.Snapshot().Total.Received - before
	}
	_, stop := b.flood()
	// Others use this machine too: a pause after which they took the time is made again.
	var usual, again uint64
	for range 4 {
		time.Sleep(100 * time.Millisecond)
		usual = rate(500*time.Millisecond) / 5 // in 100 ms
		if usual == 0 {
			t.Fatal("nothing comes")
		}
		n.mu.Lock()
		n.parkLanes(func() { time.Sleep(2 * time.Second) })
		n.mu.Unlock()
		time.Sleep(100 * time.Millisecond) // to recover
		again = 2 * max(rate(250*time.Millisecond), rate(250*time.Millisecond)) / 5
		if again >= usual/2 {
			break
		}
	}
	sent := stop()

	// What is under way ends.
	var s Snapshot
	for {
		before := n.Snapshot().Total.Received
		time.Sleep(20 * time.Millisecond)
		if s = n.Snapshot(); s.Total.Received == before {
			break
		}
	}
	_, txDropped, _, _ := linkStats(t, l.workers[0], "w")
	_, _, _, rxDropped := linkStats(t, l.nic, "p0")
	k := s.Ports[0].Kernel
	lost := lostInKernel(k) + (txDropped - txDroppedBefore)
	t.Logf("%d frames in 100 ms before, %d after; sent %d = received %d + lost %d (%+v, veth tx dropped %d, rx dropped %d)",
		usual, again, sent, s.Total.Received, lost, k, txDropped-txDroppedBefore, rxDropped-rxDroppedBefore)
	if sent != s.Total.Received+lost {
		t.Errorf("sent %d, received %d and lost %d: %d are not accounted for", sent, s.Total.Received, lost, int64(sent)-int64(s.Total.Received+lost))
	}
	if lost == 0 {
		t.Error("nothing was lost in 2 s without a reader: the test does not test")
	}
	if again < usual/2 {
		t.Errorf("%d frames in 100 ms after the pause, %d before", again, usual)
	}
	check(t, n)
}

// TestAllQueues: ten thousand flows over four queues: what all queues receive together is what was sent, with as many
// lanes as queues, fewer, and one.
func TestAllQueues(t *testing.T) {
	const flows, queues, times = 10000, 4, 3
	for _, lanes := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			l := newVethLab(t, 1, queues, false)
			cfg := testConfig()
			cfg.Lanes, cfg.FramesPerQueue = lanes, 2048
			n := startNIC(t, cfg, l.ports()...)
			if err := n.SetFunction("p0", Function{Kind: Sink}); err != nil {
				t.Fatal(err)
			}
			b := newBlaster(t, l.workers[0], "w", queues, flows/queues, 298, func(number int, f []byte) {
				copy(f, request(0, 64, 0, 0, uint32(number), 1))
				f[28], f[29] = byte(number>>14), byte(number>>6) // of the source address
				binary.BigEndian.PutUint16(f[34:], uint16(4000+number))
			})
			for sent := uint64(0); sent < times*flows; {
				for q := range b.sockets {
					if err := b.round(q); err != nil {
						t.Fatal(err)
					}
				}
				// A pace that leaves no frame behind.
				sent = b.settle()
				waitFor(t, n, func(s *Snapshot) bool {
					return s.Total.Received+lostInKernel(s.Ports[0].Kernel) >= sent
				})
			}
			sent := b.settle()
			s := waitReceived(t, n, sent)
			if s.Total.Received != sent || s.Total.Passed != sent || s.Ports[0].Steering["taken-udp"] != sent {
				t.Fatalf("sent %d: %+v, steering %v", sent, s.Total, s.Ports[0].Steering)
			}
			sum := uint64(0)
			for _, ls := range s.Lanes {
				if ls.Received == 0 {
					t.Errorf("lane %d has received nothing", ls.Lane)
				}
				sum += ls.Received
			}
			if sum != sent {
				t.Fatalf("sent %d, the lanes have received %d", sent, sum)
			}
			check(t, n)
		})
	}
}
