package native

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/worker/datagram"
)

// childEnv makes the test binary a NIC in a process of its own, which can be killed.
const childEnv = "GRADNIC_TEST_NATIVE_NIC"

// childSpec is what such a NIC is told.
type childSpec struct {
	Job   dataplane.JobSpec
	Ports int
	Cut   map[string]uint64 // by port, as in Impairment.CutEgress
	Chunk int
}

func child() {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	var s childSpec
	fail(json.Unmarshal([]byte(os.Getenv(childEnv)), &s))
	var ports []dataplane.PortSpec
	for i := range s.Ports {
		ports = append(ports, dataplane.XDPPort{Interface: fmt.Sprint("p", i)})
	}
	n, err := dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: 2048, ChunkSize: s.Chunk}, ports...)
	fail(err)
	fail(n.InstallJob(s.Job))
	for port, k := range s.Cut {
		fail(n.Impair(port, dataplane.Impairment{CutEgress: k}))
	}
	fail(n.Start(context.Background()))
	fmt.Println("running")
	time.Sleep(2 * time.Minute)
}

// vethRig is workers with UDP sockets in namespaces of their own, and the NIC in another process on AF_XDP.
type vethRig struct {
	t      *testing.T
	nic    *netlab.NS
	spaces []*netlab.NS
	spec   childSpec
	cmd    *exec.Cmd
	group  []atomic.Uint64 // payloads that came to each worker's multicast socket
}

// counted counts what comes to a transport.
type counted struct {
	datagram.Transport
	n *atomic.Uint64
}

func (c counted) Recv(until time.Time) ([][]byte, error) {
	got, err := c.Transport.Recv(until)
	c.n.Add(uint64(len(got)))
	return got, err
}

func newVethRig(t *testing.T, job dataplane.JobSpec, mtu int, rate uint64) *vethRig {
	t.Helper()
	lab := netlabtest.New(t, "native")
	r := &vethRig{t: t, nic: netlabtest.Namespace(t, lab, "nic"), group: make([]atomic.Uint64, job.Workers)}
	for i := range job.Workers {
		ns := netlabtest.Namespace(t, lab, fmt.Sprint("w", i))
		r.spaces = append(r.spaces, ns)
		a := netlab.End{NS: ns, Name: "eth0", MAC: workerMAC(i).String(), Addr: workerIP(i).String() + "/24", MTU: mtu}
		b := netlab.End{NS: r.nic, Name: fmt.Sprint("p", i), MTU: mtu}
		if rate == 0 {
			netlabtest.Veth(t, lab, a, b)
		} else if err := lab.LimitedVeth(a, b, rate); err != nil {
			t.Fatal(err)
		}
	}
	job.Name, job.Protocol = "j", dataplane.ProtocolNative
	r.spec = childSpec{Job: job, Ports: job.Workers}
	r.start(nil)
	t.Cleanup(r.kill)
	return r
}

func (r *vethRig) start(cut map[string]uint64) {
	r.t.Helper()
	s := r.spec
	s.Cut = cut
	b, err := json.Marshal(s)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := r.nic.Start(cmd); err != nil {
		r.t.Fatal(err)
	}
	r.cmd = cmd
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "running\n" {
		r.t.Fatalf("the NIC: %q, %v", line, cmd.Wait())
	}
}

// kill ends the NIC by SIGKILL.
func (r *vethRig) kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	r.cmd = nil
}

func (r *vethRig) join() []*Worker {
	r.t.Helper()
	ws := make([]*Worker, len(r.spaces))
	each(r.t, len(ws), func(ctx context.Context, i int) (err error) {
		// Every other one segments: the NIC, on native XDP, must see no difference.
		cfg := Config{Rank: i, NIC: nicIP, IP: workerIP(i), Segments: i%2 == 1}
		cfg.Group = func(g datagram.Endpoint) (tr datagram.Transport, err error) {
			err = r.spaces[i].Do(func() error {
				ifc, err := datagram.InterfaceOf(workerIP(i))
				if err != nil {
					return err
				}
				tr, err = datagram.ListenGroup(ifc, g, datagram.Endpoint{IP: nicIP, Port: 48880}, room)
				return err
			})
			if err != nil {
				return nil, err
			}
			return counted{tr, &r.group[i]}, nil
		}
		if cfg.Conn, err = socketIn(r.spaces[i], i); err != nil {
			return err
		}
		ws[i], err = Join(ctx, cfg)
		return err
	})
	for _, w := range ws {
		r.t.Cleanup(func() { w.Close() })
	}
	return ws
}

// socketIn opens a worker's socket in its namespace.
func socketIn(ns *netlab.NS, rank int) (conn *net.UDPConn, err error) {
	err = ns.Do(func() (err error) {
		ip := workerIP(rank)
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:]})
		return err
	})
	return conn, err
}

// asRig lends the comparisons the job's specification.
func (r *vethRig) asRig() *rig { return &rig{t: r.t, spec: r.spec.Job} }

func TestOverAFXDP(t *testing.T) {
	for _, group := range []inet.Addr{{}, {239, 9, 8, 7}} {
		for _, typ := range []aggregation.Type{aggregation.Float32, aggregation.BFloat16} {
			job := dataplane.JobSpec{Workers: 4, Elements: 360, Slots: 256, Native: &dataplane.NativeSpec{Type: typ, Order: aggregation.Ranked}}
			if !group.IsZero() {
				job.Multicast = &dataplane.MulticastSpec{IP: group}
			}
			r := newVethRig(t, job, 0, 0)
			ws := r.join()
			if typ == aggregation.Float32 {
				allReduce[float32](t, r.asRig(), ws, 200_000)
			} else {
				allReduce[uint16](t, r.asRig(), ws, 200_000)
			}
			c := ws[0].Counts()
			t.Logf("%v multicast %v: %+v", typ, !group.IsZero(), c)
			// However busy the machine and however many are asked for again: every result is sent to the group once.
			for i := range ws {
				if got := r.group[i].Load(); !group.IsZero() && got < c.Packets/2 {
					t.Errorf("%d multicast results of %d arrive at rank %d: %+v", got, c.Packets, i, c)
				} else if group.IsZero() && got > 0 {
					t.Errorf("%d multicast results, none were wanted", got)
				}
			}
			r.kill()
		}
	}
}

// Frames of MTU 9000, which the NIC holds in several chunks.
func TestJumboFrames(t *testing.T) {
	const elements = (9000 - 28 - 32) / 4
	r := newVethRig(t, dataplane.JobSpec{Workers: 3, Elements: elements, Slots: 64, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked}}, 9000, 0)
	ws := r.join()
	for _, n := range []int{1, elements - 1, elements, 20*elements + 1} {
		allReduce[float32](t, r.asRig(), ws, n)
	}
	if c := ws[0].Counts(); c.Foreign > 0 {
		t.Errorf("%+v", c)
	}
}

// Case 7 with processes, sockets and SIGKILL.
func TestSIGKILL(t *testing.T) {
	n, kills := 1<<19, 3
	if *soak {
		n, kills = 1<<24, 10
	}
	for _, typ := range []aggregation.Type{aggregation.Int32, aggregation.Float32} {
		t.Run(typ.String(), func(t *testing.T) {
			job := dataplane.JobSpec{Workers: 4, Elements: 256, Slots: 256, Native: &dataplane.NativeSpec{Type: typ, Order: aggregation.Ranked, Deadline: time.Minute}}
			if typ == aggregation.Int32 {
				sigkill[int32](t, newVethRig(t, job, 0, 0), n, kills)
			} else {
				sigkill[float32](t, newVethRig(t, job, 0, 0), n, kills)
			}
		})
	}
}

func sigkill[T Element](t *testing.T, r *vethRig, n, kills int) {
	ws := r.join()
	in, out := make([][]T, 4), make([][]T, 4)
	for i := range ws {
		in[i], out[i] = random[T](uint64(i), n), make([]T, n)
	}
	ended := make(chan struct{})
	done := make(chan int)
	go func() {
		during := 0
		for k := range kills {
			for ws[0].progress() < uint64(n/256*(k+1)/(kills+2)) {
				select {
				case <-ended:
					done <- during
					return
				case <-time.After(200 * time.Microsecond):
				}
			}
			during++
			r.kill()
			// Every other one dies between two copies of a result.
			if k%2 == 0 {
				r.start(map[string]uint64{"p0": 101, "p1": 101, "p2": 100, "p3": 100})
				time.Sleep(150 * time.Millisecond)
				r.kill()
			}
			r.start(nil)
		}
		<-ended
		done <- during
	}()
	each(t, 4, func(ctx context.Context, i int) error {
		_, err := AllReduce(ctx, ws[i], out[i], in[i])
		return err
	})
	close(ended)
	if during := <-done; during < kills {
		t.Errorf("only %d kills fell into the all-reduce", during)
	}
	compare(t, r.asRig(), in, out)
	c := ws[3].Counts()
	t.Logf("%+v", c)
	if c.Epochs < uint64(kills) {
		t.Errorf("%d epochs seen", c.Epochs)
	}
}

// Workers behind links of 200 Mbit/s keep them busy: no collapse, whatever their number.
func TestLimitedLinks(t *testing.T) {
	const rate, elements = 200e6, 360
	for _, workers := range []int{2, 8} {
		r := newVethRig(t, dataplane.JobSpec{Workers: workers, Elements: elements, Slots: 512, Native: &dataplane.NativeSpec{Type: aggregation.Float32}}, 0, rate)
		ws := r.join()
		n := 1 << 20
		in, out := make([][]float32, workers), make([][]float32, workers)
		for i := range in {
			in[i], out[i] = gauss(uint64(i), n), make([]float32, n)
			for k, x := range in[i] {
				in[i][k] = float32(int32(1000 * x)) // sums are exact in any order
			}
		}
		best := 0.0
		for range 2 {
			start := time.Now()
			each(t, workers, func(ctx context.Context, i int) error {
				_, err := AllReduce(ctx, ws[i], out[i], in[i])
				return err
			})
			allowance := rate / 8 * (4 * elements) / (74 + 4*elements) // bytes of values a second
			best = max(best, float64(4*n)/time.Since(start).Seconds()/allowance)
		}
		t.Logf("%d workers: %.3f of the allowance; %+v; window %.0f, base %v", workers, best, ws[0].Counts(), ws[0].e.win.pace.window, time.Duration(ws[0].e.win.pace.base))
		compare(t, r.asRig(), in, out)
		// Eight of them need both CPUs of a small machine, which may be busy: bench measures, this sees a collapse.
		c := ws[0].Counts()
		if c.Resent > c.Packets/2 || best < 0.03 && !underRace {
			t.Errorf("%d workers: %.2f of the allowance, %+v", workers, best, c)
		}
		r.kill()
	}
}
