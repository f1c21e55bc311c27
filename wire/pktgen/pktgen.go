// Package pktgen reads and writes the header that the Linux kernel's packet generator puts at the start of each UDP
// payload: 16 bytes, big endian, a magic word, the packet's number and the time of day when it was made (struct
// pktgen_hdr in net/core/pktgen.c of Linux 6.12; Documentation/networking/pktgen.rst).
package pktgen

import (
	"encoding/binary"
	"time"
)

// Magic begins the header.
const Magic = 0xbe9be955

// HeaderLen is its length in bytes.
const HeaderLen = 16

// Header is what a packet says of itself.
type Header struct {
	Number uint32 // of the packet in its device's stream, from 1 on
	// Time is the generator's time of day in microseconds' resolution; the zero time when it did not stamp (flag
	// NO_TIMESTAMP), or when what stands there is no time.
	Time time.Time
}

// Parse reads the header at the start of a UDP payload; ok is false when it is not pktgen's.
func Parse(payload []byte) (h Header, ok bool) {
	if len(payload) < HeaderLen || binary.BigEndian.Uint32(payload) != Magic {
		return Header{}, false
	}
	h.Number = binary.BigEndian.Uint32(payload[4:])
	if sec, usec := binary.BigEndian.Uint32(payload[8:]), binary.BigEndian.Uint32(payload[12:]); sec|usec != 0 && usec < 1e6 {
		h.Time = time.Unix(int64(sec), int64(usec)*1000)
	}
	return h, true
}

// Put writes the header to b, at least HeaderLen bytes. The kernel's field for seconds has 32 bits.
func (h Header) Put(b []byte) {
	binary.BigEndian.PutUint32(b, Magic)
	binary.BigEndian.PutUint32(b[4:], h.Number)
	var sec, usec uint32
	if !h.Time.IsZero() {
		sec, usec = uint32(h.Time.Unix()), uint32(h.Time.Nanosecond()/1000)
	}
	binary.BigEndian.PutUint32(b[8:], sec)
	binary.BigEndian.PutUint32(b[12:], usec)
}
