package isolation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"gradnic/aggregation"
	"gradnic/bench/gen"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
	"gradnic/worker/native"
)

var (
	nicMAC = inet.MAC{0x06, 0, 0, 0, 0, 0xfe}
	nicIP  = inet.Addr{10, 60, 0, 254}
)

const (
	workers  = 2   // of each tenant
	elements = 352 // float32 a packet of A
	slots    = 512
	// floodElements is what a contribution of B has.
	floodElements = 64
)

func workerIP(rank int) inet.Addr { return inet.Addr{10, 60, 0, byte(rank + 1)} }

// floodWorker is a worker of B as the generator makes it: rank is in the fifth byte of the MAC and the last of the IP.
func floodWorker(rank int) dataplane.WorkerSpec {
	return dataplane.WorkerSpec{Rank: rank, MAC: inet.MAC{2, 0, 0, 0, byte(rank + 1), 0x0b}, IP: inet.Addr{10, 70, 0, byte(rank + 1)}, Port: workers}
}

// rig is the NIC with both tenants behind it, and the netdev beside it.
type rig struct {
	lab     *netlab.Lab
	centre  *netlab.NS // the NIC's ports, and the netdev that drops
	spaces  []*netlab.NS
	outside *netlab.NS // where B is: "flood" leads to the NIC, "beside" to the netdev that drops
	nic     *dataplane.NIC
	drop    *gen.Program
	ranks   []*native.Worker
}

func newRig(ctx context.Context, lanes int) (_ *rig, err error) {
	r := &rig{}
	if r.lab, err = netlab.New("isolate"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.centre, err = r.lab.Namespace("centre"); err != nil {
		return nil, err
	}
	if r.outside, err = r.lab.Namespace("outside"); err != nil {
		return nil, err
	}
	var ports []dataplane.PortSpec
	port := func(ns *netlab.NS, far, near, addr string) error {
		if near != "idle" {
			ports = append(ports, dataplane.XDPPort{Interface: near, Namespace: r.centre.Do})
		}
		return r.lab.Veth(netlab.End{NS: ns, Name: far, Addr: addr, Queues: 2}, netlab.End{NS: r.centre, Name: near, Queues: 2})
	}
	for i := range workers {
		ns, err := r.lab.Namespace(fmt.Sprint("w", i))
		if err != nil {
			return nil, err
		}
		r.spaces = append(r.spaces, ns)
		if err := port(ns, "eth0", fmt.Sprint("p", i), workerIP(i).String()+"/24"); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(port(r.outside, "flood", fmt.Sprint("p", workers), ""), port(r.outside, "beside", "idle", "")); err != nil {
		return nil, err
	}
	if err := r.startNIC(ctx, lanes, ports); err != nil {
		return nil, err
	}
	idle, _, err := r.centre.Interface("idle")
	if err != nil {
		return nil, err
	}
	return r, r.centre.Do(func() (err error) {
		r.drop, err = gen.OpenDrop(idle)
		return err
	})
}

// startNIC starts the NIC, installs both tenants' jobs and joins A's workers.
func (r *rig) startNIC(ctx context.Context, lanes int, ports []dataplane.PortSpec) (err error) {
	// Pinned, as in service: else the flood's wakeups decide where a lane runs, and so what it shares its CPU with.
	var cpus []int
	for i := range lanes {
		cpus = append(cpus, i%runtime.NumCPU())
	}
	if r.nic, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, Lanes: lanes, CPUs: cpus}, ports...); err != nil {
		return err
	}
	if err := r.nic.Start(ctx); err != nil {
		return err
	}
	a := dataplane.JobSpec{
		Name: "a", Tenant: "a", Protocol: dataplane.ProtocolNative, Workers: workers, Elements: elements, Slots: slots,
		Native: &dataplane.NativeSpec{Type: aggregation.Float32},
	}
	b := dataplane.JobSpec{Name: "b", Tenant: "b", Workers: workers, Elements: floodElements, Slots: slots}
	for i, ns := range r.spaces {
		_, mac, err := ns.Interface("eth0")
		if err != nil {
			return err
		}
		a.Members = append(a.Members, dataplane.WorkerSpec{Rank: i, MAC: inet.MAC(mac), IP: workerIP(i), Port: i})
		b.Members = append(b.Members, floodWorker(i))
	}
	if err := errors.Join(r.nic.InstallJob(a), r.nic.InstallJob(b)); err != nil {
		return err
	}
	r.ranks = make([]*native.Worker, workers)
	return each(workers, func(i int) (err error) {
		cfg := native.Config{Rank: i, NIC: nicIP, IP: workerIP(i)}
		if err = r.spaces[i].Do(func() (err error) {
			ip := workerIP(i)
			cfg.Conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:]})
			return err
		}); err != nil {
			return err
		}
		r.ranks[i], err = native.Join(ctx, cfg)
		return err
	})
}

// budgets bound B and everybody who is nobody's worker; rate 0: nobody is bounded.
func (r *rig) budgets(rate uint64) error {
	if rate == 0 {
		return r.nic.SetBudgets(nil)
	}
	b := &dataplane.Budgets{Strays: dataplane.Budget{Name: "strays", Rate: rate}}
	for _, name := range []string{"a", "b"} {
		job, err := r.nic.Job(name)
		if err != nil {
			return err
		}
		budget := dataplane.Budget{Name: name}
		if name == "b" {
			budget.Rate = rate
		}
		for _, w := range job.Status {
			budget.Senders = append(budget.Senders, dataplane.Sender{MAC: w.MAC, Port: w.Port})
		}
		b.Named = append(b.Named, budget)
	}
	return r.nic.SetBudgets(b)
}

// Kind is what B sends.
type Kind string

// Kinds of floods.
const (
	Malformed Kind = "malformed" // to the NIC's address and a served port, and no message of any protocol
	Foreign   Kind = "foreign"   // valid contributions of a worker of nobody's job
	Greedy    Kind = "greedy"    // valid contributions to B's own job
)

// Kinds are all kinds.
var Kinds = []Kind{Malformed, Foreign, Greedy}

// options are the generator's for this kind, without its netdev.
func (k Kind) options(rate float64) gen.Options {
	w := floodWorker(0)
	f := make([]byte, switchml.FrameLen(floodElements))
	r := switchml.Request{
		Worker:   switchml.Endpoint{MAC: w.MAC, IP: w.IP, Port: 4000},
		Switch:   switchml.Endpoint{MAC: nicMAC, IP: nicIP, Port: switchml.PortBase},
		Elements: floodElements, Offload: true,
	}
	o := gen.Options{Rate: rate, NoReceiver: true}
	switch k {
	case Foreign:
		r.Worker.MAC[3] = 0x99
	case Greedy:
		o.Workers, o.Slots = workers, slots
	}
	switchml.PutRequest(f, r)
	if k == Malformed {
		f[42] = 0xff // a message type that there is not
	}
	o.Frame = f
	return o
}

// flood sends until the returned function is called, which says how many frames were sent.
func (r *rig) flood(ctx context.Context, iface string, o gen.Options, cpu int) (stop func() (uint64, error), err error) {
	if o.IfIndex, _, err = r.outside.Interface(iface); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	type end struct {
		sent uint64
		err  error
	}
	began, done := make(chan error, 1), make(chan end, 1)
	go func() {
		var e end
		e.err = r.outside.Do(func() error {
			g, err := gen.Open(o)
			began <- err
			if err != nil {
				return err
			}
			restore, err := gen.Pin(cpu)
			if err != nil {
				return errors.Join(err, g.Close())
			}
			defer restore()
			res, err := g.RunPaced(ctx, time.Minute)
			if res != nil {
				e.sent = res.Frames
			}
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return errors.Join(err, g.Close())
		})
		done <- e
	}()
	stop = func() (uint64, error) {
		cancel()
		e := <-done
		return e.sent, e.err
	}
	if err := <-began; err != nil {
		_, _ = stop()
		return nil, err
	}
	return stop, nil
}

func (r *rig) close() error {
	var errs []error
	for _, w := range r.ranks {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	if r.nic != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		errs = append(errs, r.nic.Stop(ctx))
		s := r.nic.Snapshot()
		errs = append(errs, s.Check())
	}
	if r.drop != nil {
		errs = append(errs, r.drop.Close())
	}
	return errors.Join(append(errs, r.lab.Close())...)
}

// each runs f for every rank at once and returns what failed.
func each(n int, f func(rank int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
