package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

var (
	nicMAC = inet.MAC{0x06, 0, 0, 0, 0, 0xfe}
	nicIP  = inet.Addr{10, 50, 0, 254}
)

func workerMAC(r int) inet.MAC { return inet.MAC{2, 0, 0, 0, 1, byte(r)} }
func workerIP(r int) inet.Addr { return inet.Addr{10, 50, 0, byte(r + 1)} }

func testConfig() Config {
	c := Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: 256, Wait: Interrupt}
	// All tests can be run with results as chains: GRADNIC_TEST_REPLICATE=chain.
	if s := os.Getenv("GRADNIC_TEST_REPLICATE"); s != "" {
		if err := c.Replicate.UnmarshalText([]byte(s)); err != nil {
			panic(err)
		}
	}
	return c
}

// startNIC starts a NIC that is stopped and checked when the test ends.
func startNIC(t testing.TB, cfg Config, ports ...PortSpec) *NIC {
	t.Helper()
	n, err := New(cfg, ports...)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		s := n.Snapshot()
		if err := s.Check(); err != nil {
			t.Errorf("after stop: %v", err)
		}
	})
	return n
}

// memNIC starts a NIC with mem ports only.
func memNIC(t testing.TB, cfg Config, ports int) (*NIC, []*MemPort) {
	t.Helper()
	mem := make([]*MemPort, ports)
	specs := make([]PortSpec, ports)
	for i := range mem {
		mem[i] = NewMemPort("m" + string(rune('0'+i)))
		specs[i] = mem[i]
	}
	return startNIC(t, cfg, specs...), mem
}

func members(workers int, learn bool) []WorkerSpec {
	m := make([]WorkerSpec, workers)
	for r := range m {
		m[r] = WorkerSpec{Rank: r, MAC: workerMAC(r), IP: workerIP(r), Port: r}
		if learn {
			m[r].Port = -1
		}
	}
	return m
}

func install(t testing.TB, n *NIC, s JobSpec) {
	t.Helper()
	if err := n.InstallJob(s); err != nil {
		t.Fatal(err)
	}
}

// request is a whole frame of a worker, all values alike.
func request(rank, elements, slot, set int, tsi uint32, value int32) []byte {
	f := make([]byte, switchml.FrameLen(elements))
	r := switchml.Request{
		Worker:   switchml.Endpoint{MAC: workerMAC(rank), IP: workerIP(rank), Port: uint16(4000 + rank)},
		Switch:   switchml.Endpoint{MAC: nicMAC, IP: nicIP, Port: switchml.PortBase},
		Elements: elements, PoolIndex: switchml.PoolIndexOf(set, slot), E0: int8(rank - 3), E1: int8(-rank), Offload: true,
	}
	binary.LittleEndian.PutUint32(r.TSI[:], tsi)
	switchml.PutRequest(f, r)
	for o := switchml.ValuesOffset; o < len(f); o += 4 {
		binary.BigEndian.PutUint32(f[o:], uint32(value))
	}
	return f
}

// waitReceived waits until the NIC has published that it received this many frames, and returns a snapshot of then.
func waitReceived(t testing.TB, n *NIC, frames uint64) Snapshot {
	t.Helper()
	return waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received >= frames && s.Total.InFlight == 0 })
}

func waitFor(t testing.TB, n *NIC, ok func(*Snapshot) bool) Snapshot {
	t.Helper()
	until := time.Now().Add(10 * time.Second)
	for i := 0; ; i++ {
		s := n.Snapshot()
		if ok(&s) {
			return s
		}
		if time.Now().After(until) {
			t.Fatalf("the NIC does not get there: %+v", s.Total)
		}
		if i > 10 {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// check has the lanes publish what they have counted (a frame can be received from a port before the round that sent
// it has ended) and verifies the promises.
func check(t testing.TB, n *NIC) Snapshot {
	t.Helper()
	n.mu.Lock()
	n.onLanes((*lane).publish)
	n.mu.Unlock()
	s := n.Snapshot()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

// recv takes a frame that must come.
func recv(t testing.TB, p *MemPort) []byte {
	t.Helper()
	buf := make([]byte, 10000)
	n, err := p.Recv(buf, time.Now().Add(5*time.Second))
	if err != nil {
		t.Fatalf("port %s: %v", p.name, err)
	}
	return buf[:n]
}

// silent fails when a frame comes that is not to come. What the NIC counted before was sent before.
func silent(t testing.TB, ports ...*MemPort) {
	t.Helper()
	buf := make([]byte, 4096)
	for _, p := range ports {
		if n, err := p.Recv(buf, time.Now().Add(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("port %s sent %x, %v", p.name, buf[:n], err)
		}
	}
}

func mustSend(t testing.TB, p *MemPort, frame []byte) {
	t.Helper()
	if err := p.Send(frame); err != nil {
		t.Fatal(err)
	}
}

// drainWire receives and discards until the returned function is called, which takes what is still on the wire and
// returns how many frames came.
func drainWire(p *MemPort) (stop func() (frames uint64)) {
	quit, done := make(chan struct{}), make(chan uint64)
	go func() {
		buf := make([]byte, 4096)
		for frames := uint64(0); ; {
			_, err := p.Recv(buf, time.Now().Add(time.Millisecond))
			if err == nil {
				frames++
				continue
			}
			select {
			case <-quit:
				done <- frames
				return
			default:
			}
			if errors.Is(err, ErrPortClosed) {
				<-quit
				done <- frames
				return
			}
		}
	}()
	return func() uint64 { close(quit); return <-done }
}

// lostInKernel are the frames that sockets lost: each is in one of these counts.
func lostInKernel(k KernelStatistics) uint64 { return k.RxDropped + k.RxRingFull + k.FillRingEmpty }
