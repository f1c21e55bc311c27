package datagram

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// packer makes the messages of one sendmmsg. Datagrams that follow each other and have one length become one message, which
// the kernel carries whole down to the device and cuts there (UDP_SEGMENT, udp(7), since Linux 4.18): routing, queueing and
// whatever virtual devices are on the way are paid once for all of them. What is on the wire is the same.
type packer struct {
	segments bool // off: each datagram is a message
	parts    [][]byte
	ms       []ipv4.Message
	control  []byte // Burst control messages
}

// segmentBytes is the most payload in one message of short datagrams: a shaper takes, or waits for, a message whole, and 30 KB cost
// more of a link of 200 Mbit/s than they saved. jumboBytes is that of longer ones, whose links are faster, and of which 15 KB are
// but one. The kernel takes 64 KB.
const (
	segmentBytes = 15 << 10
	jumboBytes   = 60 << 10
)

var controlLen = unix.CmsgSpace(2)

func newPacker() packer {
	p := packer{parts: make([][]byte, Burst), ms: make([]ipv4.Message, Burst), control: make([]byte, Burst*controlLen)}
	for i := range Burst {
		b := p.control[i*controlLen:]
		// struct cmsghdr: the length is a size_t, and level and type are ints.
		word := unix.SizeofCmsghdr - 8
		if word == 8 {
			binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(2)))
		} else {
			binary.NativeEndian.PutUint32(b, uint32(unix.CmsgLen(2)))
		}
		binary.NativeEndian.PutUint32(b[word:], unix.SOL_UDP)
		binary.NativeEndian.PutUint32(b[word+4:], unix.UDP_SEGMENT)
	}
	return p
}

// pack lays out at most Burst frames as messages, each with one or more of them. They are valid until the next call.
func (p *packer) pack(frames [][]byte) []ipv4.Message {
	for i, f := range frames {
		p.parts[i] = f[inet.PayloadOffset:]
	}
	n := 0
	for rest := p.parts[:len(frames)]; len(rest) > 0; n++ {
		k := 1
		if p.segments {
			k = run(rest)
		}
		m := &p.ms[n]
		m.Buffers, m.OOB = rest[:k], nil
		if k > 1 {
			m.OOB = p.control[n*controlLen : (n+1)*controlLen]
			binary.NativeEndian.PutUint16(m.OOB[unix.CmsgLen(0):], uint16(len(rest[0])))
		}
		rest = rest[k:]
	}
	return p.ms[:n]
}

// run is how many of the datagrams make one message: those as long as the first, and one shorter behind them.
func run(parts [][]byte) int {
	size, total, most := len(parts[0]), len(parts[0]), segmentBytes
	if size > 1500 {
		most = jumboBytes
	}
	for k, b := range parts[1:] {
		total += len(b)
		if len(b) == 0 || len(b) > size || total > most {
			return k + 1
		}
		if len(b) < size {
			return k + 2
		}
	}
	return len(parts)
}

// unsegmentable reports whether the kernel or the way to the NIC does not take messages of several datagrams: the device
// has no checksum offload, or the datagram is longer than the MTU, which the plain one then says or mends.
func unsegmentable(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EMSGSIZE)
}
