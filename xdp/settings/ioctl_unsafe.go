package settings

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifreqData is struct ifreq with a pointer in its union.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the union is 24 bytes, 16 with 32-bit pointers: more does not matter
}

// ethtoolIoctl asks the driver of a netdev (SIOCETHTOOL). buf begins with the command, and the answer is written to it.
//
// Invariant of the unsafe code: the kernel reads and writes the structure that belongs to the command, which is not
// larger than buf (rxnfcSize and its rule locations for the commands used here; rxnfc is checked where buf is made); buf
// and the request are kept alive until the call has returned, and the kernel keeps no pointer to them.
func ethtoolIoctl(fd int, iface string, buf []byte) error {
	if len(iface) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface name %q: want at most %d characters", iface, unix.IFNAMSIZ-1)
	}
	req := ifreqData{data: unsafe.Pointer(unsafe.SliceData(buf))}
	copy(req.name[:], iface)
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(buf))
	defer pin.Unpin()
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(buf)
	if e != 0 {
		return e
	}
	return nil
}
