package native

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"gradnic/aggregation"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker/datagram"
)

// passed is a message of a worker's socket, either way.
type passed struct {
	kind    wire.Kind
	flags   wire.Flags
	chunk   int // over all calls
	payload int // bytes
}

// tapped notes what goes over a transport.
type tapped struct {
	datagram.Transport
	slots int
	mu    sync.Mutex
	all   []passed
	sent  int64 // bytes of frames
}

func (t *tapped) note(message []byte) {
	v, f := wire.Validate(message)
	if f != wire.OK {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, passed{v.Kind(), v.Flags(), int(v.Round())*t.slots + int(v.Slot()), len(v.Payload())})
	if !v.Kind().FromNetwork() {
		t.sent += int64(inet.PayloadOffset + len(message))
	}
}

func (t *tapped) Send(frames [][]byte) error {
	for _, f := range frames {
		t.note(f[inet.PayloadOffset:])
	}
	return t.Transport.Send(frames)
}

func (t *tapped) Recv(until time.Time) ([][]byte, error) {
	got, err := t.Transport.Recv(until)
	for _, b := range got {
		t.note(b)
	}
	return got, err
}

// partsRig is a NIC in this process, on AF_XDP, and workers with sockets in namespaces of their own.
type partsRig struct {
	nic    *dataplane.NIC
	spaces []*netlab.NS
	taps   []*tapped
	ws     []*Worker
}

func newPartsRig(t *testing.T, job dataplane.JobSpec) *partsRig {
	t.Helper()
	lab := netlabtest.New(t, "parts")
	far := netlabtest.Namespace(t, lab, "nic")
	r := &partsRig{}
	var ports []dataplane.PortSpec
	for i := range job.Workers {
		ns := netlabtest.Namespace(t, lab, fmt.Sprint("w", i))
		r.spaces = append(r.spaces, ns)
		netlabtest.Veth(t, lab, netlab.End{NS: ns, Name: "eth0", MAC: workerMAC(i).String(), Addr: workerIP(i).String() + "/24"}, netlab.End{NS: far, Name: fmt.Sprint("p", i)})
		ports = append(ports, dataplane.XDPPort{Interface: fmt.Sprint("p", i), Namespace: far.Do})
	}
	var err error
	if r.nic, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: 1024, Wait: dataplane.Interrupt}, ports...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if s := r.nic.Snapshot(); s.Check() != nil {
			t.Error(s.Check())
		}
	})
	if err := r.nic.InstallJob(job); err != nil {
		t.Fatal(err)
	}
	if err := r.nic.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.ws, r.taps = make([]*Worker, job.Workers), make([]*tapped, job.Workers)
	each(t, job.Workers, func(ctx context.Context, i int) (err error) {
		cfg := Config{Rank: i, NIC: nicIP, IP: workerIP(i)}
		if cfg.Conn, err = socketIn(r.spaces[i], i); err != nil {
			return err
		}
		if err := cfg.setDefaults(); err != nil {
			return err
		}
		tr, err := cfg.transport()
		if err != nil {
			return err
		}
		r.taps[i] = &tapped{Transport: tr, slots: job.Slots}
		r.ws[i], err = join(ctx, cfg, r.taps[i])
		return err
	})
	for _, w := range r.ws {
		t.Cleanup(func() { w.Close() })
	}
	return r
}

// link is how many bytes worker i's interface has sent and received.
func (r *partsRig) link(t *testing.T, i int) (sent, received int64) {
	t.Helper()
	err := r.spaces[i].Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		s := l.Attrs().Statistics
		sent, received = int64(s.TxBytes), int64(s.RxBytes)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent, received
}

// What a collective over parts moves, over AF_XDP: results are exact, and each message, also one that is sent again because the
// machine is busy, has values only where its worker gives some, or takes some.
func TestPartsOverAFXDP(t *testing.T) {
	const elements, slots = 256, 32
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d workers", n), func(t *testing.T) {
			job := dataplane.JobSpec{Name: "j", Protocol: dataplane.ProtocolNative, Workers: n, Elements: elements, Slots: slots, Native: &dataplane.NativeSpec{Type: aggregation.Int32, Deadline: time.Minute}}
			r := newPartsRig(t, job)
			p := &partsCheck{t: t, r: r, n: n, elements: elements}
			// A part within a packet, packets with ends of two parts, whole packets, windows that are used again and again.
			for _, part := range []int{1, 100, elements, 3*elements + 17, 20 * elements, 40*elements - 1} {
				p.scatter(part)
				p.gather(part)
			}
			p.bytes(job.Name)
		})
	}
}

// partsCheck runs collectives and compares what passed with what the definition says.
type partsCheck struct {
	t           *testing.T
	r           *partsRig
	n, elements int
	chunk       int     // the next call's first
	up, down    []int64 // bytes that the calls cannot do without
}

func (p *partsCheck) scatter(part int) {
	in, out := make([][]int32, p.n), make([][]int32, p.n)
	for i := range in {
		in[i], out[i] = random[int32](uint64(i+part), p.n*part), make([]int32, part)
	}
	each(p.t, p.n, func(ctx context.Context, i int) error {
		_, err := ReduceScatter(ctx, p.r.ws[i], out[i], in[i])
		return err
	})
	for i := range out {
		want := make([]int32, part)
		for _, v := range in {
			for k := range want {
				want[k] += v[i*part+k]
			}
		}
		if !slices.Equal(out[i], want) {
			p.t.Errorf("reduce-scatter of parts of %d: rank %d has not the sum", part, i)
		}
	}
	p.passed("reduce-scatter", part, func(int, int) bool { return true }, p.owns(part))
}

func (p *partsCheck) gather(part int) {
	all, out := random[int32](uint64(part), p.n*part), make([][]int32, p.n)
	each(p.t, p.n, func(ctx context.Context, i int) error {
		out[i] = make([]int32, p.n*part)
		_, err := AllGather(ctx, p.r.ws[i], out[i], all[i*part:(i+1)*part])
		return err
	})
	for i := range out {
		if !slices.Equal(out[i], all) {
			p.t.Errorf("all-gather of parts of %d: rank %d has not all", part, i)
		}
	}
	p.passed("all-gather", part, p.owns(part), func(int, int) bool { return true })
}

// owns reports whether a chunk has some of a rank's part.
func (p *partsCheck) owns(part int) func(rank, chunk int) bool {
	return func(rank, chunk int) bool {
		return max(chunk*p.elements, rank*part) < min((chunk+1)*p.elements, (rank+1)*part)
	}
}

// passed judges all contributions and results of the call that has ended.
func (p *partsCheck) passed(what string, part int, gives, takes func(rank, chunk int) bool) {
	p.t.Helper()
	chunks := (p.n*part + p.elements - 1) / p.elements
	if p.up == nil {
		p.up, p.down = make([]int64, p.n), make([]int64, p.n)
	}
	size := func(values bool) int {
		if values {
			return 4 * p.elements
		}
		return 0
	}
	for i, tap := range p.r.taps {
		first, got := make([]int, chunks), make([]int, chunks)
		tap.mu.Lock()
		all := tap.all
		tap.all = nil
		tap.mu.Unlock()
		for _, m := range all {
			k := m.chunk - p.chunk
			if m.kind != wire.Contribution && m.kind != wire.Result || k < 0 { // a result of an earlier call, once more
				continue
			}
			if k >= chunks {
				p.t.Fatalf("%s of parts of %d: a message of chunk %d of %d", what, part, k, chunks)
			}
			values := takes(i, k)
			if m.kind == wire.Contribution {
				values = gives(i, k)
				if m.flags&wire.FlagResend == 0 {
					first[k]++
				}
				if m.flags&wire.FlagNoValues == 0 != takes(i, k) {
					p.t.Errorf("%s of parts of %d: rank %d contributes to chunk %d with flags %v", what, part, i, k, m.flags)
				}
			} else {
				got[k]++
			}
			if m.payload != size(values) {
				p.t.Errorf("%s of parts of %d: rank %d, chunk %d: a %v with %d bytes, want %d", what, part, i, k, m.kind, m.payload, size(values))
			}
		}
		for k := range chunks {
			if first[k] != 1 || got[k] == 0 {
				p.t.Errorf("%s of parts of %d: rank %d contributes %d times to chunk %d, and gets %d results", what, part, i, first[k], k, got[k])
			}
			p.up[i] += int64(wire.FrameLen(size(gives(i, k))))
			p.down[i] += int64(wire.FrameLen(size(takes(i, k))))
		}
	}
	p.chunk += chunks
	if p.t.Failed() {
		p.t.FailNow()
	}
}

// bytes compares the counters of the workers' interfaces with what passed their sockets: that was no illusion. Results that were
// sent again may have been lost on the way.
func (p *partsCheck) bytes(job string) {
	const others = 16 << 10 // ARP, notices
	for i, tap := range p.r.taps {
		sent, received := p.r.link(p.t, i)
		st, err := p.r.nic.Job(job)
		if err != nil {
			p.t.Fatal(err)
		}
		tap.mu.Lock()
		up := tap.sent
		tap.mu.Unlock()
		if sent > up+others || sent < p.up[i]/2 {
			p.t.Errorf("rank %d: its interface sent %d bytes, its socket %d, of which %d had to be", i, sent, up, p.up[i])
		}
		if again := int64(st.Status[i].Resent) * int64(wire.FrameLen(4*p.elements)); received > p.down[i]+again+others || received < p.down[i] {
			p.t.Errorf("rank %d: its interface received %d bytes; %d had to be, and %d of results once more", i, received, p.down[i], again)
		}
		p.t.Logf("rank %d: %d bytes up (%d had to be), %d down (%d)", i, sent, p.up[i], received, p.down[i])
	}
}
