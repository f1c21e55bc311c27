package xdp

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// expected is the verdict table of the package documentation, written a second time,
// from the table and not from the C.
func expected(f []byte) Verdict {
	const base, last = 0xbee0, 0xbeef
	switch kind := binary.BigEndian.Uint16(f[12:]); kind {
	case 0x8100, 0x88a8, 0x9100:
		return PassTagged
	case 0x86dd:
		return PassIPv6
	case 0x0806:
		if len(f) < 42 {
			return PassShort
		}
		request := bytes.Equal(f[14:22], []byte{0, 1, 8, 0, 6, 4, 0, 1}) && [4]byte(f[38:42]) == nicIP
		to := [6]byte(f[:6])
		if request && (to == nicMAC || to == [6]byte{255, 255, 255, 255, 255, 255}) {
			return TakenARP
		}
		return PassOther
	case 0x0800:
	default:
		return PassEtherType
	}
	switch {
	case len(f) < 34:
		return PassShort
	case [6]byte(f[:6]) != nicMAC || [4]byte(f[30:34]) != nicIP:
		return PassOther
	case f[14]>>4 != 4 || f[14]&15 < 5:
		return PassShort
	case f[14]&15 > 5:
		return PassOptions
	case binary.BigEndian.Uint16(f[20:])&0x3fff != 0:
		return PassFragment
	case f[23] != 17 && f[23] != 1:
		return PassProtocol
	case len(f) < 42:
		return PassShort
	case f[23] == 1 && f[34] == 8 && f[35] == 0:
		return TakenEcho
	case f[23] == 1:
		return PassProtocol
	}
	if p := binary.BigEndian.Uint16(f[36:]); p >= base && p <= last {
		return TakenUDP
	}
	return PassPort
}

// FuzzVerdict runs the program in the kernel on any bytes and compares its verdict
// with the table's.
func FuzzVerdict(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("loading the steering program needs root")
	}
	for _, c := range verdictTable {
		frame := c.base()
		if c.mutate != nil {
			frame = c.mutate(frame)
		}
		f.Add(frame)
	}
	st, err := loadSteering(false)
	if err != nil {
		f.Fatal(err)
	}
	defer st.Close()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	defer unix.Close(fd)
	for _, err := range []error{st.Bind(0, &Socket{fd: fd}), st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef))} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 1500 {
			return // a test run takes nothing below an Ethernet header
		}
		before, err := st.Counters()
		if err != nil {
			t.Fatal(err)
		}
		action, err := st.program.Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			t.Fatal(err)
		}
		after, err := st.Counters()
		if err != nil {
			t.Fatal(err)
		}
		want := expected(frame)
		wantAction := uint32(xdpPass)
		if want.Taken() {
			wantAction = xdpRedirect
		}
		before[want]++
		if after != before || action != wantAction {
			t.Errorf("action %d, counters %v, want %v", action, after, want)
		}
	})
}
