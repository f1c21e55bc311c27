package shm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// What goes over the Unix socket, in packets: a JSON document each; with the hello three descriptors.

// Hello is the client's first packet.
type Hello struct {
	Version int    `json:"version"`
	Size    uint64 `json:"size"` // bytes of the memory file
	PID     int    `json:"pid"`
	// WaitMS is for how many milliseconds the client waits for the answer; 0 says nothing of it. A NIC that cannot take the
	// client in that time says why before it is over.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// Ask is what a client says later.
type Ask struct {
	Op    string   `json:"op"` // status or reform
	Nodes []uint16 `json:"nodes,omitempty"`
}

// Answer is the NIC's to each packet.
type Answer struct {
	Error       string   `json:"error,omitempty"`
	Node        uint16   `json:"node"`
	Nodes       []uint16 `json:"nodes"`
	Phase       string   `json:"phase"`
	Generation  uint32   `json:"generation"`
	Failure     string   `json:"failure,omitempty"`
	Outstanding int      `json:"outstanding"`
}

// MaxPath is the bytes that a Unix socket's path may have (unix(7): 108 with the zero at its end).
const MaxPath = 107

// PacketMax is the longest packet.
const PacketMax = 1 << 14

// Descriptors of the hello, in this order.
const (
	FDMemory = iota
	FDDoorbell
	FDDone
	NumFDs
)

// Send sends a packet, with descriptors, which stay the caller's.
func Send(c *net.UnixConn, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write packet: %w", err)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// Receive reads a packet into v, and the descriptors that came with it, which are the caller's.
func Receive(c *net.UnixConn, v any) (fds []int, err error) {
	b, oob := make([]byte, PacketMax), make([]byte, unix.CmsgSpace(4*NumFDs))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			CloseAll(fds)
			fds = nil
		}
	}()
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // of another kind
		}
		for _, fd := range got {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, got...)
	}
	if n == 0 {
		return fds, errors.New("the other side has ended")
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return fds, errors.New("a packet that is too long")
	}
	if err := json.Unmarshal(b[:n], v); err != nil {
		return fds, fmt.Errorf("packet: %w", err)
	}
	return fds, nil
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// IsEvent says whether a descriptor is an event descriptor. Another kind of file could make its readers wait for good.
func IsEvent(fd int) bool {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && name == "anon_inode:[eventfd]"
}

// Ring adds one to an event descriptor. It waits while the descriptor is full.
func Ring(f *os.File) error {
	_, err := f.Write(binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// Await waits until an event descriptor is not 0, and resets it. It never waits in the kernel, whatever the other side
// has set on the file that both share, so that Close ends it.
func Await(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("event descriptor: %w", err)
	}
	var got error
	err = raw.Read(func(fd uintptr) bool {
		got = readEvent(fd)
		return !errors.Is(got, unix.EAGAIN)
	})
	return errors.Join(err, got)
}

// Drain resets an event descriptor.
func Drain(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = readEvent(fd) })
	}
}

func readEvent(fd uintptr) error {
	var b [8]byte
	for {
		_, err := unix.Preadv2(int(fd), [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
