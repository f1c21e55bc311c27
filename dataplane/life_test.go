package dataplane

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/internal/netlab/netlabtest"
)

const childEnv = "GRADNIC_TEST_CHILD"

// TestMain runs the child of TestKill instead of the tests when it is told to.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childNIC()
		return
	}
	os.Exit(m.Run())
}

// childNIC is a NIC on p0 of the namespace that the process runs in, until it is killed.
func childNIC() {
	n, err := New(testConfig(), XDPPort{Interface: "p0"})
	if err == nil {
		err = n.Start(context.Background())
	}
	if err == nil {
		err = n.InstallJob(JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("running")
	time.Sleep(time.Minute)
}

// roundTrip sends a request and expects its result.
func roundTrip(w wire, slot, set int) error {
	if err := w.Send(request(0, 64, slot, set, 0, 7)); err != nil {
		return err
	}
	buf := make([]byte, 2048)
	k, err := w.Recv(buf, time.Now().Add(5*time.Second))
	if err != nil {
		return err
	}
	if v := values(buf[:k])[0]; v != 7 {
		return fmt.Errorf("result %d", v)
	}
	return nil
}

// TestKill: kill -9 leaves no program on the netdev, the netdev is usable by the kernel, and the next start works at once.
func TestKill(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	w := l.wires(t)[0]
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := l.nic.Start(cmd); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		if line != "running\n" {
			t.Fatalf("child: %q, %v", line, cmd.Wait())
		}
		if linkProgram(t, l.nic, "p0") == 0 {
			t.Fatal("the child has no program on p0")
		}
		if err := roundTrip(w, 0, 0); err != nil {
			t.Fatalf("with the child: %v", err)
		}
		stop := flood(w, [][]byte{request(0, 64, 1, 0, 0, 1)})
		time.Sleep(20 * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child was to be killed")
		}
		stop()
		until := time.Now().Add(2 * time.Second)
		for linkProgram(t, l.nic, "p0") != 0 {
			if time.Now().After(until) {
				t.Fatal("the program is left on p0")
			}
			time.Sleep(time.Millisecond)
		}
		for len(drained(w)) > 0 {
		}
	}
	n := startNIC(t, testConfig(), l.ports()...)
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
	if err := roundTrip(w, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// drained takes what is waiting on a wire.
func drained(w wire) (frames [][]byte) {
	buf := make([]byte, 2048)
	for {
		k, err := w.Recv(buf, time.Now().Add(5*time.Millisecond))
		if err != nil {
			return frames
		}
		frames = append(frames, append([]byte(nil), buf[:k]...))
	}
}

// TestStopUnderFlood starts and stops a NIC 30 times while frames arrive: no hang, no leak, the promises hold each time,
// and the netdev is left without a program.
func TestStopUnderFlood(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	w := l.wires(t)[0]
	leaks := goleak.IgnoreCurrent()
	frames := make([][]byte, 64)
	for i := range frames {
		frames[i] = request(0, 64, i, 0, uint32(i), 1)
	}
	stop := flood(w, frames)
	quit := make(chan struct{})
	gone := make(chan struct{})
	go func() { // somebody must receive
		defer close(gone)
		buf := make([]byte, 2048)
		for {
			select {
			case <-quit:
				return
			default:
				_, _ = w.Recv(buf, time.Now().Add(time.Millisecond))
			}
		}
	}()
	var received uint64
	for i := range 30 {
		cfg := testConfig()
		cfg.Wait = Wait(i % 3)
		cfg.Drain = 20 * time.Millisecond
		n, err := New(cfg, l.ports()...)
		if err != nil {
			t.Fatal(err)
		}
		install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
		begin := time.Now()
		if err := n.Start(context.Background()); err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received > 0 })
		time.Sleep(10 * time.Millisecond)
		if err := n.Stop(context.Background()); err != nil {
			t.Fatalf("stop %d: %v", i, err)
		}
		if d := time.Since(begin); newDeadline(t, 4*time.Second).exceeded(d) {
			t.Fatalf("round %d took %v", i, d)
		}
		s := n.Snapshot()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		received += s.Total.Received
		if linkProgram(t, l.nic, "p0") != 0 {
			t.Fatalf("round %d: a program is left", i)
		}
		if err := n.Stop(context.Background()); err != nil {
			t.Fatalf("stop again: %v", err)
		}
	}
	sent := stop()
	close(quit)
	<-gone
	t.Logf("%d frames sent, %d received", sent, received)
	goleak.VerifyNone(t, leaks)
}

// TestMemLife: goroutines end, the wire end says so, and a NIC that was stopped cannot be used.
func TestMemLife(t *testing.T) {
	defer goleak.VerifyNone(t)
	m := NewMemPort("m")
	n, err := New(testConfig(), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Send(make([]byte, 60)); err == nil {
		t.Fatal("sent before the start")
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err == nil {
		t.Fatal("started twice")
	}
	waiting := make(chan error)
	go func() {
		_, err := m.Recv(make([]byte, 100), time.Time{})
		waiting <- err
	}()
	time.Sleep(5 * time.Millisecond)
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != ErrPortClosed {
		t.Fatalf("receive: %v", err)
	}
	if err := m.Send(make([]byte, 60)); err != ErrPortClosed {
		t.Fatalf("send: %v", err)
	}
	if err := n.InstallJob(JobSpec{Name: "j", Workers: 1, Elements: 64}); err == nil {
		t.Fatal("installed a job")
	}
	if err := n.Start(context.Background()); err == nil {
		t.Fatal("started again")
	}
	if s := n.Snapshot(); s.Check() != nil || s.Frames.Total == 0 {
		t.Fatalf("%+v", s)
	}
}

// TestIdleSleeps: an idle adaptive NIC uses almost no CPU time.
func TestIdleSleeps(t *testing.T) {
	l := newVethLab(t, 2, 1, false)
	cfg := testConfig()
	cfg.Wait = Adaptive
	n := startNIC(t, cfg, append(l.ports(), NewMemPort("m"))...)
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Sleeps > 0 })
	runtime.GC()
	looks := idle(t, time.Second, time.Second/50)
	if s := n.Snapshot(); s.Total.Sleeps > uint64(20*looks) {
		t.Fatalf("%d sleeps", s.Total.Sleeps)
	}
}

// TestSteadyStateAllocatesNothing counts the heap objects that the process makes while traffic passes real lanes.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	run := func(t *testing.T, n *NIC, w wire) {
		install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 256, Slots: 64, Members: members(1, true)})
		var frames [2][64][]byte
		for set := range frames {
			for i := range frames[set] {
				frames[set][i] = request(0, 256, i, set, uint32(i), 1)
			}
		}
		buf := make([]byte, 2048)
		round := func(set int) {
			for i := range frames[set] {
				if err := w.Send(frames[set][i]); err != nil {
					t.Fatal(err)
				}
			}
			deadline := time.Now().Add(5 * time.Second)
			for range frames[set] {
				if _, err := w.Recv(buf, deadline); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 10 {
			round(i % 2)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const rounds = 2000
		begin := time.Now()
		for i := range rounds {
			round(i % 2)
		}
		runtime.ReadMemStats(&after)
		got := after.Mallocs - before.Mallocs
		// The runtime itself makes about one object a second (timers, finalizers), however many frames pass; a lane that
		// allocated would make at least one a batch, of which there are thousands.
		most := uint64(rounds/40 + 2*time.Since(begin)/time.Second)
		if got > most {
			t.Fatalf("%d objects in %d rounds of 64 frames: at most %d", got, rounds, most)
		}
		t.Logf("%d objects, %d frames", got, rounds*64)
		check(t, n)
	}
	t.Run("mem", func(t *testing.T) {
		n, mem := memNIC(t, testConfig(), 1)
		run(t, n, mem[0])
	})
	t.Run("xdp", func(t *testing.T) {
		netlabtest.NeedRoot(t)
		l := newVethLab(t, 1, 1, false)
		cfg := testConfig()
		cfg.NoHealing = true // the supervisor looks at the netdevs five times a second, and allocates beside the lanes
		n := startNIC(t, cfg, l.ports()...)
		run(t, n, l.wires(t)[0])
	})
}
