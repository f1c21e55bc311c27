package xdp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"gradnic/internal/netlab/netlabtest"
)

const (
	xdpPass     = 2
	xdpRedirect = 4
)

// judge runs the program in the kernel on one frame and returns its action and the
// one verdict that it counted.
func judge(t *testing.T, st *Steering, frame []byte) (action uint32, v Verdict) {
	t.Helper()
	before, err := st.Counters()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, len(frame)+256)
	run := ebpf.RunOptions{Data: frame, DataOut: out}
	if action, err = st.program.Run(&run); err != nil {
		t.Fatalf("test run of %d bytes: %v", len(frame), err)
	}
	after, err := st.Counters()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for i := range after {
		if d := after[i] - before[i]; d != 0 {
			v = Verdict(i)
			counted += int(d)
		}
	}
	if counted != 1 {
		t.Fatalf("%d verdicts for one frame", counted)
	}
	if v != Reflected && !slices.Equal(run.DataOut, frame) {
		t.Errorf("the program changed the frame")
	}
	return action, v
}

// The three frames that mutations start from: UDP, ARP request and ICMP echo
// request, all for the NIC.
func arpFrame() []byte {
	f := make([]byte, 60)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1})
	copy(f[22:], []byte{2, 0, 0, 0, 0, 9, 10, 50, 0, 9})
	copy(f[38:], nicIP[:])
	return f
}

func echoFrame() []byte {
	f := udpFrame(0, 56)
	f[23] = 1
	copy(f[34:], []byte{8, 0, 0, 0, 0, 1, 0, 1})
	return f
}

func set(at int, b ...byte) func([]byte) []byte {
	return func(f []byte) []byte { copy(f[at:], b); return f }
}

func cut(n int) func([]byte) []byte { return func(f []byte) []byte { return f[:n] } }

// tag pushes tags of 4 bytes in front of the ethertype.
func tag(tags ...uint32) func([]byte) []byte {
	return func(f []byte) []byte {
		out := slices.Clone(f[:12])
		for _, x := range tags {
			out = binary.BigEndian.AppendUint32(out, x)
		}
		return append(out, f[12:]...)
	}
}

func both(fs ...func([]byte) []byte) func([]byte) []byte {
	return func(f []byte) []byte {
		for _, g := range fs {
			f = g(f)
		}
		return f
	}
}

// options makes the header six words long; the word lies where the ports would be,
// and spells ours.
func options(f []byte) []byte {
	f[14] = 0x46
	binary.BigEndian.PutUint16(f[16:], binary.BigEndian.Uint16(f[16:])+4)
	return slices.Insert(f, 34, 0x0f, 0xa0, 0xbe, 0xe0)
}

func ipv6Frame() []byte {
	f := make([]byte, 14+40+8+64)
	copy(f, nicMAC[:])
	copy(f[6:], []byte{2, 0, 0, 0, 0, 9, 0x86, 0xdd, 0x60})
	binary.BigEndian.PutUint16(f[18:], 72)
	f[20], f[21] = 17, 64
	binary.BigEndian.PutUint16(f[56:], 0xbee0)
	return f
}

// The verdict table: one base frame, one mutation, one verdict.
var verdictTable = []struct {
	name   string
	base   func() []byte
	mutate func([]byte) []byte
	want   Verdict
}{
	{"udp", udp, nil, TakenUDP},
	{"udp, last port of the range", udp, set(36, 0xbe, 0xef), TakenUDP},
	{"udp, port above the range", udp, set(36, 0xbe, 0xf0), PassPort},
	{"udp, port below the range", udp, set(36, 0xbe, 0xdf), PassPort},
	{"udp, port with its bytes swapped", udp, set(36, 0xe0, 0xbe), PassPort},
	{"udp, source port ours only", udp, set(34, 0xbe, 0xe0, 0x0f, 0xa0), PassPort},
	{"udp, a single port far away", udp, set(36, 0xff, 0xff), TakenUDP},
	{"udp, port 0", udp, set(36, 0, 0), PassPort},
	{"udp, to another MAC", udp, set(5, 2), PassOther},
	{"udp, to the broadcast MAC", udp, set(0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), PassOther},
	{"udp, to another IP", udp, set(33, 2), PassOther},
	{"udp, from our address", udp, set(26, 10, 50, 0, 1), TakenUDP},
	{"udp, bad checksums", udp, set(24, 0xde, 0xad), TakenUDP},
	{"udp, congestion experienced", udp, set(15, 3), TakenUDP},
	{"udp, don't fragment", udp, set(20, 0x40, 0), TakenUDP},
	{"udp, first fragment", udp, set(20, 0x20, 0), PassFragment},
	{"udp, later fragment", udp, set(20, 0, 1), PassFragment},
	{"udp, later fragment, highest offset bit", udp, set(20, 0x10, 0), PassFragment},
	{"udp, reserved bit of the fragment field", udp, set(20, 0x80, 0), TakenUDP},
	{"udp, later fragment with more to come", udp, set(20, 0x3f, 0xff), PassFragment},
	{"udp, first fragment to another IP", udp, both(set(20, 0x20, 0), set(33, 2)), PassOther},
	{"udp, options that spell our port", udp, options, PassOptions},
	{"udp, options to another IP", udp, both(options, set(33, 2)), PassOther},
	{"udp, header length 4 words", udp, set(14, 0x44), PassShort},
	{"udp, header length 0", udp, set(14, 0x40), PassShort},
	{"udp, IP version 6 in an IPv4 ethertype", udp, set(14, 0x65), PassShort},
	{"udp, IPv4 length above the frame", udp, set(16, 0xff, 0xff), TakenUDP},
	{"vlan 0x0102", udp, tag(0x81000102), PassTagged},
	{"vlan 0x0201", udp, tag(0x81000201), PassTagged},
	{"vlan 0x0102, priority 7", udp, tag(0x8100e102), PassTagged},
	{"priority tag", udp, tag(0x81000000), PassTagged},
	{"qinq", udp, tag(0x88a80102, 0x81000201), PassTagged},
	{"qinq, old ethertype", udp, tag(0x91000102, 0x81000201), PassTagged},
	{"vlan with nothing behind", udp, both(tag(0x81000102), cut(18)), PassTagged},
	{"ipv6", ipv6Frame, nil, PassIPv6},
	{"ipv6, short", ipv6Frame, cut(20), PassIPv6},
	{"tcp to us", udp, set(23, 6), PassProtocol},
	{"igmp to us", udp, set(23, 2), PassProtocol},
	{"udp lite to us", udp, set(23, 136), PassProtocol},
	{"lldp", udp, set(12, 0x88, 0xcc), PassEtherType},
	{"length field of 802.3", udp, set(12, 0, 46), PassEtherType},
	{"arp", arpFrame, nil, TakenARP},
	{"arp, unicast to us", arpFrame, set(0, nicMAC[:]...), TakenARP},
	{"arp, unicast to another", arpFrame, set(0, 2, 0, 0, 0, 0, 8), PassOther},
	{"arp, multicast", arpFrame, set(0, 1, 0, 0x5e, 0, 0, 1), PassOther},
	{"arp for another IP", arpFrame, set(41, 2), PassOther},
	{"arp reply to us", arpFrame, set(21, 2), PassOther},
	{"arp, hardware not Ethernet", arpFrame, set(15, 6), PassOther},
	{"arp, protocol not IPv4", arpFrame, set(16, 0x86, 0xdd), PassOther},
	{"arp, hardware length 8", arpFrame, set(18, 8), PassOther},
	{"arp, protocol length 16", arpFrame, set(19, 16), PassOther},
	{"arp, no padding", arpFrame, cut(42), TakenARP},
	{"arp, cut", arpFrame, cut(41), PassShort},
	{"arp, tagged", arpFrame, tag(0x81000102), PassTagged},
	{"echo request", echoFrame, nil, TakenEcho},
	{"echo reply", echoFrame, set(34, 0), PassProtocol},
	{"echo request of code 1", echoFrame, set(35, 1), PassProtocol},
	{"unreachable", echoFrame, set(34, 3, 3), PassProtocol},
	{"echo request to another IP", echoFrame, set(33, 9), PassOther},
	{"echo request to another MAC", echoFrame, set(0, 4), PassOther},
	{"echo request, fragment", echoFrame, set(20, 0x20), PassFragment},
	{"echo request, no data", echoFrame, cut(42), TakenEcho},
	{"echo request, cut", echoFrame, cut(41), PassShort},
}

func udp() []byte { return udpFrame(0xbee0, 64) }

// steeringWithSocket loads the program, without an interface, and puts a socket on
// queue 0: that is where test runs arrive.
func steeringWithSocket(t testing.TB, multi bool) *Steering {
	t.Helper()
	netlabtest.NeedRoot(t)
	st, err := loadSteering(multi)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	bindSocket(t, st)
	return st
}

// bindSocket gives queue 0 a socket.
func bindSocket(t testing.TB, st *Steering) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	})
	if err := st.Bind(0, &Socket{fd: fd}); err != nil {
		t.Fatal(err)
	}
}

func TestVerdicts(t *testing.T) { testVerdicts(t, steers) }

// The program that answers by itself judges frames as the other one does.
func TestAnswerVerdicts(t *testing.T) { testVerdicts(t, answers) }

// And so does the one that sums up.
func TestSumVerdicts(t *testing.T) { testVerdicts(t, sums) }

func testVerdicts(t *testing.T, can ability) {
	for _, multi := range []bool{false, true} {
		t.Run(fmt.Sprintf("frags=%t", multi), func(t *testing.T) {
			st := steeringWithSocket(t, multi)
			if err := st.SetAddress(nicMAC, nicIP); err != nil {
				t.Fatal(err)
			}
			if err := st.SetPorts(append(Ports(0xbee0, 0xbeef), 0xffff)); err != nil {
				t.Fatal(err)
			}
			seen := map[Verdict]bool{}
			if can == sums {
				st.sums = newSums(t, 1)
			}
			if err := st.learn(can); err != nil {
				t.Fatal(err)
			}
			check := func(name string, frame []byte, want Verdict) {
				t.Helper()
				action, v := judge(t, st, frame)
				seen[v] = true
				wantAction := uint32(xdpPass)
				switch {
				case want.Taken():
					wantAction = xdpRedirect
				case want == OverBudget || want == Sunk:
					wantAction = xdpDrop
				case want == Reflected:
					wantAction = xdpTx
				}
				if v != want || action != wantAction {
					t.Errorf("%s: %v, action %d; want %v, %d", name, v, action, want, wantAction)
				}
			}
			for _, c := range verdictTable {
				f := c.base()
				if c.mutate != nil {
					f = c.mutate(f)
				}
				check(c.name, f, c.want)
			}
			// Frames cut at every length: as soon as all headers are there, the
			// frame is ours, whatever is missing behind.
			for _, c := range []struct {
				base    func() []byte
				headers int
				want    Verdict
			}{{udp, 42, TakenUDP}, {echoFrame, 42, TakenEcho}, {arpFrame, 42, TakenARP}} {
				for n := 14; n <= len(c.base()); n++ {
					want := c.want
					if n < c.headers {
						want = PassShort
					}
					check(fmt.Sprintf("%v cut at %d", c.want, n), c.base()[:n], want)
				}
			}
			if err := st.SetWholePort(true); err != nil {
				t.Fatal(err)
			}
			for _, f := range [][]byte{udp(), ipv6Frame(), tag(0x81000102)(udp()), options(udp()), arpFrame(), udp()[:14]} {
				check("whole port", f, TakenAll)
			}
			if err := st.SetBudgets(&Budgets{Stray: Budget{Rate: slow, Burst: 1}}); err != nil {
				t.Fatal(err)
			}
			check("whole port, within the budget", ipv6Frame(), TakenAll)
			check("whole port, over the budget", ipv6Frame(), OverBudget)
			if err := st.SetBudgets(nil); err != nil {
				t.Fatal(err)
			}
			if err := st.Unbind(0); err != nil {
				t.Fatal(err)
			}
			check("whole port, no socket", ipv6Frame(), Unbound)
			if err := st.SetWholePort(false); err != nil {
				t.Fatal(err)
			}
			check("no socket", udp(), Unbound)
			check("arp, no socket", arpFrame(), Unbound)
			check("echo, no socket", echoFrame(), Unbound)
			check("not ours, no socket", ipv6Frame(), PassIPv6)
			for answer, want := range map[Answer]Verdict{SinkHere: Sunk, ReflectHere: Reflected} {
				if can != answers {
					seen[want] = true
					continue
				}
				if err := st.SetAnswer(answer, true); err != nil {
					t.Fatal(err)
				}
				check("answered here, UDP", udp(), want)
				check("answered here, ARP", arpFrame(), want)
				check("answered here, not ours", ipv6Frame(), PassIPv6)
			}
			if err := st.SetAnswer(ToSocket, false); err != nil {
				t.Fatal(err)
			}
			check("not answered here any more", udp(), Unbound)
			seen[Summed], seen[Repeated] = true, true // TestSumRule has them
			for v := Verdict(0); v < NumVerdicts; v++ {
				if !seen[v] {
					t.Errorf("no frame had the verdict %v", v)
				}
			}
		})
	}
}

// Before an address is set nothing is taken, not even a frame to the zero address.
func TestNothingIsTakenAtFirst(t *testing.T) {
	st := steeringWithSocket(t, false)
	for _, f := range [][]byte{udp(), arpFrame(), make([]byte, 60), set(0, 0, 0, 0, 0, 0, 0)(set(30, 0, 0, 0, 0)(udp()))} {
		if action, v := judge(t, st, f); action != xdpPass || v != PassOther {
			t.Errorf("action %d, %v", action, v)
		}
	}
	if err := st.SetAddress(nicMAC, nicIP); err != nil {
		t.Fatal(err)
	}
	if _, v := judge(t, st, udp()); v != PassPort {
		t.Errorf("without ports: %v", v)
	}
}

// Every port can be served alone, and is given up again.
func TestPorts(t *testing.T) {
	st := steeringWithSocket(t, false)
	if err := st.SetAddress(nicMAC, nicIP); err != nil {
		t.Fatal(err)
	}
	for _, p := range []uint16{0, 1, 63, 64, 65, 4791, 0x7fff, 0x8000, 65535} {
		if err := st.SetPorts([]uint16{p}); err != nil {
			t.Fatal(err)
		}
		for _, near := range []uint16{p, p + 1, p - 1, p + 64, p ^ 32, p ^ 0x8000} {
			want := PassPort
			if near == p {
				want = TakenUDP
			}
			if _, v := judge(t, st, udpFrame(near, 64)); v != want {
				t.Errorf("port %d served, frame to %d: %v", p, near, v)
			}
		}
	}
	if got := Ports(65534, 65535); !slices.Equal(got, []uint16{65534, 65535}) {
		t.Errorf("Ports up to the last: %v", got)
	}
}

func TestBindChecksQueueAndSocket(t *testing.T) {
	st := steeringWithSocket(t, false)
	for _, q := range []int{-1, MaxQueues} {
		if err := st.Bind(q, &Socket{fd: 0, queue: q}); err == nil {
			t.Errorf("queue %d was bound", q)
		}
	}
	if err := st.Bind(1, &Socket{fd: 0, queue: 0}); err == nil {
		t.Error("a socket of queue 0 was bound to queue 1")
	}
	if err := st.Bind(1, &Socket{fd: -1, queue: 1}); err == nil {
		t.Error("a closed socket was bound")
	}
	if err := st.Unbind(5); err != nil {
		t.Errorf("unbind of a queue without socket: %v", err)
	}
	runtime.KeepAlive(st)
}
