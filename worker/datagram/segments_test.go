package datagram

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// sized are frames with payloads of these lengths, all bytes of which tell the frame and the place in it.
func sized(lens ...int) [][]byte {
	frames := make([][]byte, len(lens))
	for i, n := range lens {
		frames[i] = make([]byte, inet.PayloadOffset+n)
		for k := range n {
			frames[i][inet.PayloadOffset+k] = byte(31*i + k)
		}
	}
	return frames
}

func same(n, size int) []int {
	lens := make([]int, n)
	for i := range lens {
		lens[i] = size
	}
	return lens
}

// What arrives is what was given, datagram for datagram, with and without segmentation.
func TestSegmentsArriveAsDatagrams(t *testing.T) {
	mixed := make([]int, 150)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range mixed {
		mixed[i] = []int{0, 1, 700, 700, 700, 1400, 1400}[rng.IntN(7)]
	}
	for name, lens := range map[string][]int{
		"one":                {1000},
		"equal":              same(20, 1000),
		"short tail":         append(same(20, 1000), 7),
		"empty tail":         append(same(3, 1000), 0),
		"longer in between":  append(same(5, 100), append(same(3, 1400), same(4, 100)...)...),
		"more than Burst":    same(2*Burst+3, 50),
		"empty":              same(3, 0),
		"longer than 16 KiB": {30000, 30000, 30000},
		"mixed":              mixed,
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, plain %v", name, plain), func(t *testing.T) {
				u, nic := pair(t, 100)
				if !plain {
					segment(t, u)
				}
				if err := nic.SetReadBuffer(1 << 20); err != nil {
					t.Fatal(err)
				}
				frames := sized(lens...)
				if err := u.Send(frames); err != nil {
					t.Fatal(err)
				}
				wantPayloads(t, nic, frames)
				if u.out.segments == plain || u.Faults().Socket != 0 {
					t.Errorf("segments are now %v, faults %+v", u.out.segments, u.Faults())
				}
			})
		}
	}
}

func segment(t *testing.T, u *UDP) {
	t.Helper()
	if ok, err := u.Segment(); err != nil || !ok {
		t.Fatalf("UDP_SEGMENT: %v, %v", ok, err)
	}
}

func wantPayloads(t *testing.T, nic *net.UDPConn, frames [][]byte) {
	t.Helper()
	buf := make([]byte, 1<<16)
	for i, f := range frames {
		_ = nic.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := nic.Read(buf)
		if err != nil && !(errors.Is(err, io.EOF) && n == 0) || !bytes.Equal(buf[:n], f[inet.PayloadOffset:]) {
			t.Fatalf("datagram %d of %d: %d bytes, want %d: %v", i, len(frames), n, len(f)-inet.PayloadOffset, err)
		}
	}
	_ = nic.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := nic.Read(buf); err == nil {
		t.Fatalf("a datagram of %d bytes more", n)
	}
}

// The layout that the wire does not show: how many datagrams each message has.
func TestPack(t *testing.T) {
	for _, tt := range []struct {
		lens []int
		want []int
	}{
		{[]int{5}, []int{1}},
		{same(Burst, 100), []int{Burst}},
		{same(25, 1428), []int{10, 10, 5}}, // 10 are 14280 bytes
		{[]int{9, 9, 4, 9, 9}, []int{3, 2}},
		{[]int{9, 9, 4, 4, 10}, []int{3, 1, 1}},
		{[]int{9, 0, 0, 9, 8, 7}, []int{1, 1, 1, 2, 1}},
		{same(14, 8944), []int{6, 6, 2}}, // 6 are 53664 bytes
	} {
		p := newPacker()
		p.segments = true
		frames := sized(tt.lens...)
		var got []int
		i := 0
		for _, m := range p.pack(frames) {
			got = append(got, len(m.Buffers))
			cms, err := unix.ParseSocketControlMessage(m.OOB)
			if err != nil || len(cms) != min(len(m.Buffers)-1, 1) {
				t.Errorf("%v: control messages %v, %v", tt.lens, cms, err)
			}
			for _, c := range cms {
				if int(c.Header.Level) != unix.SOL_UDP || int(c.Header.Type) != unix.UDP_SEGMENT || len(c.Data) != 2 {
					t.Errorf("%v: control message %+v", tt.lens, c)
				}
			}
			for _, b := range m.Buffers {
				if !bytes.Equal(b, frames[i][inet.PayloadOffset:]) {
					t.Errorf("%v: datagram %d is another", tt.lens, i)
				}
				i++
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) || i != len(frames) {
			t.Errorf("%v: %v datagrams a message, want %v", tt.lens, got, tt.want)
		}
		p.segments = false
		for _, m := range p.pack(frames) {
			if len(m.Buffers) != 1 || m.OOB != nil {
				t.Errorf("%v: %d datagrams in a plain message", tt.lens, len(m.Buffers))
			}
		}
	}
}

// A socket that sends no checksums may not segment (the kernel says EINVAL): the datagrams go one by one from then on, and
// none is lost.
func TestSegmentsRefused(t *testing.T) {
	u, nic := pair(t, 100)
	segment(t, u)
	raw, err := u.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	frames := sized(50, 60, 60, 60, 90, 70, 70)
	if err := u.Send(frames); err != nil {
		t.Fatal(err)
	}
	wantPayloads(t, nic, frames)
	if u.out.segments || u.Faults().Socket != 0 {
		t.Errorf("segments %v, %+v", u.out.segments, u.Faults())
	}
}

func TestSendAllocatesNothing(t *testing.T) {
	u, nic := pair(t, 100)
	segment(t, u)
	frames := sized(append(same(20, 1000), 7)...)
	buf := make([]byte, 2000)
	if n := testing.AllocsPerRun(200, func() {
		if err := u.Send(frames); err != nil {
			t.Fatal(err)
		}
		for range frames {
			if _, err := nic.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
	}); n > 3 { // x/net's, a call
		t.Errorf("%.1f allocations for %d datagrams", n, len(frames))
	}
}
