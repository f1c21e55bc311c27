package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/internal/netlab"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the rig's virtual NIC, and of the workers that the generator plays: worker w is 10.50.0.(w+1),
// 02:00:00:00:(w+1):00, as in the recorded SwitchML sessions.
var (
	NICMAC = [6]byte{0x06, 0, 0, 0, 0, 0xfe}
	NICIP  = [4]byte{10, 50, 0, 254}
)

const (
	genIface = "gen0"
	devIface = "dev0"
	// The device's netdev has an address of its own beside the virtual NIC's, for the peers that use the kernel's
	// stack; frames for them carry its MAC and this address.
	kernelIP = "10.50.0.253"
	udpPort  = 0xBEE0
	// mostCPUs is how many a set of CPUs can have.
	mostCPUs = 1024
)

// Rig is a veth pair between two namespaces: the generator's, on one CPU, and the device under test's, on the other.
type Rig struct {
	lab      *netlab.Lab
	gen, dev *netlab.NS
	genIndex int
	devIndex int
	devMAC   net.HardwareAddr
	genCPU   int
	devCPU   int
	runs     int // trials so far

	quiet *quiet // nil: turns count as they come
}

// NewRig makes the namespaces and the link. It needs root.
func NewRig() (*Rig, error) {
	genCPU, devCPU, err := twoCPUs()
	if err != nil {
		return nil, err
	}
	lab, err := netlab.New("gnbench")
	if err != nil {
		return nil, err
	}
	r := &Rig{lab: lab, genCPU: genCPU, devCPU: devCPU}
	if err := r.link(); err != nil {
		return nil, errors.Join(err, lab.Close())
	}
	return r, nil
}

func (r *Rig) link() (err error) {
	if r.gen, err = r.lab.Namespace("gen"); err != nil {
		return err
	}
	if r.dev, err = r.lab.Namespace("dev"); err != nil {
		return err
	}
	err = r.lab.Veth(
		netlab.End{NS: r.gen, Name: genIface, Addr: "10.50.0.1/24"},
		netlab.End{NS: r.dev, Name: devIface, Addr: kernelIP + "/24"},
	)
	if err != nil {
		return err
	}
	if r.genIndex, _, err = r.gen.Interface(genIface); err != nil {
		return err
	}
	if r.devIndex, r.devMAC, err = r.dev.Interface(devIface); err != nil {
		return err
	}
	// The generator's end answers no ARP: what the device's kernel sends back needs the address beforehand.
	err = r.dev.Netlink().NeighAdd(&netlink.Neigh{
		LinkIndex: r.devIndex, State: netlink.NUD_PERMANENT,
		IP: net.IPv4(10, 50, 0, 1), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 1, 0},
	})
	if err != nil {
		return fmt.Errorf("neighbour entry of the generator: %w", err)
	}
	return nil
}

// Close removes the link and the namespaces.
func (r *Rig) Close() error { return r.lab.Close() }

// target is the device's end as peers see it.
func (r *Rig) target(task peers.Task) peers.Target {
	return peers.Target{Interface: devIface, IfIndex: r.devIndex, CPU: r.devCPU, Task: task}
}

// Frame builds a UDP datagram as an Ethernet frame of size bytes for the virtual NIC, or with toKernel for the
// device's kernel. Room for the SwitchML header is there and, with elements 64 or 256, its first bytes are.
func (r *Rig) Frame(size int, toKernel bool) []byte {
	f := make([]byte, size)
	copy(f, NICMAC[:])
	copy(f[6:], []byte{0x02, 0, 0, 0, 1, 0, 0x08, 0x00})
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	copy(ip[12:], []byte{10, 50, 0, 1})
	copy(ip[16:], NICIP[:])
	if toKernel {
		copy(f, r.devMAC)
		copy(ip[16:], net.ParseIP(kernelIP).To4())
	}
	udp := f[34:]
	binary.BigEndian.PutUint16(udp, 4000)
	binary.BigEndian.PutUint16(udp[2:], udpPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(size-34))
	// Message type 1 and the size code of SwitchML's UDP header; frames of other sizes carry no such header.
	switch size {
	case 308:
		f[42] = 0x11
	case 1076:
		f[42] = 0x13
	}
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:20]))
	return f
}

func checksum(h []byte) uint16 {
	var s uint32
	for i := 0; i < len(h); i += 2 {
		s += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	s = s&0xffff + s>>16
	return ^uint16(s&0xffff + s>>16)
}

// Run is what one run of one contestant showed.
type Run struct {
	Offered  uint64        // frames that the generator made
	Received uint64        // frames that reached the contestant
	Returned uint64        // frames that came back to the generator's netdev
	Elapsed  time.Duration // how long the generator ran
	// Undisturbed is what the generator offered in Mpps when nobody had half of a core: the 90th percentile over the slices of a
	// run in slices, else 0.
	Undisturbed float64
	// Back is what came back in Mpps when nobody had half of a core: the 90th percentile over parts of the run.
	Back float64
}

// partLength is how long the parts of a run are that are looked at: on a busy host a core was the guest's own for 26 ms at a time.
const partLength = 15 * time.Millisecond

// undisturbed is the rate in Mpps at which the n of the offered frames came that somebody took, when the run was least disturbed. Of who is
// overrun it says too much, since the share is that of the whole run.
func (r Run) undisturbed(n uint64) float64 {
	if r.Offered == 0 {
		return 0
	}
	return r.Undisturbed * float64(n) / float64(r.Offered)
}

// Mpps is the rate of n frames in million a second.
func (r Run) Mpps(n uint64) float64 { return float64(n) / r.Elapsed.Seconds() / 1e6 }

// back is what came back in Mpps, when the run was least disturbed; of a run too short to look at parts of it, over all of it.
func (r Run) back() float64 {
	if r.Back > 0 {
		return r.Back
	}
	return r.Mpps(r.Returned)
}

// sender is what sends frames back on the device's end. On a veth it decides how they come to the generator, and so how
// they are counted: see gen.Options.SKBs.
type sender uint8

const (
	socket     sender = iota // of any kind: sk_buffs come
	xdpProgram               // frames come without them
)

// drive runs the generator against what is at work on the device's end, which sends back by means of from. Counts of the
// receiver are the caller's.
func (r *Rig) drive(from sender, opts gen.Options, d time.Duration) (run Run, err error) {
	return r.generate(from, opts, func(g *gen.Generator, run *Run) (err error) {
		back := watchReturns(g)
		run.Offered, run.Elapsed, err = g.Run(d)
		run.Back = back()
		return err
	})
}

// watchReturns looks at what has come back every partLength or so while a generator runs, and says in the end at what rate in Mpps it did,
// as the 90th percentile of what it was from look to look. Rings do not matter: they are full from the first look on.
func watchReturns(g *gen.Generator) (rate func() float64) {
	done, rates := make(chan struct{}), make(chan []float64, 1)
	go func() {
		var all []float64
		last, at := uint64(0), time.Time{}
		tick := time.NewTicker(partLength)
		defer tick.Stop()
		for {
			select {
			case <-done:
				rates <- all
				return
			case <-tick.C:
			}
			n, err := g.Returned()
			now := time.Now()
			// Looks that the scheduler has brought close together say little.
			if d := now.Sub(at); err == nil && (at.IsZero() || d >= partLength/2) {
				if !at.IsZero() {
					all = append(all, float64(n-last)/d.Seconds()/1e6)
				}
				last, at = n, now
			}
		}
	}()
	return func() float64 {
		close(done)
		return percentile90(<-rates)
	}
}

// percentile90 of some rates; 0 of none.
func percentile90(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	slices.Sort(rates)
	return rates[len(rates)*9/10]
}

// driveSlices is drive in slices, which are about as long as d in all.
func (r *Rig) driveSlices(from sender, opts gen.Options, d time.Duration) (run Run, err error) {
	return r.generate(from, opts, func(g *gen.Generator, run *Run) error {
		all, err := g.RunSlices(max(3, int(d/partLength)), partLength)
		if err != nil {
			return err
		}
		var rates []float64
		for _, s := range all {
			run.Offered, run.Elapsed = run.Offered+s.Offered, run.Elapsed+s.Elapsed
			rates = append(rates, float64(s.Offered)/s.Elapsed.Seconds()/1e6)
		}
		run.Undisturbed = percentile90(rates)
		return nil
	})
}

func (r *Rig) generate(from sender, opts gen.Options, send func(*gen.Generator, *Run) error) (run Run, err error) {
	opts.IfIndex, opts.SKBs = r.genIndex, from == socket
	err = r.gen.Do(func() error {
		restore, err := gen.Pin(r.genCPU)
		if err != nil {
			return err
		}
		defer restore()
		g, err := gen.Open(opts)
		if err != nil {
			return err
		}
		defer g.Close()
		if err := send(g, &run); err != nil {
			return err
		}
		// What is still in rings and softirq comes home before the counters are read.
		time.Sleep(20 * time.Millisecond)
		run.Returned, err = g.Returned()
		return err
	})
	return run, err
}

// cpus tells whether there are the two that a run needs: one that generates and one that receives.
func cpus() error {
	_, _, err := twoCPUs()
	return err
}

// twoCPUs are the first two that this process may use: in a container, or under taskset, they need not be 0 and 1.
func twoCPUs() (generator, device int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, fmt.Errorf("the CPUs that this process may use: %w", err)
	}
	two := firstTwo(&set)
	if two == nil {
		return 0, 0, fmt.Errorf("a generator and a device need a CPU each: this process may use %d", set.Count())
	}
	return two[0], two[1], nil
}

// firstTwo are the first two of a set; nil when it has fewer.
func firstTwo(set *unix.CPUSet) (two []int) {
	for cpu := 0; cpu < mostCPUs && len(two) < 2; cpu++ {
		if set.IsSet(cpu) {
			two = append(two, cpu)
		}
	}
	if len(two) < 2 {
		return nil
	}
	return two
}
