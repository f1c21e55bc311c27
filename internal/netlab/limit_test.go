package netlab_test

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
)

const limit = 40e6 // bits per second

// limitedPair makes two namespaces 10.50.0.1 and 10.50.0.2 over a limited link, and a socket that listens on the second.
func limitedPair(t *testing.T) (a, b *netlab.NS) {
	t.Helper()
	lab := netlabtest.New(t, "netlabt")
	a, b = netlabtest.Namespace(t, lab, "a"), netlabtest.Namespace(t, lab, "b")
	if err := lab.LimitedVeth(
		netlab.End{NS: a, Name: "va", MAC: "02:00:00:00:00:0a", Addr: "10.50.0.1/24"},
		netlab.End{NS: b, Name: "vb", MAC: "02:00:00:00:00:0b", Addr: "10.50.0.2/24"}, limit); err != nil {
		t.Fatal(err)
	}
	var sink *net.UDPConn
	if err := b.Do(func() (err error) {
		sink, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 7000})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	if err := ping(a, "10.50.0.2"); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// overrun is a socket's buffer that is larger than the link's queue: with a smaller one the socket waits for the link, and sends what
// that carries.
const overrun = 4 << 20

// wantRate sends through a link and wants what comes to be near its limit. Others use this machine too: what they made
// slower, or let come late, is measured again.
func wantRate(t *testing.T, to *netlab.NS, send func() error) {
	t.Helper()
	for range 8 {
		if bits, filled := rateOf(t, to, send); filled && bits <= 1.05*limit && bits >= 0.7*limit {
			return
		}
	}
	t.Errorf("not once came 0.7 to 1.05 of %.1f Mbit/s through", limit/1e6)
}

// received is how many bytes of frames have come to the link's end in a namespace.
func received(t *testing.T, ns *netlab.NS) uint64 {
	t.Helper()
	link, err := ns.Netlink().LinkByName("vb")
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Statistics.RxBytes
}

// rateOf counts what arrives in a namespace while send fills the link: bits of Ethernet frames per second, over a window that
// begins after the bucket and the queue have filled. It tells whether the sender did fill it.
func rateOf(t *testing.T, to *netlab.NS, send func() error) (bits float64, filled bool) {
	t.Helper()
	stop := make(chan struct{})
	sent := make(chan int)
	go func() {
		n := 0
		defer func() { sent <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := send(); err != nil && err != unix.ENOBUFS {
				t.Errorf("send: %v", err)
				return
			}
			n++
		}
	}()
	// Counted at the link's end: a socket whose reader does not get the CPU drops.
	time.Sleep(300 * time.Millisecond)
	begin, before := time.Now(), received(t, to)
	time.Sleep(700 * time.Millisecond)
	took, bytes := time.Since(begin), received(t, to)-before
	close(stop)
	offered := <-sent
	bits = float64(bytes) * 8 / took.Seconds()
	t.Logf("%d packets offered in 1 s, %.1f Mbit/s came through a link of %.1f Mbit/s", offered, bits/1e6, limit/1e6)
	return bits, float64(offered)*(1400+42)*8 >= 1.3*limit
}

func TestLimitedVethLimitsASocket(t *testing.T) {
	a, b := limitedPair(t)
	var source *net.UDPConn
	if err := a.Do(func() (err error) {
		source, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 50, 0, 2), Port: 7000})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if err := source.SetWriteBuffer(overrun); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 1400)
	wantRate(t, b, func() error { _, err := source.Write(payload); return err })
}

// TestLimitedVethLimitsPastTheQdisc sends as AF_XDP in copy mode does: straight to the driver, past the sender's qdisc.
func TestLimitedVethLimitsPastTheQdisc(t *testing.T) {
	a, b := limitedPair(t)
	index, _, err := a.Interface("va")
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := a.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, overrun); err != nil {
		t.Fatal(err)
	}
	frame := udpFrame(1400)
	to := &unix.SockaddrLinklayer{Ifindex: index, Protocol: 0x0008, Halen: 6, Addr: [8]byte{2, 0, 0, 0, 0, 0x0b}}
	wantRate(t, b, func() error { return unix.Sendto(fd, frame, 0, to) })
}

// udpFrame builds a frame from 10.50.0.1 to port 7000 of 10.50.0.2, without UDP checksum.
func udpFrame(payload int) []byte {
	f := make([]byte, 42+payload)
	copy(f, []byte{2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 8, 0})
	ip := f[14:34]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 50, 0, 1, 10, 50, 0, 2})
	binary.BigEndian.PutUint16(ip[2:], uint16(28+payload))
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(f[34:], 7001)
	binary.BigEndian.PutUint16(f[36:], 7000)
	binary.BigEndian.PutUint16(f[38:], uint16(8+payload))
	return f
}
