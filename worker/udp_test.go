package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/control"
	"gradnic/control/switchml"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/worker"
	"gradnic/worker/datagram"
)

// newLab is the real thing: the NIC on AF_XDP in one namespace, each worker's UDP
// sockets in another, the controller on a Unix socket.
func newLab(t *testing.T, n int, base worker.Config) *fabric { return newLabFor(t, n, base, nil) }

// newLabFor has a job instead of the controller, unless it is nil; the members are filled in.
func newLabFor(t *testing.T, n int, base worker.Config, job *dataplane.JobSpec) *fabric {
	t.Helper()
	lab := netlabtest.New(t, "worker")
	nicNS := netlabtest.Namespace(t, lab, "nic")
	f := &fabric{}
	var ports []dataplane.PortSpec
	var spaces []*netlab.NS
	for r := range n {
		port := fmt.Sprintf("w%d", r)
		ns := netlabtest.Namespace(t, lab, port)
		spaces = append(spaces, ns)
		netlabtest.Veth(t, lab,
			netlab.End{NS: ns, Name: "eth0", MAC: workerMAC(r).String(), Addr: workerIP(r).String() + "/24"},
			netlab.End{NS: nicNS, Name: port})
		ports = append(ports, dataplane.XDPPort{Interface: port, Namespace: nicNS.Do})
	}
	f.start(t, ports)
	address := ""
	if job == nil {
		address = serveController(t, f.nic)
	}
	f.workers, f.heard = make([]*worker.Worker, n), make([]atomic.Uint64, n)
	t.Cleanup(func() { f.stop(t) })
	if job != nil {
		for r := range n {
			job.Members = append(job.Members, dataplane.WorkerSpec{Rank: r, MAC: workerMAC(r), IP: workerIP(r), Port: r})
		}
		if err := f.nic.InstallJob(*job); err != nil {
			t.Fatal(err)
		}
		base.NICMAC, base.NICIP = nicMAC, nicIP
	}
	ctx, errs := deadline(t), make([]error, n)
	var g sync.WaitGroup
	for r := range n {
		g.Go(func() {
			c := base
			c.Rank, c.Workers, c.Controller = r, n, address
			c.IP, c.MAC = workerIP(r), workerMAC(r)
			c.Listen = func(a *net.UDPAddr) (conn *net.UDPConn, err error) {
				err = spaces[r].Do(func() (err error) {
					conn, err = net.ListenUDP("udp4", a)
					return err
				})
				return conn, err
			}
			c.ListenGroup = func(group, nic datagram.Endpoint, room int) (tr datagram.Transport, err error) {
				err = spaces[r].Do(func() error {
					ifc, err := net.InterfaceByName("eth0")
					if err == nil {
						tr, err = datagram.ListenGroup(ifc, group, nic, room)
					}
					return err
				})
				return counted{tr, &f.heard[r]}, err
			}
			f.workers[r], errs[r] = worker.Join(ctx, c)
		})
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if mac, ip := f.workers[0].NIC(); mac != nicMAC || ip != nicIP {
		t.Fatalf("the controller gave %v at %v as the NIC", mac, ip)
	}
	return f
}

// serveController serves the SwitchML controller of nic and returns its address.
func serveController(t *testing.T, nic *dataplane.NIC) string {
	t.Helper()
	server, err := control.New(control.Options{NIC: nic})
	if err != nil {
		t.Fatal(err)
	}
	controller, err := switchml.New(switchml.Options{Jobs: server.Jobs()})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "controller.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- controller.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		controller.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Stop(ctx)
	})
	return "unix://" + path
}

func TestUDPOverXDP(t *testing.T) {
	for _, elements := range []int{64, 256} {
		f := newLab(t, 3, worker.Config{Elements: elements, Outstanding: 32})
		seed := uint64(0)
		for _, n := range []int{0, 1, elements - 1, elements, elements + 1, 100*elements - 7, 1000 * elements} {
			seed++
			f.reduceInts(t, n, seed)
			f.reduceFloats(t, n, seed)
		}
		for r := range 3 {
			if err := f.nic.Impair(fmt.Sprintf("w%d", r), dataplane.Impairment{IngressLoss: 0.1, EgressLoss: 0.1, Seed: uint64(r + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		var resent uint64
		for _, s := range f.reduceInts(t, 100*elements, 77) {
			resent += s.Resent
		}
		f.reduceFloats(t, 100*elements, 78)
		if resent == 0 {
			t.Error("nothing was resent at 10 % loss")
		}
	}
}

// Four threads of a worker, each with its socket and slots.
func TestThreads(t *testing.T) {
	f := newLab(t, 2, worker.Config{Elements: 64, Threads: 4, Outstanding: 32})
	ctx := deadline(t)
	for _, n := range []int{0, 1, 3, 5, 257, 64*40 + 3} {
		in, out := make([][]float32, 2), make([][]float32, 2)
		for r := range in {
			in[r], out[r] = randomFloats(r, n, uint64(n)), make([]float32, n)
		}
		stats, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
			return w.AllReduceFloat32(ctx, out[r], in[r])
		})
		for r := range in {
			if errs[r] != nil {
				t.Fatal(errs[r])
			}
			if c := worker.CheckFloat32(out[r], in, 64, 4); c.Wrong != 0 {
				t.Errorf("%d elements, rank %d: %+v", n, r, c)
			}
			if stats[r].Received != stats[r].Packets || stats[r].RTT.Count > int64(stats[r].Packets) {
				t.Errorf("%d elements, rank %d: %+v", n, r, stats[r])
			}
		}
		f.reduceInts(t, n, uint64(n))
	}
	// A value that cannot be carried, in the third thread's share: element numbers are the array's.
	in := [][]float32{make([]float32, 1000), make([]float32, 1000)}
	in[1][600] = float32(math.Inf(1))
	_, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
		return w.AllReduceFloat32(ctx, in[r], in[r])
	})
	var e *worker.NonFiniteError
	if !errors.As(errs[1], &e) || e.Index != 600 || e.First != 564 || e.Last != 628 {
		t.Errorf("rank 1: %+v (%v)", e, errs[1])
	}
	if !errors.As(errs[0], &e) || e.Index != -1 {
		t.Errorf("rank 0: %+v (%v)", e, errs[0])
	}
}

// Joining again on the same NIC starts over, whatever was left.
func TestJoinAgain(t *testing.T) {
	f := newLab(t, 2, worker.Config{Elements: 64, Outstanding: 8})
	f.reduceInts(t, 64*5, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	v := make([]int32, 1000)
	if _, err := f.workers[0].AllReduceInt32(ctx, v, v); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("alone: %v", err)
	}
	configs := []worker.Config{f.workers[0].Config(), f.workers[1].Config()}
	errs := make([]error, 2)
	var g sync.WaitGroup
	for r, c := range configs {
		if err := f.workers[r].Close(); err != nil {
			t.Fatal(err)
		}
		g.Go(func() { f.workers[r], errs[r] = worker.Join(deadline(t), c) })
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	f.reduceInts(t, 64*5, 2)
}

// echo answers each datagram with itself, which is what a switch does for a job
// of one worker; before each answer come datagrams that are none.
func echo(t *testing.T, ip inet.Addr) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:], Port: 0xBEE0})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			for _, bad := range [][]byte{{}, b[:9], b[:n-1], append(slices.Clone(b[:n]), 0), make([]byte, n)} {
				_, _ = c.WriteToUDPAddrPort(bad, from)
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
}

func TestOneWorkerOverLoopback(t *testing.T) {
	nic := inet.Addr{127, 77, 0, 1}
	echo(t, nic)
	w, err := worker.Join(t.Context(), worker.Config{
		Workers: 1, IP: inet.Addr{127, 77, 0, 2}, NICIP: nic, NICMAC: nicMAC, Elements: 64, Outstanding: 8, Threads: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	in, out := randomInts(0, 64*100+5, 1), make([]int32, 64*100+5)
	s, err := w.AllReduceInt32(deadline(t), out, in)
	if err != nil || !slices.Equal(in, out) {
		t.Fatalf("%v, equal: %v", err, slices.Equal(in, out))
	}
	if s.Foreign < s.Packets {
		t.Errorf("%d foreign datagrams, want 5 for each of %d packets", s.Foreign, s.Packets)
	}
}

// Nobody listens at the NIC's port: ICMP says so again and again, which ends
// nothing, since a NIC may be starting; the deadline does, and names the cause.
func TestNobodyAnswers(t *testing.T) {
	w, err := worker.Join(t.Context(), worker.Config{
		Workers: 1, IP: inet.Addr{127, 77, 0, 4}, NICIP: inet.Addr{127, 77, 0, 3}, NICMAC: nicMAC, Elements: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 80*time.Millisecond)
	defer cancel()
	v := make([]int32, 64)
	s, err := w.AllReduceInt32(ctx, v, v)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), unix.ECONNREFUSED.Error()) {
		t.Fatalf("error: %v", err)
	}
	if s.SocketErrors == 0 || s.Resent == 0 {
		t.Errorf("%+v", s)
	}
}

func TestPortTaken(t *testing.T) {
	c := worker.Config{Workers: 1, IP: inet.Addr{127, 77, 0, 5}, NICIP: inet.Addr{127, 77, 0, 3}, NICMAC: nicMAC}
	w, err := worker.Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := worker.Join(t.Context(), c); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("second worker on the port: %v", err)
	}
}

func TestControllerDoesNotAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := worker.Join(ctx, worker.Config{
		Workers: 2, IP: inet.Addr{127, 77, 0, 6}, MAC: workerMAC(0), Controller: "unix://" + filepath.Join(t.TempDir(), "none"),
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "controller") {
		t.Fatalf("error: %v", err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestNoInterfaceHasTheAddress(t *testing.T) {
	_, err := worker.Join(t.Context(), worker.Config{Workers: 2, IP: inet.Addr{203, 0, 113, 9}, Controller: "unix:///none"})
	if err == nil || !strings.Contains(err.Error(), "203.0.113.9") {
		t.Fatalf("error: %v", err)
	}
}
