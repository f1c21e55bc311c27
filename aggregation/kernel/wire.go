package kernel

import (
	"encoding/binary"
	"math"
)

// decode reads wire elements into a slot's type.
func decode[A Element](s Spec, dst []A, src []byte) {
	switch dst := any(dst).(type) {
	case []int32:
		switch {
		case s.Type == Int8:
			for i, b := range src[:len(dst)] {
				dst[i] = int32(int8(b))
			}
		case s.Order == BigEndian:
			for i := range dst {
				dst[i] = int32(binary.BigEndian.Uint32(src[4*i : 4*i+4]))
			}
		default:
			for i := range dst {
				dst[i] = int32(binary.LittleEndian.Uint32(src[4*i : 4*i+4]))
			}
		}
	case []int64:
		if s.Order == BigEndian {
			for i := range dst {
				dst[i] = int64(binary.BigEndian.Uint64(src[8*i : 8*i+8]))
			}
			return
		}
		for i := range dst {
			dst[i] = int64(binary.LittleEndian.Uint64(src[8*i : 8*i+8]))
		}
	case []float32:
		decodeFloat32(s, dst, src)
	case []float64:
		if s.Order == BigEndian {
			for i := range dst {
				dst[i] = math.Float64frombits(binary.BigEndian.Uint64(src[8*i : 8*i+8]))
			}
			return
		}
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(src[8*i : 8*i+8]))
		}
	}
}

func decodeFloat32(s Spec, dst []float32, src []byte) {
	if s.Type == Float32 {
		if s.Order == BigEndian {
			for i := range dst {
				dst[i] = math.Float32frombits(binary.BigEndian.Uint32(src[4*i : 4*i+4]))
			}
			return
		}
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i : 4*i+4]))
		}
		return
	}
	first, second := 8, 0 // how far to shift the bytes of a word
	if s.Order == LittleEndian {
		first, second = 0, 8
	}
	src = src[:2*len(dst)]
	if s.Type == BFloat16 {
		for i := range dst {
			dst[i] = fromBFloat16(uint16(src[2*i])<<first | uint16(src[2*i+1])<<second)
		}
		return
	}
	for i := range dst {
		dst[i] = fromFloat16(uint16(src[2*i])<<first | uint16(src[2*i+1])<<second)
	}
}

// encode writes elements of a slot's type to the wire. They must fit: see narrow.
func encode[A Element](s Spec, dst []byte, src []A) {
	switch src := any(src).(type) {
	case []int32:
		switch {
		case s.Type == Int8:
			for i, v := range src {
				dst[i] = byte(v)
			}
		case s.Order == BigEndian:
			for i, v := range src {
				binary.BigEndian.PutUint32(dst[4*i:4*i+4], uint32(v))
			}
		default:
			for i, v := range src {
				binary.LittleEndian.PutUint32(dst[4*i:4*i+4], uint32(v))
			}
		}
	case []int64:
		if s.Order == BigEndian {
			for i, v := range src {
				binary.BigEndian.PutUint64(dst[8*i:8*i+8], uint64(v))
			}
			return
		}
		for i, v := range src {
			binary.LittleEndian.PutUint64(dst[8*i:8*i+8], uint64(v))
		}
	case []float32:
		encodeFloat32(s, dst, src)
	case []float64:
		if s.Order == BigEndian {
			for i, v := range src {
				binary.BigEndian.PutUint64(dst[8*i:8*i+8], math.Float64bits(v))
			}
			return
		}
		for i, v := range src {
			binary.LittleEndian.PutUint64(dst[8*i:8*i+8], math.Float64bits(v))
		}
	}
}

func encodeFloat32(s Spec, dst []byte, src []float32) {
	if s.Type == Float32 {
		if s.Order == BigEndian {
			for i, v := range src {
				binary.BigEndian.PutUint32(dst[4*i:4*i+4], math.Float32bits(v))
			}
			return
		}
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:4*i+4], math.Float32bits(v))
		}
		return
	}
	first, second := 8, 0 // how far to shift the bytes of a word
	if s.Order == LittleEndian {
		first, second = 0, 8
	}
	dst = dst[:2*len(src)]
	if s.Type == BFloat16 {
		for i, v := range src {
			w := toBFloat16(v)
			dst[2*i], dst[2*i+1] = byte(w>>first), byte(w>>second)
		}
		return
	}
	for i, v := range src {
		w := toFloat16(v)
		dst[2*i], dst[2*i+1] = byte(w>>first), byte(w>>second)
	}
}
