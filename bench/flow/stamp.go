package flow

import (
	"encoding/binary"
	"hash/crc32"
)

// StampLen is the length of a stamp: 16 bytes, which the smallest frame has room for behind its UDP header.
const StampLen = 16

// stampMagic keeps zeros and other constant payloads from looking like stamps.
const stampMagic = 0x6772_6164

// Stamp is what a frame of the bench carries at the start of its payload, behind the protocol's own header, little
// endian: a check word, the number of the frame in its stream, and stream and time in one word. The check word covers
// the payload behind the stamp by CRC-32C and the other fields by exclusive or, so that a device that changes payloads
// is found out.
type Stamp struct {
	Number uint32
	Stream uint8  // the sender's queue
	Time   uint64 // CLOCK_MONOTONIC of the machine in ns, 56 bits
}

const timeMask = 1<<56 - 1

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // the library keeps one table

// PayloadSum is the part of the check word that the payload behind a stamp is responsible for; rest begins there. For a
// payload that does not change it is computed once.
func PayloadSum(rest []byte) uint32 { return crc32.Checksum(rest, castagnoli()) ^ stampMagic }

// Put writes the stamp to b; sum is PayloadSum of what follows it.
func (s Stamp) Put(b []byte, sum uint32) {
	when := s.Time&timeMask | uint64(s.Stream)<<56
	binary.LittleEndian.PutUint32(b, sum^s.Number^uint32(when)^uint32(when>>32))
	binary.LittleEndian.PutUint32(b[4:], s.Number)
	binary.LittleEndian.PutUint64(b[8:], when)
}

// ReadStamp reads the stamp at the start of b, which ends with the payload. ok is false when b is too short, or when
// anything in it is not as it was sent.
func ReadStamp(b []byte) (s Stamp, ok bool) {
	if len(b) < StampLen {
		return Stamp{}, false
	}
	when := binary.LittleEndian.Uint64(b[8:])
	s = Stamp{Number: binary.LittleEndian.Uint32(b[4:]), Stream: uint8(when >> 56), Time: when & timeMask}
	want := PayloadSum(b[StampLen:]) ^ s.Number ^ uint32(when) ^ uint32(when>>32)
	return s, binary.LittleEndian.Uint32(b) == want
}
