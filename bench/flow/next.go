package flow

import (
	"encoding/binary"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// Next writes the next frame to dst, which must have room for the largest size, with the time now (CLOCK_MONOTONIC, ns),
// and returns its length.
func (s *Stream) Next(dst []byte, now uint64) int {
	m := &s.o.Impairments
	if m.Malformed > 0 && s.rng.Float64() < m.Malformed {
		n := s.put(dst, s.next, now)
		s.damage(dst[:n])
		s.counts.Malformed++
		s.count(n)
		return n
	}
	var number uint64
	if k := len(s.back); k > 0 {
		number = s.back[k-1]
		s.back = s.back[:k-1]
	} else {
		for m.Loss > 0 && s.rng.Float64() < m.Loss {
			s.next++
			s.counts.Skipped++
		}
		number = s.next
		s.next++
		if m.Reorder > 0 && s.rng.Float64() < m.Reorder {
			s.back = append(s.back, number)
			number = s.next
			s.next++
			s.counts.Reordered++
		}
		if m.Duplicate > 0 && s.rng.Float64() < m.Duplicate {
			s.back = append(s.back, number)
			s.counts.Duplicated++
		}
	}
	n := s.put(dst, number, now)
	s.count(n)
	return n
}

func (s *Stream) count(n int) {
	s.counts.Frames++
	s.counts.Bytes += uint64(n)
}

// Counts are what was made so far.
func (s *Stream) Counts() Counts {
	c := s.counts
	c.Numbers = s.next
	return c
}

// Longest is the largest frame.
func (s *Stream) Longest() int {
	longest := 0
	for _, size := range s.o.Sizes {
		longest = max(longest, size)
	}
	return longest
}

// put writes frame number.
func (s *Stream) put(dst []byte, number, now uint64) int {
	size := 0
	if len(s.o.Sizes) > 1 {
		size = s.pickSize()
	}
	w := int(number % uint64(s.o.Workers))
	at := w*len(s.o.Sizes) + size
	n := copy(dst, s.templates[at])
	use := number / uint64(s.o.Workers) // all workers' contributions to a slot follow each other
	slot := use % uint64(s.o.Slots)
	round := use / uint64(s.o.Slots)
	h := dst[inet.PayloadOffset:n]
	switch s.o.Kind {
	case SwitchML:
		binary.LittleEndian.PutUint32(h[2:], uint32(use)) // the client's packet number, opaque to the NIC
		binary.BigEndian.PutUint16(h[6:], switchml.PoolIndexOf(int(round&1), int(slot)))
	case Native:
		binary.BigEndian.PutUint32(h[12:], uint32(round)) // wire/native's Header
		binary.BigEndian.PutUint32(h[16:], uint32(slot))
	case ACCL:
		binary.LittleEndian.PutUint32(h[12:], uint32(use))
	}
	Stamp{Number: uint32(number), Stream: s.o.Stream, Time: now}.Put(dst[s.o.Kind.StampAt():], s.sums[at])
	return n
}

// pickSize throws the sizes' dice.
func (s *Stream) pickSize() int {
	if s.o.Shares == nil {
		return s.sizes.IntN(len(s.o.Sizes))
	}
	x := s.sizes.Float64() * s.total
	for i, share := range s.o.Shares {
		if x -= share; x < 0 {
			return i
		}
	}
	return len(s.o.Sizes) - 1
}

// damage makes a frame that contradicts itself, in one of three ways that a NIC must refuse.
func (s *Stream) damage(f []byte) {
	switch s.rng.IntN(3) {
	case 0: // IP version 6 behind IPv4's EtherType
		f[inet.EthernetLen] = 0x65
	case 1: // UDP longer than IP
		binary.BigEndian.PutUint16(f[38:], uint16(len(f)))
	case 2: // an IPv4 header of 4 bytes
		f[inet.EthernetLen] = 0x41
	}
}
